"""Writing TFRecord files, the bytes of which are TensorFlow's."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.records import TFRecordOptions, TFRecordWriter, scan_tfrecords
from tests.records.test_tfrecord import CONTENTS, FILE
from tests.scripts import run_python


def write(path: Path, options: Any = None) -> bytes:
    with TFRecordWriter(path, options) as writer:
        for content in CONTENTS:
            writer.write(content)
    return path.read_bytes()


def read(path: Path, compression: str | None = None) -> list[bytes]:
    return [content for records in scan_tfrecords(path, compression) for content in records]


@pytest.mark.parametrize("options", [None, "", TFRecordOptions(), TFRecordOptions("")])
def test_bytes_are_those_of_tensorflow(path: Path, options: Any):
    assert write(path, options) == FILE


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed(path: Path, compression: str):
    for options in (
        compression,
        TFRecordOptions(compression),
        TFRecordOptions(compression, compression_level=9, window_bits=10, mem_level=1),
        TFRecordOptions(compression, compression_strategy=zlib.Z_HUFFMAN_ONLY),
    ):
        written = write(path, options)
        assert read(path, compression) == CONTENTS
        assert zlib.decompress(written, 47) == FILE


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_flushed_records_can_be_read(path: Path, compression: str):
    with TFRecordWriter(path, compression) as writer:
        writer.write(b"first")
        writer.flush()
        scan = scan_tfrecords(path, compression)
        assert next(scan).to_list() == [b"first"]
        scan.close()  # type: ignore[attr-defined]
        writer.write(b"second")
    assert read(path, compression) == [b"first", b"second"]


def test_closing_twice_and_writing_after(path: Path):
    writer = TFRecordWriter(path)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="has been closed"):
        writer.write(b"late")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("text", r"Received str: 'text'\. Write `record\.encode\(\)`"),
        (np.zeros(3), "Received ndarray.*SerializeToString"),
        (None, "Received NoneType"),
        (7, "Received int: 7"),
    ],
)
def test_only_bytes_are_records(path: Path, record: Any, words: str):
    with TFRecordWriter(path) as writer, pytest.raises(TypeError, match=words):
        writer.write(record)
    assert read(path) == []


def test_bytearray_and_numpy_bytes(path: Path):
    with TFRecordWriter(path) as writer:
        writer.write(bytearray(b"a"))  # type: ignore[arg-type]
        writer.write(np.bytes_(b"b"))
    assert read(path) == [b"a", b"b"]


@pytest.mark.parametrize("options", ["BZ2", "gzip", 3])
def test_unknown_compression(path: Path, options: Any):
    with pytest.raises(ValueError, match="one of None, '', 'GZIP', 'ZLIB'"):
        TFRecordWriter(path, options)
    assert not path.exists()


def test_numbers_that_zlib_does_not_take():
    with pytest.raises(ValueError, match="compression_level=99"):
        TFRecordOptions("GZIP", compression_level=99)
    with pytest.raises(ValueError, match="window_bits=3"):
        TFRecordOptions("ZLIB", window_bits=3)


def test_names_and_order_are_those_of_tensorflow():
    names = "compression_type flush_mode input_buffer_size output_buffer_size window_bits "
    names += "compression_level compression_method mem_level compression_strategy"
    assert list(rx.io.TFRecordOptions.__dataclass_fields__) == names.split()


FORKS = """
import os
import sys
import warnings

import replicax as rx

warnings.simplefilter("ignore")  # Python and JAX warn of forks
for compression in ("", "GZIP", "ZLIB"):
    with rx.io.TFRecordWriter("two" + compression, compression) as writer:
        writer.write(b"one")
        if not (child := os.fork()):
            sys.exit()  # which leaves the block, and frees the writer
        os.waitpid(child, 0)
        writer.write(b"two")
    writer = rx.io.TFRecordWriter("child" + compression, compression)
    writer.write(b"one")
    if not (child := os.fork()):
        writer.write(b"two")
        writer.close()
        sys.exit()
    os.waitpid(child, 0)
    os.close(writer._file.fileno())  # as a parent that is killed
    os.dup2(os.open(os.devnull, os.O_WRONLY), writer._file.fileno())
    for name in ("two", "child"):
        print(list(rx.data.TFRecordDataset(name + compression, compression)))
"""


def test_a_forked_child_writes_nothing_that_its_parent_has_written(tmp_path: Path):
    lines = run_python(["-c", FORKS], tmp_path).splitlines()
    assert lines == [str([b"one", b"two"])] * 6


def test_a_file_may_be_named_by_its_address(path: Path):
    with rx.io.TFRecordWriter(f"file://{path}") as writer:
        writer.write(b"one")
    assert list(rx.data.TFRecordDataset(f"file://{path}")) == [b"one"]
    assert list(rx.data.Dataset.list_files(f"file://{path}*")) == [str(path).encode()]
    with pytest.raises(ValueError, match="three slashes"):
        rx.io.TFRecordWriter("file://host/file")
