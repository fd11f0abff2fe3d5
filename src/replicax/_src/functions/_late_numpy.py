"""A NumPy array that a compiled function captures, while the function is traced.

NumPy computes in 64 bits where JAX has 32, and with the numbers themselves. So a captured array is
an input of the program only as far as it is handed to JAX. Where NumPy would compute with it, the
trace is given up, and made again with the array as a constant.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import DTypeLike
from replicax._src.functions._packages import is_from_library
from replicax._src.functions._retry import NumPyNeeded

_ASK_FOR_OTHERS = ("numpy", "functools")  # np.isscalar, singledispatch


class LateNumPy:
    """Stands for a NumPy array; for JAX it is an input of the program."""

    def __init__(
        self, tracer: jax.Array, dtype: DTypeLike, flattens: bool = True, kind: type = np.ndarray
    ):
        """
        Args:
          tracer: the input.
          dtype: of the NumPy array, which may have more bits.
          flattens: whether only JAX takes structures apart, and not the user's own code.
          kind: the class of the NumPy array; of a single item, that of a number.
        """
        self._tracer = tracer
        self.dtype = np.dtype(dtype)
        self._flattens = flattens
        self._kind = kind

    @property
    def __class__(self) -> type:
        """To the user's `isinstance` it is what it stands for; JAX must not take it for that."""
        frame = sys._getframe(1)
        while _package_of(frame) in _ASK_FOR_OTHERS and frame.f_back is not None:
            frame = frame.f_back
        return LateNumPy if is_from_library(_package_of(frame)) else self._kind

    shape = property(lambda self: self._tracer.shape)
    ndim = property(lambda self: self._tracer.ndim)
    size = property(lambda self: self._tracer.size)
    T = property(lambda self: self._like(self._tracer.T))

    def _like(self, tracer: Any, dtype: Any = None, kind: type | None = None) -> LateNumPy:
        return LateNumPy(tracer, dtype or self.dtype, self._flattens, kind or self._kind)

    def __jax_array__(self) -> Any:
        if self.dtype.kind == "f" and jax.dtypes.canonicalize_dtype(self.dtype) != self.dtype:
            if _converts_to_whole_numbers(sys._getframe(1)):  # of all its bits: jnp.int32(x)
                raise NumPyNeeded
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
        kind = self._kind if isinstance(like, np.ndarray) else type(like)
        return self._like(self._tracer[index], kind=kind)

    def reshape(self, *shape: object) -> LateNumPy:
        return self._like(self._tracer.reshape(*shape))

    def astype(self, dtype: DTypeLike) -> LateNumPy:
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


def _converts_to_whole_numbers(frame: types.FrameType | None) -> bool:
    """Whether a function of JAX that leads here was asked for whole numbers, or for booleans."""
    while frame is not None and _package_of(frame) == "jax":
        for name, value in frame.f_locals.items():
            if name in ("dtype", "new_dtype") and value is not None:
                if not jnp.issubdtype(value, jnp.inexact):
                    return True
        frame = frame.f_back
    return False


def _package_of(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _flattened(array: LateNumPy) -> tuple[tuple[Any], None]:
    if not array._flattens:
        raise NumPyNeeded
    return (array._tracer,), None


# To functions that JAX transforms it is an array of JAX's.
jax.tree_util.register_pytree_node(LateNumPy, _flattened, lambda _, children: children[0])


def _refuse(self: LateNumPy, *others: object) -> Any:
    raise NumPyNeeded


def _leave_to_jax(self: LateNumPy, other: object) -> Any:
    """Leaves it to the other operand, if that is JAX's; two of NumPy's are NumPy's business."""
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
