"""Arrays from whatever users pass, with a definite dtype.

JAX gives Python numbers a *weak* dtype that bends to what they are combined with. State must not
bend: a float32 variable stays float32.
"""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import DTypeLike


def strong(array: jax.Array) -> jax.Array:
    """Returns `array` with its dtype made definite; the same object if it is so already."""
    weak = getattr(array, "weak_type", False)  # random keys have no such thing
    return jax.lax.convert_element_type(array, array.dtype) if weak else array


def for_mean(array: jax.Array) -> jax.Array:
    """Returns integers as floats: a mean need not be whole, and sums of integers overflow."""
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array / 1


def is_number(value: object) -> bool:
    """Returns whether `value` is a Python number, or one of NumPy's: no text, no object."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind not in "OSU"
    return isinstance(value, int | float | complex)


@final
class IntegersTooLargeError(ValueError, OverflowError):
    """Integers do not fit the dtype that they are to have."""


def host_integers(value: object) -> np.ndarray | None:
    """Returns `value` as an array of the host, if it is made of integers and not JAX's already."""
    if isinstance(value, jax.Array) or hasattr(value, "__jax_array__"):
        return None
    numbers = np.asarray(value)
    if numbers.dtype.kind == "O" and all(isinstance(each, int) for each in numbers.flat):
        return numbers  # beyond 64 bits
    return numbers if numbers.dtype.kind in "iu" else None


def _require_fitting(integers: np.ndarray, dtype: DTypeLike | None) -> None:
    """Refuses what `jnp.asarray` would do silently: cut off the upper bits of integers."""
    given = np.dtype(int) if integers.dtype.kind == "O" else integers.dtype
    wanted = jax.dtypes.canonicalize_dtype(given if dtype is None else dtype)
    if wanted.kind not in "iu" or np.can_cast(integers.dtype, wanted) or not integers.size:
        return
    limits, ends = np.iinfo(wanted), (integers.min(), integers.max())
    if limits.min <= ends[0] and ends[1] <= limits.max:
        return
    wrong = ends[0] if ends[0] < limits.min else ends[1]
    advice = "Give a wider dtype."
    if wanted.itemsize >= 4:
        advice = (
            "JAX has integers of 32 bits unless told otherwise. Use a floating-point dtype, or "
            "jax.config.update('jax_enable_x64', True) at the start of the program."
        )
    raise IntegersTooLargeError(
        f"{wrong} does not fit {wanted}, which has the integers from {limits.min} to {limits.max}. "
        f"{advice}"
    )


def as_array(value: object, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns a `jax.Array` of `value`; NumPy arrays are copied, since users may change them later.

    Raises:
      ValueError: integers that do not fit.
    """
    if isinstance(value, jax.Array) and (dtype is None or value.dtype == dtype):
        return strong(value)
    integers = host_integers(value)
    if integers is not None:
        _require_fitting(integers, dtype)
    if dtype is not None:  # without x64, int64 means int32, and there is no need to warn each time
        dtype = jax.dtypes.canonicalize_dtype(dtype)
    if isinstance(value, np.ndarray):
        if dtype is None and jax.dtypes.canonicalize_dtype(value.dtype) == value.dtype:
            dtype = value.dtype  # without it, JAX compiles a program for each shape
        # jnp.array copies too, but on the CPU it may do so after it has returned.
        return jnp.asarray(np.array(value), dtype=dtype)
    return strong(jnp.array(value, dtype=dtype))


def as_result(value: object) -> jax.Array:
    """Returns `value` as an array; Python numbers stay weak, as they are in Python."""
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


STRING = np.dtype(object)
"""The dtype of text and bytes, which stay on the host."""
string = STRING  # for users: `rx.string`


def is_string(dtype: object) -> bool:
    """Returns whether this is a name of the dtype of text: rx.string, "string", str, bytes."""
    if isinstance(dtype, str):
        return dtype == "string"
    return dtype is str or dtype is bytes or (isinstance(dtype, np.dtype) and dtype.kind in "OSU")
