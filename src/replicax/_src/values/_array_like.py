"""Objects that stand for an array: arithmetic, conversion and attributes, said once.

Mirrored values and variables inherit this. They say in `_array()` which array they stand for in
the current context.
"""

# The functions of `operator` have no types.
# pyright: reportUnknownMemberType=false
# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._jax_internals import ARRAY_ATTRIBUTES
from replicax._src._typing import DTypeLike

BINARY_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "matmul": operator.matmul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "divmod": divmod,
    "pow": operator.pow,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
UNARY_OPERATORS: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": operator.abs,
    "invert": operator.invert,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "len": len,
}


class ArrayLike:
    """Arithmetic and conversions of whatever `_array()` returns."""

    __slots__ = ()
    # NumPy then leaves `numpy_array + this` to our reflected operators, as it does for jax.Array.
    __array_priority__ = 100

    if TYPE_CHECKING:  # what is set below, for type checkers

        def _binary(self, other: Any, /) -> jax.Array: ...
        def _unary(self, /) -> jax.Array: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __complex__(self) -> complex: ...
        def __index__(self) -> int: ...
        def __len__(self) -> int: ...

        __lt__ = __le__ = __gt__ = __ge__ = _binary
        __add__ = __radd__ = _binary
        __sub__ = __rsub__ = _binary
        __mul__ = __rmul__ = _binary
        __matmul__ = __rmatmul__ = _binary
        __truediv__ = __rtruediv__ = _binary
        __floordiv__ = __rfloordiv__ = _binary
        __mod__ = __rmod__ = _binary
        __pow__ = __rpow__ = _binary
        __lshift__ = __rlshift__ = _binary
        __rshift__ = __rrshift__ = _binary
        __and__ = __rand__ = _binary
        __or__ = __ror__ = _binary
        __xor__ = __rxor__ = _binary
        __neg__ = __pos__ = __abs__ = __invert__ = _unary

    def _array(self) -> Any:
        raise TypeError(f"{type(self).__name__} does not stand for an array here.")

    def __jax_array__(self) -> jax.Array:
        array = self._array()
        return array if isinstance(array, jax.Array) else jnp.asarray(array)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = np.asarray(self._array(), dtype=dtype)
        return np.array(array) if copy else array

    def __setitem__(self, index: object, value: object) -> None:
        raise TypeError(
            f"{type(self).__name__} does not support item assignment, because arrays of JAX do not "
            "change. Assign a variable as a whole: v.assign(v.value().at[index].set(x))."
        )

    def __delitem__(self, index: object) -> None:
        raise TypeError(
            f"{type(self).__name__} does not support item deletion: shapes stay as they are. Make "
            "a new array of the items to keep, for example jnp.delete(v, index)."
        )

    def numpy(self) -> np.ndarray:
        """Returns the current value as a NumPy array."""
        return np.asarray(self._array())

    @property
    def shape(self) -> tuple[int, ...]:
        return jnp.shape(self._array())

    @property
    def dtype(self) -> Any:
        return jnp.result_type(self._array())

    def __getitem__(self, key: object) -> Any:
        return self._array()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._array())

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self._array(), ndigits or 0)

    def __format__(self, spec: str) -> str:
        return format(self._array(), spec) if spec else str(self)

    def __getattr__(self, name: str) -> Any:
        # The rest of jax.Array's surface (`w.T`, `w.at[...]`, `w.sum()`), on the current value.
        if name.startswith("_") or name not in ARRAY_ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._array(), name)


def _binary(fn: Callable[[Any, Any], Any]) -> Callable[[ArrayLike, Any], Any]:
    return lambda self, other: fn(self._array(), array_here(other))


def _reflected(fn: Callable[[Any, Any], Any]) -> Callable[[ArrayLike, Any], Any]:
    return lambda self, other: fn(array_here(other), self._array())


def _unary(fn: Callable[[Any], Any]) -> Callable[[ArrayLike], Any]:
    return lambda self: fn(self._array())


def array_here(value: object) -> Any:
    """Returns the array that a value or variable stands for in this context; others as they are."""
    return value._array() if isinstance(value, ArrayLike) else value


for _name, _fn in BINARY_OPERATORS.items():
    setattr(ArrayLike, f"__{_name}__", _binary(_fn))
    setattr(ArrayLike, f"__r{_name}__", _reflected(_fn))
for _name, _fn in COMPARISONS.items():
    setattr(ArrayLike, f"__{_name}__", _binary(_fn))
for _name, _fn in UNARY_OPERATORS.items():
    setattr(ArrayLike, f"__{_name}__", _unary(_fn))
