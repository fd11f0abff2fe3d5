"""Images: what becomes of their numbers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .._library import Library
from .._observation import Seen
from .._pipelines import HOST_ONLY
from .._registry import scenario

Make = Callable[[Any], Any]

FLOATS = np.random.default_rng(0).random((5, 7, 3), np.float32).round(3)
BYTES = np.random.default_rng(1).integers(0, 256, (4, 5, 3)).astype(np.uint8)
SMALL = np.arange(12, dtype=np.float32).reshape(3, 4, 1)
BATCH = np.stack([SMALL, SMALL[::-1]])
SIZES = {"smaller": (3, 4), "larger": (8, 9), "one": (1, 1), "the same": (5, 7), "mixed": (9, 3)}
METHODS = (
    *("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian"),
    "mitchellcubic",
)


def _seen(lib: Library, value: Any) -> Any:
    """Describes an image: its shape, and its numbers in a row."""
    array = np.asarray(lib.on_host(value))
    flat = array.astype(np.float64).round(7) if array.dtype.kind == "f" else array
    return Seen(dtype=array.dtype.name, shape=list(array.shape), numbers=flat.ravel().tolist())


@scenario(method=METHODS, size=tuple(SIZES), antialias=(False, True), eager_only=HOST_ONLY)
def resized(lib: Library, method: str, size: str, antialias: bool) -> Any:
    return _seen(lib, lib.image.resize(FLOATS, SIZES[size], method, antialias=antialias))


CHANGES: dict[str, Make] = {
    "resize bytes": lambda image: image.resize(BYTES, [3, 3]),
    "resize bytes to the nearest": lambda image: image.resize(BYTES, [6, 3], "nearest"),
    "resize a batch": lambda image: image.resize(BATCH, [2, 6]),
    "resize in proportion": lambda image: image.resize(FLOATS, [9, 9], preserve_aspect_ratio=True),
    "resize in proportion, smaller": lambda image: image.resize(
        FLOATS, [2, 9], preserve_aspect_ratio=True
    ),
    "resize_with_pad": lambda image: image.resize_with_pad(SMALL, 6, 5),
    "resize_with_pad, wide": lambda image: image.resize_with_pad(SMALL, 3, 9),
    "resize_with_pad, smaller": lambda image: image.resize_with_pad(SMALL, 2, 2, "area", True),
    "resize_with_crop_or_pad": lambda image: image.resize_with_crop_or_pad(SMALL, 2, 7),
    "resize_with_crop_or_pad, odd": lambda image: image.resize_with_crop_or_pad(SMALL, 6, 1),
    "resize_with_crop_or_pad of a batch": lambda image: image.resize_with_crop_or_pad(BATCH, 4, 3),
    "central_crop": lambda image: image.central_crop(FLOATS, 0.5),
    "central_crop of all": lambda image: image.central_crop(FLOATS, 1.0),
    "central_crop of a batch": lambda image: image.central_crop(BATCH, 0.4),
    "crop": lambda image: image.crop_to_bounding_box(FLOATS, 1, 2, 3, 4),
    "pad": lambda image: image.pad_to_bounding_box(SMALL, 1, 2, 5, 7),
    "pad a batch": lambda image: image.pad_to_bounding_box(BATCH, 0, 1, 3, 5),
    "flip_left_right": lambda image: image.flip_left_right(SMALL),
    "flip_left_right of a batch": lambda image: image.flip_left_right(BATCH),
    "flip_up_down": lambda image: image.flip_up_down(SMALL),
    "transpose": lambda image: image.transpose(SMALL),
    **{f"rot90 {k}": lambda image, k=k: image.rot90(SMALL, k) for k in (0, 1, 2, 3, 5)},
    "rot90 of a batch": lambda image: image.rot90(BATCH),
    "brightness": lambda image: image.adjust_brightness(FLOATS, 0.25),
    "brightness of bytes": lambda image: image.adjust_brightness(BYTES, 0.25),
    "brightness of bytes, less": lambda image: image.adjust_brightness(BYTES, -0.5),
    "contrast": lambda image: image.adjust_contrast(FLOATS, 1.7),
    "contrast of bytes": lambda image: image.adjust_contrast(BYTES, 2.5),
    "contrast of a batch": lambda image: image.adjust_contrast(BATCH, 0.3),
    "gamma": lambda image: image.adjust_gamma(FLOATS, 0.7, 0.9),
    "saturation": lambda image: image.adjust_saturation(FLOATS, 0.4),
    "saturation, more": lambda image: image.adjust_saturation(FLOATS, 3.0),
    "saturation of bytes": lambda image: image.adjust_saturation(BYTES, 0.6),
    **{
        f"hue {delta}": lambda image, delta=delta: image.adjust_hue(FLOATS, delta)
        for delta in (0.0, 0.2, -0.3, 0.9)
    },
    "hue of bytes": lambda image: image.adjust_hue(BYTES, 0.1),
    "rgb_to_grayscale": lambda image: image.rgb_to_grayscale(FLOATS),
    "rgb_to_grayscale of bytes": lambda image: image.rgb_to_grayscale(BYTES),
    "grayscale_to_rgb": lambda image: image.grayscale_to_rgb(image.flip_up_down(SMALL)),
    "rgb_to_hsv": lambda image: image.rgb_to_hsv(FLOATS),
    "hsv_to_rgb": lambda image: image.hsv_to_rgb(FLOATS),
    "standardized": lambda image: image.per_image_standardization(FLOATS),
    "standardized bytes": lambda image: image.per_image_standardization(BYTES),
    "standardized even": lambda image: image.per_image_standardization(np.full((2, 2, 1), 3.0)),
    "standardized batch": lambda image: image.per_image_standardization(BATCH),
    **{
        f"{have} to {want}": lambda image, have=have, want=want: image.convert_image_dtype(
            _numbers(have), want, saturate=True
        )
        for have in ("uint8", "uint16", "int16", "int32", "float32")
        for want in ("uint8", "uint16", "int16", "float32", "float16")
        if want != "float16" or have in ("uint8", "float32")  # what has no room for the others
    },
}

REFUSED: dict[str, Make] = {
    "resize to one number": lambda image: image.resize(FLOATS, [3]),
    "resize to nothing": lambda image: image.resize(FLOATS, [3, 0]),
    "resize of a row": lambda image: image.resize(np.zeros(3, np.float32), [3, 3]),
    "resize by no method": lambda image: image.resize(FLOATS, [3, 3], "best"),
    "crop too much": lambda image: image.crop_to_bounding_box(FLOATS, 3, 2, 3, 4),
    "crop from before": lambda image: image.crop_to_bounding_box(FLOATS, -1, 2, 3, 4),
    "pad too little": lambda image: image.pad_to_bounding_box(SMALL, 1, 2, 3, 4),
    "central_crop of nothing": lambda image: image.central_crop(FLOATS, 0.0),
    "central_crop of more": lambda image: image.central_crop(FLOATS, 1.5),
    "saturation between nothing": lambda image: image.random_saturation(FLOATS, 0.5, 0.5),
    "contrast below 0": lambda image: image.random_contrast(FLOATS, -0.5, 0.5),
    "hue too far": lambda image: image.random_hue(FLOATS, 0.6),
    "brightness below 0": lambda image: image.random_brightness(FLOATS, -0.6),
    "no image": lambda image: image.decode_image(b"nothing of the kind"),
    "no png": lambda image: image.decode_png(b"nothing of the kind"),
}


def _numbers(dtype: str) -> np.ndarray:
    if dtype == "float32":
        return np.array([0, 0.1, 0.5, 0.999, 1, 1.2, -0.3], np.float32)
    info = np.iinfo(dtype)
    return np.array([0, 1, info.max // 3, info.max - 1, info.max], dtype)


@scenario(case=tuple(CHANGES), eager_only=HOST_ONLY)
def changed(lib: Library, case: str) -> Any:
    return _seen(lib, CHANGES[case](lib.image))


@scenario(case=tuple(REFUSED), eager_only=HOST_ONLY)
def refused(lib: Library, case: str) -> Any:
    return lib.refuses(lambda: REFUSED[case](lib.image))


# Files that no library under test has written.


def _png(image: np.ndarray) -> bytes:
    height, width, channels = image.shape
    depth = 8 * image.dtype.itemsize
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    big = image.astype(image.dtype.newbyteorder(">"))
    rows = b"".join(b"\0" + row.tobytes() for row in big)

    def chunk(name: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + checksum

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


GREY, ALPHA = BYTES[..., :1], np.concatenate([BYTES, BYTES[..., :1]], axis=-1)
DEEP = (BYTES[..., :1].astype(np.uint16) * 250 + 3).astype(np.uint16)
DECODED: dict[str, Make] = {
    "grey": lambda image: image.decode_png(_png(GREY)),
    "colours": lambda image: image.decode_png(_png(BYTES)),
    "alpha": lambda image: image.decode_png(_png(ALPHA)),
    "alpha without": lambda image: image.decode_png(_png(ALPHA), channels=3),
    "grey as colours": lambda image: image.decode_png(_png(GREY), channels=3),
    "grey with alpha": lambda image: image.decode_png(_png(GREY), channels=4),
    "deep": lambda image: image.decode_png(_png(DEEP), dtype=np.uint16),
    "any": lambda image: image.decode_image(_png(BYTES)),
    "any as floats": lambda image: image.decode_image(_png(BYTES), dtype=np.float32),
    "any as colours": lambda image: image.decode_image(_png(GREY), channels=3),
    "encoded": lambda image: image.decode_png(image.encode_png(BYTES)),
    "encoded grey": lambda image: image.decode_png(image.encode_png(GREY, compression=9)),
}


@scenario(case=tuple(DECODED), eager_only=HOST_ONLY)
def decoded(lib: Library, case: str) -> Any:
    return _seen(lib, DECODED[case](lib.image))


@scenario(quality=(95, 40), downsampling=(True, False), eager_only=HOST_ONLY)
def through_a_jpeg(lib: Library, quality: int, downsampling: bool) -> Any:
    """How far numbers are from those before; libraries differ in the last bits of them."""
    ramp = np.linspace(0, 255, 16 * 16 * 3).reshape(16, 16, 3).astype(np.uint8)
    content = lib.image.encode_jpeg(ramp, quality=quality, chroma_downsampling=downsampling)
    found = np.asarray(lib.on_host(lib.image.decode_jpeg(content)))
    grey = np.asarray(lib.on_host(lib.image.decode_jpeg(content, channels=1)))
    half = np.asarray(lib.on_host(lib.image.decode_jpeg(content, ratio=2)))
    return {
        "shapes": [list(found.shape), list(grey.shape), list(half.shape)],
        "near": bool(np.abs(found.astype(int) - ramp).max() < (8 if quality == 95 else 40)),
        "is_jpeg": bool(lib.image.is_jpeg(lib.on_host(content))),
    }
