"""Images from bytes: what Pillow reads, and what is refused."""

import importlib
import io
import threading
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.images import _coding

image = rx.image
PIL = pytest.importorskip("PIL.Image")
PICTURE = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)


def file_of(picture: np.ndarray, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    PIL.fromarray(picture).save(file, format, **options)
    return file.getvalue()


def test_formats_are_told_apart():
    assert np.array_equal(image.decode_image(file_of(PICTURE, "PNG")), PICTURE)
    assert np.array_equal(image.decode_image(file_of(PICTURE, "BMP")), PICTURE)
    assert image.decode_image(file_of(PICTURE, "JPEG")).shape == (6, 8, 3)
    assert np.array_equal(rx.io.decode_bmp(file_of(PICTURE, "BMP")), PICTURE)


def test_a_gif_has_frames():
    frames = [PIL.fromarray(PICTURE // (2 * number + 1)) for number in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert image.decode_gif(file.getvalue()).shape == (3, 6, 8, 3)
    assert image.decode_image(file.getvalue()).shape == (3, 6, 8, 3)
    assert image.decode_image(file.getvalue(), expand_animations=False).shape == (6, 8, 3)


def test_a_quality_changes_an_image():
    coarse = image.adjust_jpeg_quality(PICTURE, 5)
    assert coarse.shape == PICTURE.shape and coarse.dtype == np.uint8
    assert np.abs(coarse.astype(int) - PICTURE).mean() > 5
    floats = image.adjust_jpeg_quality(PICTURE.astype(np.float32) / 255, 90)
    assert floats.dtype == np.float32 and 0 <= floats.min() and floats.max() <= 1


def test_an_image_that_is_cut_off_is_refused_unless_asked_for():
    large = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    content = file_of(large, "JPEG")[:2000]
    with pytest.raises(ValueError, match="the image is damaged"):
        image.decode_jpeg(content)
    assert image.decode_jpeg(content, try_recover_truncated=True).shape == (64, 64, 3)


def test_bytes_that_are_no_image_are_refused():
    with pytest.raises(ValueError, match="cannot read these 4 bytes as JPEG or PNG.*b'text'"):
        image.decode_image(b"text")
    with pytest.raises(TypeError, match=r"takes the bytes of a file; got str.*rx.io.read_file"):
        image.decode_png("picture.png")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="convert_image_dtype"):
        image.encode_png(PICTURE.astype(np.float32))


def test_without_pillow_it_is_named(monkeypatch: pytest.MonkeyPatch):
    find = importlib.import_module

    def without_pillow(name: str, *rest: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return find(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without_pillow)
    with pytest.raises(ImportError, match=r"pip install \"replicax\[image\]\""):
        image.decode_png(b"")


def test_a_gif_of_more_pixels_than_allowed_is_refused(monkeypatch: pytest.MonkeyPatch):
    file = io.BytesIO()
    frames = [PIL.fromarray(np.full((6, 8), level, np.uint8)) for level in range(3)]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    monkeypatch.setattr(_coding, "_MOST_PIXELS", 100)
    with pytest.raises(ValueError, match="3 images of 6 x 8 pixels, more than 100"):
        image.decode_gif(file.getvalue())
    assert image.decode_image(file.getvalue(), expand_animations=False).shape == (6, 8, 3)


def test_an_image_of_16_bits_that_is_cut_off_is_damaged():
    content = image.encode_png(np.arange(10000, dtype=np.uint16).reshape(100, 100, 1))
    with pytest.raises(ValueError, match="the image is damaged"):
        image.decode_png(content[: len(content) // 2], dtype=np.uint16)


@pytest.mark.parametrize("format", ["GIF", "PNG", "JPEG", "BMP"])
def test_wherever_a_file_is_cut_off_it_is_one_error(format: str):
    frames = [PIL.fromarray(np.full((6, 8), level, np.uint8)) for level in range(3)]
    file = io.BytesIO()
    more = {"save_all": True, "append_images": frames[1:]} if format == "GIF" else {}
    frames[0].save(file, format, **more)
    content = file.getvalue()
    refused = 0
    for end in range(len(content)):
        try:
            image.decode_image(content[:end])
        except ValueError:
            refused += 1
    assert refused > len(content) // 2


def test_recovering_in_two_threads_leaves_other_decoding_as_it_was():
    files: Any = importlib.import_module("PIL.ImageFile")
    before = files.LOAD_TRUNCATED_IMAGES
    first_loads, second_may_end = threading.Event(), threading.Event()

    class Picture:
        def __init__(self, began: threading.Event, may_end: threading.Event) -> None:
            self.began, self.may_end = began, may_end

        def load(self) -> None:
            self.began.set()
            self.may_end.wait(60)

    second_loads = threading.Event()
    pictures = [Picture(first_loads, threading.Event()), Picture(second_loads, second_may_end)]
    threads = [threading.Thread(target=_coding._what_there_is, args=(each,)) for each in pictures]
    threads[0].start()
    first_loads.wait(60)
    threads[1].start()
    assert not second_loads.wait(0.05), "it waits for the first"
    pictures[0].may_end.set()
    threads[0].join()
    second_may_end.set()
    threads[1].join()
    assert files.LOAD_TRUNCATED_IMAGES == before


def test_frames_of_a_gif_are_as_large_as_the_image():
    head = b"GIF89a" + bytes([1, 0, 1, 0, 0x80, 0, 0, 0, 0, 0, 255, 255, 255])
    frames = [bytes([0x2C, x, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44 + 8 * x, 1, 0]) for x in (0, 1)]
    many = image.decode_gif(head + frames[0] * 20_000 + b"\x3b")
    assert many.shape == (20_000, 1, 1, 3) and not many.any()
    with pytest.raises(ValueError, match="frame 1 is larger than the image"):
        image.decode_gif(head + b"".join(frames) + b"\x3b")
