"""Reading TFRecord files: whole, in blocks of any size, damaged in every possible place."""

import gzip
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replicax._src._checksums import crc32c, masked
from replicax._src.records import TFRecordWriter, scan_tfrecords
from replicax._src.records._frames import of_lengths, plain
from replicax._src.records._native import Library
from replicax.errors import DataLossError

# What TensorFlow's writer writes for b"abc", b"" and b"defgh".
CONTENTS = [b"abc", b"", b"defgh"]
FILE = (
    b"\x03\x00\x00\x00\x00\x00\x00\x00\xb0\x99I\x0eabcnW\xf1!"
    b"\x00\x00\x00\x00\x00\x00\x00\x00)\x03\x98\x07\xd8\xea\x82\xa2"
    b"\x05\x00\x00\x00\x00\x00\x00\x00\xea\xb2\x04>defgh\x80Ub}"
)
BEGINS = [0, 19, 35]
BLOCKS = [1, 13, 20, 37, 1000]


def read(path: Any, *args: Any, **options: Any) -> tuple[list[bytes], str | None]:
    """All records before an error, and its text."""
    contents: list[bytes] = []
    try:
        for records in scan_tfrecords(path, *args, **options):
            assert len(records)
            contents += records.to_list()
    except DataLossError as error:
        assert str(path) in str(error) and error.path == str(path)
        if "begin" in str(error) or "corrupted" in str(error):
            assert f"byte {error.offset}" in str(error)
        return contents, str(error)
    return contents, None


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("verify", [True, False])
def test_file_of_tensorflow(path: Path, native: bool, block_bytes: int, verify: bool):
    path.write_bytes(FILE)
    options = {"block_bytes": block_bytes, "verify": verify}
    assert read(path, native=native, **options) == (CONTENTS, None)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_compressed_file(path: Path, native: bool, compression: str, block_bytes: int):
    path.write_bytes({"GZIP": gzip.compress, "ZLIB": zlib.compress}[compression](FILE * 20))
    found = read(path, compression, block_bytes=block_bytes, native=native)
    assert found == (CONTENTS * 20, None)


def test_empty_file(path: Path, native: bool):
    path.write_bytes(b"")
    assert read(path, native=native) == ([], None)
    assert read(path, "GZIP", native=native) == ([], None)


def test_many_records_and_large_ones(path: Path, native: bool):
    rng = random.Random(0)
    contents = [b""] * 20_000 + [rng.randbytes(rng.choice([1, 30, 3000])) for _ in range(200)]
    contents[500:500] = [rng.randbytes(100_000), b"after"]
    with TFRecordWriter(path) as writer:
        for content in contents:
            writer.write(content)
    for options in ({}, {"block_bytes": 5000}, {"block_bytes": 70}):
        assert read(path, native=native, **options) == (contents, None)


@pytest.mark.parametrize("size", range(len(FILE)))
def test_cut_off_anywhere(path: Path, native: bool, size: int):
    path.write_bytes(FILE[:size])
    complete = sum(begin + 16 + len(c) <= size for begin, c in zip(BEGINS, CONTENTS))
    for block_bytes in BLOCKS:
        for verify in (True, False):
            contents, error = read(path, block_bytes=block_bytes, verify=verify, native=native)
            assert contents == CONTENTS[:complete]
            if size in BEGINS:
                assert error is None
            else:
                assert (
                    error is not None
                    and f"ends in the middle of the record number {complete}" in error
                )


@pytest.mark.parametrize("place", range(len(FILE)))
def test_a_flipped_bit_anywhere(path: Path, native: bool, place: int):
    number = max(i for i, begin in enumerate(BEGINS) if begin <= place)
    for bit in range(8):
        damaged = bytearray(FILE)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        for block_bytes in (13, 1000):
            contents, error = read(path, block_bytes=block_bytes, native=native)
            assert contents == CONTENTS[:number]
            what = "length" if place < BEGINS[number] + 12 else "content"
            assert error is not None
            assert f"record number {number}, at byte {BEGINS[number]}" in error
            assert f"its {what} does not match" in error


def test_damage_is_read_without_verifying(path: Path, native: bool):
    damaged = bytearray(FILE)
    damaged[13] ^= 1
    path.write_bytes(damaged)
    assert read(path, verify=False, native=native)[0][1:] == CONTENTS[1:]


def test_a_large_record_that_is_cut_off(path: Path, native: bool):
    with TFRecordWriter(path) as writer:
        writer.write(bytes(1000))
    whole = path.read_bytes()
    assert read(path, block_bytes=50, native=native) == ([bytes(1000)], None)
    path.write_bytes(whole[:-1])
    assert "in the middle" in (read(path, block_bytes=50, native=native)[1] or "")


def test_enormous_length_is_not_believed(path: Path, native: bool):
    path.write_bytes(b"\xff" * 7 + b"\x7f" + bytes(100))
    assert "is corrupted" in (read(path, native=native)[1] or "")
    assert "in the middle" in (read(path, verify=False, native=native)[1] or "")


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("length", [2**40, 2**62, 2**63 - 16, 2**63, 2**64 - 16, 2**64 - 1])
def test_absurd_length_with_a_true_checksum(
    path: Path, native: bool, compression: str, length: int
):
    head = length.to_bytes(8, "little")
    content = FILE + head + masked(crc32c()(head)).to_bytes(4, "little") + bytes(60)
    path.write_bytes(compressed(compression, content) if compression else content)
    for block_bytes in (1, 1 << 19):
        found, error = read(path, compression, block_bytes=block_bytes, native=native)
        assert found == CONTENTS
        assert "in the middle of the record number 3" in (error or "")


