"""Images in compiled functions; the numbers themselves are recorded in `tests/parity`."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import replicax as rx

image = rx.image
PICTURE = np.random.default_rng(0).random((2, 6, 8, 3), np.float32)

CHANGES: dict[str, Callable[[Any], Any]] = {
    **{
        method: lambda x, method=method: image.resize(x, (4, 9), method, antialias=True)
        for method in ("bilinear", "nearest", "bicubic", "area", "lanczos3", "gaussian")
    },
    "bicubic without": lambda x: image.resize(x, (9, 4), "bicubic"),
    "with_pad": lambda x: image.resize_with_pad(x, 9, 9),
    "crop_or_pad": lambda x: image.resize_with_crop_or_pad(x, 4, 10),
    "central_crop": lambda x: image.central_crop(x, 0.5),
    "flip": lambda x: image.flip_up_down(image.flip_left_right(x)),
    "rot90": image.rot90,
    "brightness": lambda x: image.adjust_brightness(x, 0.2),
    "contrast": lambda x: image.adjust_contrast(x, 1.4),
    "saturation": lambda x: image.adjust_saturation(x, 0.4),
    "hue": lambda x: image.adjust_hue(x, 0.3),
    "grey": image.rgb_to_grayscale,
    "standardized": image.per_image_standardization,
    "bytes": lambda x: image.convert_image_dtype(x, np.uint8, saturate=True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_compiled_function_computes_the_same(name: str):
    wanted = CHANGES[name](PICTURE)
    assert type(wanted) is np.ndarray
    found = jax.jit(CHANGES[name])(PICTURE)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted.astype(np.float32), atol=2e-5)


def test_an_image_of_one_pixel_is_even():
    pixel = np.full((1, 1, 1), 3.0, np.float32)
    for method in ("bilinear", "bicubic", "area", "lanczos5", "mitchellcubic"):
        np.testing.assert_allclose(image.resize(pixel, (3, 5), method), 3.0, rtol=1e-6)
