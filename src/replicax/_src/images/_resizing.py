"""Images of another size, with TensorFlow's numbers.

A method is a few places and weights for each row of the result, and the same for each column. They
are computed here, with NumPy; an image only has to be summed up by them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from replicax._src.images._arrays_of import Image, as_image, module_of
from replicax._src.images._geometry import pad_to_bounding_box


class ResizeMethod:
    """The methods of `resize`."""

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


class Taps(NamedTuple):
    """What the places of a result are made of.

    Attributes:
      places: in the image, int of shape (size, taps).
      weights: of those, float32 of the same shape.
    """

    places: np.ndarray
    weights: np.ndarray


class _Kernel(NamedTuple):
    radius: float
    weight: Callable[[np.ndarray], np.ndarray]  # of a distance from the centre


def _lanczos(radius: float, x: np.ndarray) -> np.ndarray:
    near = np.maximum(x, 1e-3)
    wave = radius * np.sin(np.pi * near) * np.sin(np.pi * near / radius) / (np.pi * near) ** 2
    return np.where(x > radius, 0, np.where(x <= 1e-3, 1, wave))


def _cubic(x: np.ndarray) -> np.ndarray:
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x >= 2, 0, np.where(x >= 1, far, (1.5 * x - 2.5) * x * x + 1))


def _mitchell(x: np.ndarray) -> np.ndarray:
    far = ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x >= 2, 0, np.where(x >= 1, far, (7 / 6 * x - 2) * x * x + 8 / 9))


_KERNELS = {
    "bilinear": _Kernel(1, lambda x: np.maximum(1 - x, 0)),
    "bicubic": _Kernel(2, _cubic),
    "lanczos3": _Kernel(3, functools.partial(_lanczos, 3)),
    "lanczos5": _Kernel(5, functools.partial(_lanczos, 5)),
    "gaussian": _Kernel(1.5, lambda x: np.where(x >= 1.5, 0, np.exp(-2 * x * x))),
    "mitchellcubic": _Kernel(2, _mitchell),
}


def resize(
    images: Image,
    size: Sequence[int],
    method: str = ResizeMethod.BILINEAR,
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> Any:
    """Returns an image, or a batch of them, in another size: floats, but for "nearest".

    >>> image = np.arange(4.0, dtype=np.float32).reshape(2, 2, 1)
    >>> resize(image, [4, 2])[..., 0].tolist()
    [[0.0, 1.0], [0.5, 1.5], [1.5, 2.5], [2.0, 3.0]]

    Args:
      images: NumPy's, or JAX's, also in a compiled function.
      size: height and width.
      method: "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian" or
        "mitchellcubic".
      preserve_aspect_ratio: whether the image becomes only as large as fits into `size`.
      antialias: whether an image that becomes smaller is averaged over all of its pixels.
    """
    array, xp = as_image(images, "resize()"), module_of(images)
    height, width = _checked_size(size)
    old_height, old_width = array.shape[-3:-1]
    if preserve_aspect_ratio:
        scale = min(np.float32(height / old_height), np.float32(width / old_width))
        height = int(np.round(np.float32(scale * np.float32(old_height))))
        width = int(np.round(np.float32(scale * np.float32(old_width))))
    if method not in (*_KERNELS, "nearest", "area"):
        raise ValueError(f"resize() takes one of rx.image.ResizeMethod; got {method!r}.")
    rows = taps(old_height, height, method, antialias)
    columns = taps(old_width, width, method, antialias)
    if method == "nearest":
        return array[..., rows.places[:, 0], :, :][..., columns.places[:, 0], :]
    floats = array.astype(np.float32)
    return _summed(_summed(floats, columns, -2, xp), rows, -3, xp)


def _checked_size(size: Sequence[int]) -> tuple[int, int]:
    given = np.asarray(size)
    if given.shape != (2,) or given.dtype.kind not in "iu" or (given <= 0).any():
        raise ValueError(f"The size of an image is its height and its width; got {size!r}.")
    return int(given[0]), int(given[1])


def _summed(array: Any, taps: Taps, axis: int, xp: Any) -> Any:
    """Returns the weighted sum of the places along an axis."""
    shape = [1] * array.ndim
    shape[axis] = -1
    total: Any = None
    for places, weights in zip(taps.places.T, taps.weights.T):
        part = xp.take(array, places, axis=axis) * weights.reshape(shape)
        total = part if total is None else total + part
    return total


@functools.lru_cache(maxsize=256)
def taps(old: int, new: int, method: str, antialias: bool) -> Taps:
    """Returns what each place of `new` is made of, among `old`."""
    scale = np.float32(old / new)
    centres = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * scale
    if method == "nearest":
        places = np.minimum(np.floor(centres).astype(np.int64), old - 1)
        return Taps(places[:, None], np.ones((new, 1), np.float32))
    if method == "area":
        return _area(old, new)
    if antialias or method not in ("bilinear", "bicubic"):
        return _by_kernel(old, new, _KERNELS[method], antialias)
    before = centres - np.float32(0.5)
    low = np.floor(before)
    share = (before - low).astype(np.float32)
    low = low.astype(np.int64)
    if method == "bilinear":
        places = np.stack([np.maximum(low, 0), np.minimum(np.ceil(before), old - 1)], axis=1)
        return Taps(places.astype(np.int64), np.stack([1 - share, share], axis=1))
    # TensorFlow has a table of 1024 distances.
    share = np.rint(share * 1024) / 1024
    distances = np.stack([1 + share, share, 1 - share, 2 - share], axis=1)
    return _inside(low[:, None] + np.arange(-1, 3), _cubic(distances), old)


def _inside(places: np.ndarray, weights: np.ndarray, old: int) -> Taps:
    """Returns taps of which those outside of an image have no weight, and the others all of it."""
    weights = np.where((places >= 0) & (places < old), weights, 0)
    total = weights.sum(axis=1, keepdims=True)
    weights = weights / np.where(np.abs(total) < 1e-30, 1, total)
    return Taps(np.clip(places, 0, old - 1), weights.astype(np.float32))


def _by_kernel(old: int, new: int, kernel: _Kernel, antialias: bool) -> Taps:
    inverse = np.float32(1) / np.float32(new / old)
    wider = max(float(inverse), 1.0) if antialias else 1.0
    reach = kernel.radius * wider
    centres = ((np.arange(new) + 0.5) * inverse).astype(np.float32)
    first = np.ceil(centres - reach - 0.5).astype(np.int64)
    places = first[:, None] + np.arange(2 * math.ceil(reach) + 1)
    distances = np.abs((places + 0.5 - centres[:, None]) / wider)
    return _inside(places, kernel.weight(distances), old)


def _area(old: int, new: int) -> Taps:
    scale = np.float32(old / new)
    start = np.arange(new, dtype=np.float32) * scale
    end = np.arange(1, new + 1, dtype=np.float32) * scale
    places = np.floor(start).astype(np.int64)[:, None] + np.arange(math.ceil(scale) + 1)
    overlap = np.minimum(places + 1, end[:, None]) - np.maximum(places, start[:, None])
    weights = np.maximum(overlap, 0) / scale
    return Taps(np.clip(places, 0, old - 1), weights.astype(np.float32))


def resize_with_pad(
    image: Image,
    target_height: int,
    target_width: int,
    method: str = ResizeMethod.BILINEAR,
    antialias: bool = False,
) -> Any:
    """Returns an image, or a batch of them, as large as fits, on a ground of zeros."""
    array = as_image(image, "resize_with_pad()")
    _checked_size((target_height, target_width))
    height, width = array.shape[-3:-1]
    ratio = max(np.float32(width / target_width), np.float32(height / target_height))
    new_height, new_width = np.float32(height) / ratio, np.float32(width) / ratio
    size = max(int(np.floor(new_height)), 1), max(int(np.floor(new_width)), 1)
    top = max(int(np.floor((target_height - new_height) / 2)), 0)
    left = max(int(np.floor((target_width - new_width) / 2)), 0)
    resized = resize(array, size, method, antialias=antialias)
    return pad_to_bounding_box(resized, top, left, target_height, target_width)
