"""A NumPy array that a compiled function captures, while the function is traced.

NumPy computes in 64 bits where JAX has 32, and with the numbers themselves. So a captured array is
an input of the program only as far as it is handed to JAX. Where NumPy would compute with it, the
trace is given up, and made again with the array as a constant.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from replicax.functions._retry import NumPyNeeded


class LateNumPy:
    """Stands for a NumPy array; for JAX it is an input of the program."""

    def __init__(self, tracer: Any, dtype: Any, flattens: bool = True, has_scalars: bool = True):
        """
        Args:
          tracer: the input.
          dtype: of the NumPy array, which may have more bits.
          flattens: whether only JAX takes structures apart, and not the user's own code.
          has_scalars: whether its items may be arrays without dimensions. NumPy's are scalars, and
            floats as Python's are, which the user's code can ask for.
        """
        self._tracer = tracer
        self.dtype = np.dtype(dtype)
        self._flattens = flattens
        self._has_scalars = has_scalars

    shape = property(lambda self: self._tracer.shape)
    ndim = property(lambda self: self._tracer.ndim)
    size = property(lambda self: self._tracer.size)
    T = property(lambda self: self._like(self._tracer.T))

    def _like(self, tracer: Any, dtype: Any = None) -> LateNumPy:
        return LateNumPy(tracer, dtype or self.dtype, self._flattens, self._has_scalars)

    def __jax_array__(self) -> Any:
        return self._tracer

    def __len__(self) -> int:
        return len(self._tracer)

    def __getitem__(self, index: Any) -> LateNumPy:
        parts = index if isinstance(index, tuple) else (index,)
        for part in parts:
            if isinstance(part, bool) or not isinstance(part, int | slice | type(None) | type(...)):
                raise NumPyNeeded
        # JAX forgives a wrong index.
        like = np.broadcast_to(np.zeros((), self.dtype), self.shape)[index]
        if isinstance(like, np.generic) and not self._has_scalars:
            raise NumPyNeeded
        return self._like(self._tracer[index])

    def reshape(self, *shape: Any) -> LateNumPy:
        return self._like(self._tracer.reshape(*shape))

    def astype(self, dtype: Any) -> LateNumPy:
        if self.dtype.kind == "f" and np.dtype(dtype).kind != "f":  # out of range they differ
            raise NumPyNeeded
        for each in (self.dtype, np.dtype(dtype)):
            if jax.dtypes.canonicalize_dtype(each) != each:
                raise NumPyNeeded
        return self._like(self._tracer.astype(dtype), dtype)

    def __getattr__(self, name: str) -> Any:
        # JAX asks objects for protocols that arrays do not have.
        if hasattr(np.ndarray, name):
            raise NumPyNeeded
        raise AttributeError(name)


def _flattened(array: LateNumPy) -> tuple[tuple[Any], None]:
    if not array._flattens:
        raise NumPyNeeded
    return (array._tracer,), None


# To functions that JAX transforms it is an array of JAX's.
jax.tree_util.register_pytree_node(LateNumPy, _flattened, lambda _, children: children[0])


def _refuse(self: LateNumPy, *others: Any) -> Any:
    raise NumPyNeeded


def _leave_to_jax(self: LateNumPy, other: Any) -> Any:
    """The other operand computes, if it is one of JAX's; two of NumPy's are NumPy's business."""
    of_numpy = isinstance(other, LateNumPy) or not (
        isinstance(other, jax.Array) or hasattr(other, "__jax_array__")
    )
    if of_numpy:
        raise NumPyNeeded
    return NotImplemented


_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split()
_COMPARING = "lt le eq ne gt ge".split()
_ALONE = """neg pos abs invert bool int float complex index iter contains array setitem round hash
    str repr format""".split()
for _name in [*_BINARY, *(f"r{name}" for name in _BINARY), *_COMPARING]:
    setattr(LateNumPy, f"__{_name}__", _leave_to_jax)
for _name in [*_ALONE, *(f"i{name}" for name in _BINARY)]:
    setattr(LateNumPy, f"__{_name}__", _refuse)
