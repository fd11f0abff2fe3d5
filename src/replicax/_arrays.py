"""Arrays from whatever users pass, with a definite dtype.

JAX gives Python numbers a *weak* dtype that bends to what they are combined with. State must not
bend: a float32 variable stays float32.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def strong(array: jax.Array) -> jax.Array:
    """`array` with its dtype made definite; the same object if it is so already."""
    weak = getattr(array, "weak_type", False)  # random keys have no such thing
    return jax.lax.convert_element_type(array, array.dtype) if weak else array


def for_mean(array: jax.Array) -> jax.Array:
    """Integers as floats: a mean need not be whole, and the sum of small integers overflows."""
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array / 1


def is_number(value: Any) -> bool:
    """Whether `value` is a Python number, or a NumPy value that is no text and no object."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind not in "OSU"
    return isinstance(value, int | float | complex)


def as_array(value: Any, dtype: Any = None) -> jax.Array:
    """A `jax.Array` of `value`; NumPy arrays are copied, since users may change them later."""
    if isinstance(value, jax.Array) and (dtype is None or value.dtype == dtype):
        return strong(value)
    if dtype is not None:  # without x64, int64 means int32, and there is no need to warn each time
        dtype = jax.dtypes.canonicalize_dtype(dtype)
    if isinstance(value, np.ndarray):
        # jnp.array copies too, but on the CPU it may do so after it has returned.
        return jnp.asarray(np.array(value), dtype=dtype)
    return strong(jnp.array(value, dtype=dtype))


def as_result(value: Any) -> jax.Array:
    """What a program returns for `value`: Python numbers stay weak, as they are in Python."""
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


STRING = np.dtype(object)
"""The dtype of text and bytes, which stay on the host."""
string = STRING  # for users: `rx.string`


def is_string(dtype: Any) -> bool:
    """Whether this is one of the names of the dtype of text: rx.string, "string", str, bytes."""
    if isinstance(dtype, str):
        return dtype == "string"
    return dtype is str or dtype is bytes or (isinstance(dtype, np.dtype) and dtype.kind in "OSU")
