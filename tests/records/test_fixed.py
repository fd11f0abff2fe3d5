"""Records of one length, as `tf.data.FixedLengthRecordDataset` reads them."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from replicax._src.records import scan_fixed
from replicax.errors import DataLossError

PACK = {None: bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}
# content, record_bytes, header_bytes, footer_bytes, and what TensorFlow 2.21 makes of it.
FILES = [
    (b"abcdefg", 2, 1, 0, [b"bc", b"de", b"fg"]),
    (b"abcdefg", 2, 1, 2, [b"bc", b"de"]),
    (b"", 2, 0, 0, []),
    (b"abc", 2, 3, 0, []),
    (b"abcdef", 3, 0, 0, [b"abc", b"def"]),
]
# The same, of the wrong size; the records that come before the error in a compressed file.
WRONG = [
    (b"abcdefg", 2, 0, 0, [b"ab", b"cd", b"ef"]),
    (b"abcdef", 2, 1, 2, [b"bc"]),
    (b"ab", 2, 3, 0, []),
    (b"abc", 2, 2, 2, []),
    (b"", 2, 1, 0, []),
]


def read(found: list[bytes], path: Path, *args: Any, **options: Any) -> list[bytes]:
    for records in scan_fixed(path, *args, **options):
        assert len(records)
        found += records.to_list()
    return found


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("case", FILES)
def test_records_of_tensorflow(path: Path, case: Any, compression: str | None):
    content, *sizes, expected = case
    path.write_bytes(PACK[compression](content))
    for block_bytes in (1, 3, 4, 1000):
        assert read([], path, *sizes, compression, block_bytes) == expected


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("case", WRONG)
def test_a_body_that_is_no_multiple(path: Path, case: Any, compression: str | None):
    content, *sizes, before = case
    path.write_bytes(PACK[compression](content))
    for block_bytes in (1, 1000):
        found: list[bytes] = []
        with pytest.raises(DataLossError, match="no whole number of them") as info:
            read(found, path, *sizes, compression, block_bytes)
        assert found == (before if compression else [])
        assert info.value.path == str(path) and info.value.offset is not None


def test_error_tells_all_sizes(path: Path):
    path.write_bytes(b"abcdef")
    with pytest.raises(DataLossError) as info:
        read([], path, 2, 1, 2)
    assert "6 bytes, less 1 of header and 2 of footer, leave 3 for records of 2" in str(info.value)
    assert info.value.offset == 3


def test_damaged_compression(path: Path):
    path.write_bytes(zlib.compress(bytes(1000))[:-6])
    with pytest.raises(DataLossError, match="is cut off"):
        read([], path, 10, compression_type="ZLIB")


@pytest.mark.parametrize(
    "sizes", [{"record_bytes": 0}, {"record_bytes": 1, "header_bytes": -1}], ids=str
)
def test_wrong_sizes(path: Path, sizes: dict[str, Any]):
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="at least 1"):
        list(scan_fixed(path, **sizes))