def test_text_file_is_recognised(path: Path, native: bool):
    path.write_bytes(b"just a text\n" * 5)
    with pytest.raises(DataLossError, match="is this a TFRecord file at all"):
        list(scan_tfrecords(path, native=native))


def test_damaged_compression(path: Path, native: bool):
    whole = gzip.compress(FILE * 1000, mtime=0)
    path.write_bytes(whole[:-9])
    contents, error = read(path, "GZIP", native=native)
    assert contents == (CONTENTS * 1000)[: len(contents)] and len(contents) > 1000
    assert error is not None and "the compressed data is cut off" in error
    path.write_bytes(whole + b"junk")
    contents, error = read(path, "GZIP", native=native)
    assert contents == CONTENTS * 1000 and "cannot be decompressed" in (error or "")
    path.write_bytes(FILE)
    error = read(path, "ZLIB", native=native)[1]
    assert error is not None and "read as ZLIB: check `compression_type`" in error


def test_compressed_file_read_as_plain(path: Path, native: bool):
    path.write_bytes(gzip.compress(FILE))
    with pytest.raises(DataLossError, match="is its `compression_type` None"):
        list(scan_tfrecords(path, native=native))


def test_missing_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"no-such\.tfrecord.*Check the path"):
        list(scan_tfrecords(tmp_path / "no-such.tfrecord"))
    with pytest.raises(FileNotFoundError, match="is a directory. Name the files"):
        list(scan_tfrecords(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"There is no file '\*\.tfrecord' in /.*glob"):
        list(scan_tfrecords("*.tfrecord"))


def test_wrong_arguments(path: Path):
    path.write_bytes(FILE)
    with pytest.raises(ValueError, match="'gzip' is not known.*None, '', 'GZIP', 'ZLIB'"):
        list(scan_tfrecords(path, "gzip"))
    with pytest.raises(TypeError, match="Received int: 3"):
        list(scan_tfrecords(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="block_bytes=0"):
        list(scan_tfrecords(path, block_bytes=0))


@pytest.mark.parametrize("name", [str, bytes, np.array], ids=["str", "bytes", "array"])
def test_kinds_of_file_names(path: Path, name: Any):
    path.write_bytes(FILE)
    given = str(path).encode() if name is bytes else name(str(path))
    assert [r.to_list() for r in scan_tfrecords(given)] == [CONTENTS]


def test_file_is_closed_when_reading_stops_early(path: Path):
    path.write_bytes(FILE * 1000)
    scan = scan_tfrecords(path, block_bytes=100)
    next(scan)
    scan.close()  # type: ignore[attr-defined]  # an open file would warn, and warnings are errors


def test_checksums_of_lengths():
    lengths = np.array([0, 1, 255, 2**40 + 12345, 2**63 - 1], "<i8")
    rows = lengths.view(np.uint8).reshape(-1, 8)
    one_by_one = [crc32c()(row.tobytes()) for row in rows]
    assert of_lengths(rows).tolist() == one_by_one
    in_file = np.array([masked(crc) for crc in one_by_one], np.uint32)
    assert plain(in_file).tolist() == one_by_one


def test_checksums_of_the_compiled_helper(library: Library | None):
    if library is None:
        pytest.skip("there is no C compiler")
    rng = random.Random(1)
    for size in (*range(40), 1000, 4097):
        content = np.frombuffer(rng.randbytes(size) + b"x", np.uint8)
        address = content.ctypes.data
        expected = crc32c()(content[:-1].tobytes())
        assert library.crc(address, size) == library.crc_by_table(address, size) == expected


def compressed(compression: str, content: bytes) -> bytes:
    return {"GZIP": gzip.compress, "ZLIB": zlib.compress}[compression](content)


def readable(compression: str, content: bytes) -> bytes:
    """What can be decompressed, byte by byte, before damage."""
    member = zlib.decompressobj(31 if compression == "GZIP" else 15)
    found = b""
    try:
        for place in range(len(content)):
            found += member.decompress(content[place : place + 1])
    except zlib.error:
        pass
    return found


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("block_bytes", [37, 1 << 19])
def test_everything_before_damage_of_compressed_data_is_read(
    path: Path, native: bool, compression: str, block_bytes: int
):
    random.seed(7)
    records = [random.randbytes(20) + bytes(random.randrange(50)) for _ in range(1000)]
    with TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    content = path.read_bytes()
    whole = compressed(compression, content)
    counts: list[int] = []
    for place in (*range(len(whole) // 12, len(whole), len(whole) // 12), len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place : place + 4] = b"\xff" * len(damaged[place : place + 4])
        path.write_bytes(damaged)
        found, error = read(path, compression, block_bytes=block_bytes, native=native)
        before = readable(compression, bytes(whole[:place]))  # all of which is undamaged
        sizes = np.cumsum([len(record) + 16 for record in records])
        complete = int((sizes <= len(before)).sum())
        assert error is not None and found == records[: len(found)]
        assert len(found) >= complete > 0
        counts.append(len(found))
    assert counts == sorted(counts) and counts[-1] == 1000  # the checksum at the very end


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_everything_before_the_end_of_cut_off_data_is_read(
    path: Path, native: bool, compression: str
):
    content = FILE * 50
    whole = compressed(compression, content)
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        found, error = read(path, compression, block_bytes=16, native=native)
        before = len(readable(compression, whole[:size]))
        complete = before // len(FILE) * 3 + sum(before % len(FILE) >= end for end in (19, 35, 56))
        assert error is not None and len(found) == complete
        assert found == (CONTENTS * 50)[:complete]
