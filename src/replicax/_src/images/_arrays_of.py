"""NumPy or JAX: what an image is made of decides what it is computed with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import DTypeLike

Image = Any
"""An array of height, width and channels, or a batch of them: NumPy's, JAX's, or a list."""


def module_of(image: Image) -> Any:
    """Returns the module with the functions for an image: `numpy`, or `jax.numpy`."""
    return jnp if isinstance(image, jax.Array) else np


def as_image(image: Image, operation: str, least: int = 3) -> Any:
    """Returns an image as an array, with three or four dimensions unless `least` says otherwise."""
    array = image if isinstance(image, jax.Array) else np.asarray(image)
    if not least <= array.ndim <= max(least, 4) and least == 3:
        raise ValueError(
            f"{operation} takes an image of height, width and channels, or a batch of them; got "
            f"the shape {array.shape}."
        )
    if array.ndim < least:
        raise ValueError(
            f"{operation} takes an image with at least {least} dimension(s); got the shape "
            f"{array.shape}."
        )
    return array


def scalar(value: Any, dtype: DTypeLike) -> Any:
    """Returns a number in a dtype; it may be one of a compiled function."""
    return value.astype(dtype) if isinstance(value, jax.Array) else np.dtype(dtype).type(value)


def is_float(dtype: DTypeLike) -> bool:
    return jnp.issubdtype(dtype, np.floating)


def convert_image_dtype(
    image: Image, dtype: DTypeLike, saturate: bool = False, name: str | None = None
) -> Any:
    """Returns an image in another dtype: floats go from 0 to 1, integers up to their largest.

    >>> convert_image_dtype(np.array([0, 51, 255], np.uint8), np.float32).round(3).tolist()
    [0.0, 0.20000000298023224, 1.0]

    Args:
      image: of any shape.
      dtype: of integers or floats.
      saturate: whether values that do not fit become the nearest that do.
    """
    array, xp = as_image(image, "convert_image_dtype()", 0), module_of(image)
    wanted = np.dtype(dtype)
    have = np.dtype(array.dtype)
    if have == wanted:
        return array
    if is_float(have) and is_float(wanted):
        return array.astype(wanted)
    if not is_float(have) and not is_float(wanted):
        most, least = _largest(have) + 1, _largest(wanted) + 1
        if most > least:
            return _cast(array // (most // least), wanted, saturate, xp)
        return _cast(array, wanted, saturate, xp) * wanted.type(least // most)
    if is_float(wanted):
        wide = np.promote_types(wanted, np.float32)  # half of the width has no room for all
        return (array.astype(wide) * wide.type(1.0 / _largest(have))).astype(wanted)
    return _cast(array * have.type(_largest(wanted) + 0.5), wanted, saturate, xp)


def _largest(dtype: np.dtype) -> int:
    return int(np.iinfo(dtype).max)


def _cast(array: Any, dtype: np.dtype, saturate: bool, xp: Any) -> Any:
    if saturate:
        info = np.iinfo(dtype)
        if is_float(array.dtype):
            array = xp.clip(array, float(info.min), float(info.max))
            over = array >= float(info.max)  # which a float may not hold exactly
            return xp.where(over, dtype.type(info.max), xp.where(over, 0, array).astype(dtype))
        have = np.iinfo(array.dtype)
        array = xp.clip(array, max(info.min, have.min), min(info.max, have.max))
    return array.astype(dtype)
