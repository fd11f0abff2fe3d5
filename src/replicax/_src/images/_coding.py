"""Images from and into the bytes of files, with Pillow, the extra `image`."""

from __future__ import annotations

import contextlib
import importlib
import io
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from replicax._src._typing import DTypeLike
from replicax._src.images._arrays_of import Image, convert_image_dtype

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's, by the number of channels
_FORMATS = ("JPEG", "PNG", "GIF", "BMP")
_MOST_PIXELS = 1 << 28
_recovering = threading.Lock()


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise ImportError(
            "Images are decoded and encoded with Pillow, which is not installed. Run "
            '`pip install "replicax[image]"`.'
        ) from None


def decode_image(
    contents: bytes,
    channels: int | None = None,
    dtype: DTypeLike = np.uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> np.ndarray:
    """Returns the image in the bytes of a JPEG, PNG, GIF or BMP file.

    Args:
      contents: of the file.
      channels: 1 for grey, 3 for colours, 4 with an alpha channel; 0 or None for what it has.
      dtype: uint8, uint16, or floats from 0 to 1.
      expand_animations: whether a GIF has a first dimension, its frames; its first frame otherwise.
    """
    picture = _opened(contents, "decode_image()")
    if picture.format == "GIF":
        read = _frames if expand_animations else _pixels
        return convert_image_dtype(read(picture, channels or 3, "decode_image()"), dtype)
    if picture.format == "PNG" and np.dtype(dtype) == np.uint16:
        return decode_png(contents, channels or 0, np.uint16)
    return convert_image_dtype(_pixels(picture, channels or 0, "decode_image()"), dtype)


def decode_jpeg(
    contents: bytes,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> np.ndarray:
    """Returns the image in the bytes of a JPEG file, as uint8; other formats are taken as well.

    Args:
      contents: of the file.
      channels: 1 for grey, 3 for colours; 0 for what it has.
      ratio: 2, 4 or 8 for an image of a half, a quarter or an eighth of the size.
      fancy_upscaling: kept for ported code, as `acceptable_fraction` and `dct_method` are.
      try_recover_truncated: whether to take what there is of a file that is cut off.
    """
    if ratio not in (1, 2, 4, 8):
        raise ValueError(f"decode_jpeg() takes a ratio of 1, 2, 4 or 8; got {ratio!r}.")
    picture = _opened(contents, "decode_jpeg()")
    if ratio > 1:
        width, height = picture.size
        picture.draft(None, (-(-width // ratio), -(-height // ratio)))
    return _pixels(picture, channels, "decode_jpeg()", try_recover_truncated)


def decode_png(
    contents: bytes, channels: int = 0, dtype: DTypeLike = np.uint8, name: str | None = None
) -> np.ndarray:
    """Returns the image in the bytes of a PNG file; other formats are taken as well.

    Args:
      contents: of the file.
      channels: 1 for grey, 2 with an alpha channel, 3 for colours, 4 with an alpha channel; 0 for
        what it has.
      dtype: uint8 or uint16.
    """
    picture = _opened(contents, "decode_png()")
    wanted = np.dtype(dtype)
    if wanted not in (np.uint8, np.uint16):
        raise TypeError(f"decode_png() takes the dtypes uint8 and uint16; got {dtype!r}.")
    if picture.mode.startswith("I"):  # grey, of 16 bits
        if channels not in (0, 1):
            raise ValueError("decode_png(): an image of 16 bits is read with channels 0 or 1.")
        deep = _array(picture, "decode_png()").astype(np.uint16)[..., None]
        return deep if wanted == np.uint16 else (deep >> 8).astype(np.uint8)
    return convert_image_dtype(_pixels(picture, channels, "decode_png()"), wanted)


def decode_gif(contents: bytes, name: str | None = None) -> np.ndarray:
    """Returns the frames in the bytes of a GIF file, as uint8 with three channels."""
    return _frames(_opened(contents, "decode_gif()", ("GIF",)), 3, "decode_gif()")


def decode_bmp(contents: bytes, channels: int = 0, name: str | None = None) -> np.ndarray:
    """Returns the image in the bytes of a BMP file, as uint8."""
    return _pixels(_opened(contents, "decode_bmp()", ("BMP",)), channels, "decode_bmp()")


def is_jpeg(contents: bytes, name: str | None = None) -> bool:
    """Returns whether bytes begin as a JPEG file does."""
    return _as_bytes(contents, "is_jpeg()")[:3] == b"\xff\xd8\xff"


def _as_bytes(contents: object, operation: str) -> bytes:
    if isinstance(contents, np.ndarray) and contents.ndim == 0:
        contents = contents.item()
    if not isinstance(contents, bytes):
        raise TypeError(
            f"{operation} takes the bytes of a file; got {type(contents).__name__}: "
            f"{contents!r:.60}. Read it first: rx.io.read_file(name)."
        )
    return contents


def _opened(contents: bytes, operation: str, formats: tuple[str, ...] = _FORMATS) -> Any:
    pillow, content = _pillow(), _as_bytes(contents, operation)
    try:
        picture = pillow.open(io.BytesIO(content), formats=formats)
    except Exception as error:
        raise ValueError(
            f"{operation} cannot read these {len(content)} bytes as {' or '.join(formats)}: they "
            f"begin with {content[:8]!r} ({error})."
        ) from error
    _require_few_pixels(picture.size, 1, operation)
    return picture


def _require_few_pixels(size: tuple[int, int], frames: int, operation: str) -> None:
    width, height = size
    if frames * width * height > _MOST_PIXELS:
        count = f"{frames} images" if frames > 1 else "an image"
        raise ValueError(
            f"{operation}: the file claims {count} of {height} x {width} pixels, more than "
            f"{_MOST_PIXELS} together."
        )


@contextlib.contextmanager
def _named_damage(operation: str) -> Iterator[None]:
    """Turns what Pillow raises of a damaged file, which can be anything, into a `ValueError`."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"{operation}: the image is damaged ({error}).") from error


def _array(picture: object, operation: str) -> np.ndarray:
    with _named_damage(operation):
        return np.array(picture)


def _pixels(picture: Any, channels: int, operation: str, truncated: bool = False) -> np.ndarray:
    if channels not in (0, *_MODES):
        raise ValueError(f"{operation} takes 0, 1, 3 or 4 channels; got {channels!r}.")
    with _named_damage(operation):
        if truncated:
            picture = _what_there_is(picture)
        mode = _MODES.get(channels) or _own_mode(picture)
        if picture.format == "JPEG" and mode == "L" and picture.mode == "YCbCr":
            picture.draft("L", None)
        array = np.array(picture if picture.mode == mode else picture.convert(mode))
    return array if array.ndim == 3 else array[..., None]


def _what_there_is(picture: Any) -> Any:
    files: Any = importlib.import_module("PIL.ImageFile")
    with _recovering:  # else two threads would leave it as it is meanwhile
        before, files.LOAD_TRUNCATED_IMAGES = files.LOAD_TRUNCATED_IMAGES, True
        try:
            picture.load()
        finally:
            files.LOAD_TRUNCATED_IMAGES = before
    return picture


def _own_mode(picture: Any) -> str:
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return picture.mode
    if picture.mode == "P":
        return "RGBA" if "transparency" in picture.info else "RGB"
    return "L" if picture.mode in ("1", "I", "I;16", "F") else "RGB"


def _frames(picture: Any, channels: int, operation: str) -> np.ndarray:
    with _named_damage(operation):
        count = picture.n_frames
    _require_few_pixels(picture.size, count, operation)
    width, height = picture.size
    frames = np.empty((count, height, width, channels), np.uint8)
    for number in range(count):
        with _named_damage(operation):
            picture.seek(number)
        frame = _pixels(picture, channels, operation)
        if frame.shape != frames.shape[1:]:
            raise ValueError(
                f"{operation}: the image is damaged (frame {number} is larger than the image)."
            )
        frames[number] = frame
    return frames


# ------------------------------------------------------------------ encoding


def encode_jpeg(
    image: Image,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str = "",
    name: str | None = None,
) -> bytes:
    """Returns the bytes of a JPEG file of an image of uint8.

    Args:
      image: of height, width, and 1 or 3 channels.
      format: "", "grayscale" or "rgb".
      quality: from 0 to 100.
      progressive: whether a coarse image comes first.
      optimize_size: whether to take longer for fewer bytes.
      chroma_downsampling: whether colours have half the size.
      density_unit: of the pixels per inch ("in") or centimetre ("cm") that follow.
    """
    array = _to_encode(image, "encode_jpeg()", (np.uint8,), (1, 3))
    if format and {"grayscale": 1, "rgb": 3}.get(format) != array.shape[-1]:
        raise ValueError(f"encode_jpeg(): {array.shape[-1]} channel(s) are no {format!r}.")
    if not 0 <= quality <= 100:
        raise ValueError(f"encode_jpeg() takes a quality from 0 to 100; got {quality!r}.")
    factor = 2.54 if density_unit == "cm" else 1
    return _encoded(
        array,
        "JPEG",
        quality=quality,
        progressive=progressive,
        optimize=optimize_size,
        subsampling=2 if chroma_downsampling else 0,
        dpi=(int(x_density * factor), int(y_density * factor)),
    )


def encode_png(image: Image, compression: int = -1, name: str | None = None) -> bytes:
    """Returns the bytes of a PNG file of an image of uint8, or a grey one of uint16.

    Args:
      image: of height, width, and 1 to 4 channels.
      compression: from 0, none, to 9; -1 for what is usual.
    """
    array = _to_encode(image, "encode_png()", (np.uint8, np.uint16), (1, 2, 3, 4))
    if array.dtype == np.uint16 and array.shape[-1] > 1:
        raise ValueError("encode_png() writes uint16 with one channel; convert it to uint8.")
    level = {} if compression < 0 else {"compress_level": compression}
    return _encoded(array, "PNG", **level)


def _to_encode(
    image: Image, operation: str, dtypes: tuple[Any, ...], channels: tuple[int, ...]
) -> np.ndarray:
    array = np.asarray(image)
    if array.dtype not in dtypes:
        raise TypeError(
            f"{operation} takes {' or '.join(np.dtype(each).name for each in dtypes)}; got "
            f"{array.dtype}. Convert it: rx.image.convert_image_dtype(image, np.uint8)."
        )
    if array.ndim != 3 or array.shape[-1] not in channels or 0 in array.shape:
        raise ValueError(
            f"{operation} takes an image of height, width and one of {channels} channels; got the "
            f"shape {array.shape}."
        )
    return array


def _encoded(array: np.ndarray, format: str, **options: object) -> bytes:
    pillow, file = _pillow(), io.BytesIO()
    picture = pillow.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
    picture.save(file, format, **options)
    return file.getvalue()


def adjust_jpeg_quality(
    image: Image, jpeg_quality: int, dct_method: str = "", name: str | None = None
) -> np.ndarray:
    """Returns an image as it comes back from a JPEG file of some quality."""
    array = np.asarray(image)
    content = encode_jpeg(convert_image_dtype(array, np.uint8, saturate=True), "", jpeg_quality)
    return convert_image_dtype(decode_jpeg(content, array.shape[-1]), array.dtype, saturate=True)
