"""Parts of images, and images turned around."""

from __future__ import annotations

from typing import Any

from replicax._src.images._arrays_of import Image, as_image, module_of


def flip_left_right(image: Image) -> Any:
    """Returns an image, or a batch of them, as a mirror shows it."""
    return as_image(image, "flip_left_right()")[..., :, ::-1, :]


def flip_up_down(image: Image) -> Any:
    """Returns an image, or a batch of them, upside down."""
    return as_image(image, "flip_up_down()")[..., ::-1, :, :]


def transpose(image: Image, name: str | None = None) -> Any:
    """Returns an image, or a batch of them, with height and width exchanged."""
    return module_of(image).swapaxes(as_image(image, "transpose()"), -3, -2)


def rot90(image: Image, k: int = 1, name: str | None = None) -> Any:
    """Returns an image, or a batch of them, turned by 90 degrees to the left, `k` times."""
    return module_of(image).rot90(as_image(image, "rot90()"), int(k), axes=(-3, -2))


def crop_to_bounding_box(
    image: Image, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> Any:
    """Returns the part of an image, or of a batch of them, that begins at an offset."""
    array = as_image(image, "crop_to_bounding_box()")
    height, width = array.shape[-3:-1]
    if offset_height < 0 or offset_width < 0 or target_height <= 0 or target_width <= 0:
        raise ValueError(
            "crop_to_bounding_box() takes offsets of 0 or more and sizes above 0; got "
            f"{(offset_height, offset_width)} and {(target_height, target_width)}."
        )
    if offset_height + target_height > height or offset_width + target_width > width:
        raise ValueError(
            f"crop_to_bounding_box() was told to take {target_height} x {target_width} from "
            f"{(offset_height, offset_width)} on, and the image has {height} x {width}."
        )
    rows = slice(offset_height, offset_height + target_height)
    return array[..., rows, offset_width : offset_width + target_width, :]


def pad_to_bounding_box(
    image: Image, offset_height: int, offset_width: int, target_height: int, target_width: int
) -> Any:
    """Returns an image, or a batch of them, on a larger ground of zeros, at an offset."""
    array = as_image(image, "pad_to_bounding_box()")
    height, width = array.shape[-3:-1]
    below = target_height - offset_height - height
    right = target_width - offset_width - width
    if min(offset_height, offset_width, below, right) < 0:
        raise ValueError(
            f"pad_to_bounding_box() was told to put an image of {height} x {width} at "
            f"{(offset_height, offset_width)} on {target_height} x {target_width}, which does not "
            "fit."
        )
    before = [(0, 0)] * (array.ndim - 3)
    space = [*before, (offset_height, below), (offset_width, right), (0, 0)]
    return module_of(image).pad(array, space)


def resize_with_crop_or_pad(image: Image, target_height: int, target_width: int) -> Any:
    """Returns an image, or a batch of them, cropped or filled up with zeros around the centre."""
    array = as_image(image, "resize_with_crop_or_pad()")
    if target_height <= 0 or target_width <= 0:
        raise ValueError(
            f"resize_with_crop_or_pad() takes sizes above 0; got {(target_height, target_width)}."
        )
    height, width = array.shape[-3:-1]
    more_height, more_width = target_height - height, target_width - width
    cropped = crop_to_bounding_box(
        array,
        max(-more_height // 2, 0),
        max(-more_width // 2, 0),
        min(target_height, height),
        min(target_width, width),
    )
    offset = max(more_height // 2, 0), max(more_width // 2, 0)
    return pad_to_bounding_box(cropped, *offset, target_height, target_width)


def central_crop(image: Image, central_fraction: float) -> Any:
    """Returns the central part of an image, or of a batch of them: so much of each side."""
    array = as_image(image, "central_crop()")
    if not 0 < central_fraction <= 1:
        raise ValueError(
            f"central_crop() takes a fraction above 0, and at most 1; got {central_fraction!r}."
        )
    height, width = array.shape[-3:-1]
    top = int((height - height * central_fraction) / 2)
    left = int((width - width * central_fraction) / 2)
    return array[..., top : height - top, left : width - left, :]
