"""Lines of text files, cut as `tf.data.TextLineDataset` cuts them."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicax._src.records import scan_lines
from replicax.errors import DataLossError

# Recorded from TensorFlow 2.21.
TEXTS: dict[bytes, list[bytes]] = {
    b"": [],
    b"\n": [b""],
    b"a": [b"a"],
    b"a\n": [b"a"],
    b"a\r\nb\r\n": [b"a", b"b"],
    b"a\rb\nc": [b"ab", b"c"],
    b"\n\n": [b"", b""],
    b"a\n\r": [b"a"],
    b"a\n\r\n": [b"a", b""],
    b"\r": [],
    b"a\r": [b"a"],
    b"a\n\r\r\r": [b"a"],
    b"a\x00b\n": [b"a\x00b"],
    b"a\r\r\nb": [b"a", b"b"],
}
PACK = {None: bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}


def read(path: Path, *args: Any, **options: Any) -> list[bytes]:
    return [line for lines in scan_lines(path, *args, **options) for line in lines]


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("text", TEXTS)
def test_lines_of_tensorflow(path: Path, text: bytes, compression: str | None):
    path.write_bytes(PACK[compression](text))
    for block_bytes in (1, 2, 3, 1000):
        assert read(path, compression, block_bytes) == TEXTS[text]


@given(st.text("ab\r\n", max_size=60), st.integers(1, 9))
def test_lines_do_not_depend_on_blocks(
    tmp_path_factory: pytest.TempPathFactory, text: str, block_bytes: int
):
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(text.encode())
    expected = text.replace("\r", "").encode().split(b"\n")
    if not expected[-1]:
        del expected[-1]
    assert read(path, None, block_bytes) == expected


def test_long_lines(path: Path):
    lines = [b"x" * 100_000, b"y", b"z" * 50_000]
    path.write_bytes(b"\n".join(lines))
    assert read(path, block_bytes=1000) == lines


def test_damaged_compression_loses_no_line_before_it(path: Path):
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-5])
    lines: list[bytes] = []
    with pytest.raises(DataLossError, match="is cut off") as info:
        for block in scan_lines(path, "GZIP"):
            lines += block
    assert lines == [b"line"] * 1000
    assert info.value.offset == 5000


def test_missing_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"no\.txt"):
        read(tmp_path / "no.txt")


def test_wrong_arguments(path: Path):
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="block_bytes=0"):
        read(path, block_bytes=0)
    with pytest.raises(ValueError, match="'LZ4' is not known"):
        read(path, "LZ4")


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_lines_before_damage_are_read_and_no_part_of_one(path: Path, compression: str):
    lines = [f"{number:06}".encode() for number in range(5000)]
    content = b"\n".join(lines)
    whole = bytearray(gzip.compress(content) if compression == "GZIP" else zlib.compress(content))
    whole[-1] ^= 0xFF  # of the checksum at the end
    path.write_bytes(whole)
    found: list[bytes] = []
    with pytest.raises(DataLossError, match="cannot be decompressed.*copy the file again"):
        for block in scan_lines(path, compression):
            found += block
    assert found == lines[:-1]
