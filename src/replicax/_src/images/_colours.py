"""Brightness, contrast and colours of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from replicax._src.images._arrays_of import (
    Image,
    as_image,
    convert_image_dtype,
    is_float,
    module_of,
    scalar,
)


def _in_floats(image: Image, operation: str, change: Callable[[Any], Any], least: int = 3) -> Any:
    """Returns what a function makes of an image in floats, in the image's own dtype."""
    array = as_image(image, operation, least)
    dtype = np.dtype(array.dtype)
    half = dtype in (np.float16, np.float32)
    floats = array if half else convert_image_dtype(array, np.float32)
    return convert_image_dtype(change(floats), dtype, saturate=True)


def adjust_brightness(image: Image, delta: float) -> Any:
    """Returns an image of any shape, lighter by `delta`, from -1 to 1; integers stay in range."""
    return _in_floats(
        image, "adjust_brightness()", lambda array: array + scalar(delta, array.dtype), 0
    )


def adjust_contrast(images: Image, contrast_factor: float) -> Any:
    """Returns an image, or a batch of them, with channels so much further from their mean."""

    def change(array: jax.Array) -> jax.Array:
        mean = array.mean(axis=(-3, -2), keepdims=True, dtype=np.float32).astype(array.dtype)
        return (array - mean) * scalar(contrast_factor, array.dtype) + mean

    return _in_floats(images, "adjust_contrast()", change)


def adjust_gamma(image: Image, gamma: float = 1, gain: float = 1) -> Any:
    """Returns `gain * image ** gamma`, for an image of any shape in floats from 0 to 1."""
    if not isinstance(gamma, jax.Array) and gamma < 0:
        raise ValueError(f"adjust_gamma() takes a gamma of 0 or more; got {gamma!r}.")
    return _in_floats(
        image,
        "adjust_gamma()",
        lambda array: scalar(gain, array.dtype) * array ** scalar(gamma, array.dtype),
        0,
    )


def adjust_saturation(image: Image, saturation_factor: float, name: str | None = None) -> Any:
    """Returns an image, or a batch of them, with colours so many times as strong."""

    def change(array: jax.Array) -> jax.Array:
        xp, hsv = module_of(array), rgb_to_hsv(array)
        strength = xp.clip(hsv[..., 1] * scalar(saturation_factor, np.float32), 0, 1)
        return hsv_to_rgb(xp.stack([hsv[..., 0], strength, hsv[..., 2]], axis=-1))

    return _in_floats(image, "adjust_saturation()", change)


def adjust_hue(image: Image, delta: float, name: str | None = None) -> Any:
    """Returns an image, or a batch of them, with colours moved round the circle, by -1 to 1."""

    def change(array: jax.Array) -> jax.Array:
        xp, hsv = module_of(array), rgb_to_hsv(array)
        hue = hsv[..., 0] + scalar(delta, np.float32)
        return hsv_to_rgb(xp.stack([hue - xp.floor(hue), hsv[..., 1], hsv[..., 2]], axis=-1))

    return _in_floats(image, "adjust_hue()", change)


def rgb_to_hsv(images: Image, name: str | None = None) -> Any:
    """Returns hue, saturation and value, from 0 to 1, of red, green and blue in floats."""
    array, xp = _colours(images, "rgb_to_hsv()"), module_of(images)
    red, green, blue = array[..., 0], array[..., 1], array[..., 2]
    most, least = array.max(axis=-1), array.min(axis=-1)
    span = most - least
    some = xp.where(span > 0, span, 1)
    part = xp.where(
        most == red,
        (green - blue) / some,
        xp.where(most == green, (blue - red) / some + 2, (red - green) / some + 4),
    )
    hue = xp.where(span > 0, part / 6, 0)
    hue = xp.where(hue < 0, hue + 1, hue)
    strength = xp.where(most > 0, span / xp.where(most > 0, most, 1), 0)
    return xp.stack([hue, strength, most], axis=-1).astype(array.dtype)


def hsv_to_rgb(images: Image, name: str | None = None) -> Any:
    """Returns red, green and blue of hue, saturation and value, in floats from 0 to 1."""
    array, xp = _colours(images, "hsv_to_rgb()"), module_of(images)
    hue, strength, value = array[..., 0] * 6, array[..., 1], array[..., 2]
    shares = (xp.abs(hue - 3) - 1, 2 - xp.abs(hue - 2), 2 - xp.abs(hue - 4))
    parts = [(xp.clip(share, 0, 1) - 1) * strength + 1 for share in shares]
    return (xp.stack(parts, axis=-1) * value[..., None]).astype(array.dtype)


def _colours(image: Image, operation: str) -> Any:
    array = as_image(image, operation, 1)
    if array.shape[-1] != 3 or not is_float(array.dtype):
        raise ValueError(
            f"{operation} takes floats with three channels, the last dimension; got "
            f"{array.dtype}{list(array.shape)}."
        )
    return array


def rgb_to_grayscale(images: Image, name: str | None = None) -> Any:
    """Returns an image, or a batch of them, with one channel for the three of colours."""
    array = as_image(images, "rgb_to_grayscale()", 1)
    if array.shape[-1] != 3:
        raise ValueError(f"rgb_to_grayscale() takes three channels; got the shape {array.shape}.")
    floats = convert_image_dtype(array, np.float32)
    weights = np.array([0.2989, 0.5870, 0.1140], np.float32)
    grey = (floats * weights).sum(axis=-1, keepdims=True)
    return convert_image_dtype(grey, array.dtype)


def grayscale_to_rgb(images: Image, name: str | None = None) -> Any:
    """Returns an image, or a batch of them, with its one channel three times."""
    array = as_image(images, "grayscale_to_rgb()", 1)
    if array.shape[-1] != 1:
        raise ValueError(f"grayscale_to_rgb() takes one channel; got the shape {array.shape}.")
    return module_of(images).repeat(array, 3, axis=-1)


def per_image_standardization(image: Image) -> Any:
    """Returns each image in floats with a mean of 0 and a variance of 1, or less for even ones."""
    array = as_image(image, "per_image_standardization()")
    keeps = np.dtype(array.dtype) in (np.float16, np.float32)
    floats = array.astype(np.float32)
    pixels = np.float32(np.prod(array.shape[-3:]))
    axes = (-3, -2, -1)
    mean = floats.mean(axis=axes, keepdims=True)
    deviation = floats.std(axis=axes, keepdims=True)
    spread = module_of(image).maximum(deviation, 1 / np.sqrt(pixels))
    standard = (floats - mean) / spread
    return standard.astype(array.dtype) if keeps else standard
