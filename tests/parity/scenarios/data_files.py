"""Data sets of files: lines, records, records of a fixed length, and the parsing of examples."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .._expected import raises
from .._library import Library
from .._pipelines import HOST_ONLY, element, elements, folder, numbers, write_records, write_text
from .._registry import ours, scenario

TEXTS = {
    "lines": b"a\nbc\n",
    "no newline at the end": b"a\nbc",
    "empty lines": b"\na\n\n\nb\n",
    "carriage returns": b"a\r\nb\r\n\r\nc",
    "carriage returns alone": b"a\rb\rc\n",
    "form feeds and separators": b"a\x0bb\x0cc\x1cd\x85e\n",
    "zeros": b"a\x00b\n\x00\n",
    "not UTF-8": b"\xff\xfe\ncaf\xe9\n",
    "UTF-8": "caf\u00e9\n\u2028\n".encode(),
    "nothing": b"",
    "one newline": b"\n",
    "spaces": b"  a  \n\t\n",
}


@scenario(case=tuple(TEXTS), eager_only=HOST_ONLY)
def lines(lib: Library, case: str) -> Any:
    with folder() as path:
        (path / "text").write_bytes(TEXTS[case])
        return elements(lib, lambda: lib.data.TextLineDataset(str(path / "text")))


def _text_file(path: Path, compression: str) -> str:
    text = b"one\ntwo\nthree\n"
    written = {"GZIP": gzip.compress, "ZLIB": zlib.compress}.get(compression, bytes)(text)
    (path / "text").write_bytes(written)
    return str(path / "text")


@scenario(compression=("GZIP", "ZLIB", ""), eager_only=HOST_ONLY)
def compressed_lines(lib: Library, compression: str) -> Any:
    with folder() as path:
        name = _text_file(path, compression)
        return elements(lib, lambda: lib.data.TextLineDataset(name, compression_type=compression))


@scenario(case=("GZIP of a plain file", "ZLIB of GZIP", "nonsense"), eager_only=HOST_ONLY)
def compressed_lines_refused(lib: Library, case: str) -> Any:
    with folder() as path:
        name = _text_file(path, "GZIP" if case == "ZLIB of GZIP" else "")
        compression = case.split()[0]
        return lib.refuses(
            lambda: list(lib.data.TextLineDataset(name, compression_type=compression))
        )


Names = Callable[[Library, list[str]], Any]
NAMES: dict[str, Names] = {
    "one name": lambda lib, names: names[0],
    "a list": lambda lib, names: names,
    "a list of one": lambda lib, names: names[:1],
    "the other order": lambda lib, names: names[::-1],
    "a data set of names": lambda lib, names: lib.data.Dataset.from_tensor_slices(names),
    "twice the same": lambda lib, names: [names[0], names[0]],
    "paths": lambda lib, names: [Path(name) for name in names],
    "no names": lambda lib, names: lib.data.Dataset.from_tensor_slices(names).take(0),
}
READERS = ("TextLineDataset", "TFRecordDataset")


def _write(lib: Library, path: Path, reader: str, *sizes: int) -> list[str]:
    files = numbers(*sizes)
    return write_text(path, files) if reader.startswith("Text") else write_records(lib, path, files)


@scenario(reader=READERS, case=tuple(NAMES), eager_only=HOST_ONLY)
def names_of_files(lib: Library, reader: str, case: str) -> Any:
    with folder() as path:
        names = _write(lib, path, reader, 2, 0, 3)
        return elements(lib, lambda: getattr(lib.data, reader)(NAMES[case](lib, names)))


@scenario(reader=READERS, eager_only=HOST_ONLY)
@ours(
    "files are read one after the other, in large blocks: as fast, and in one order",
    [{"string": str(number)} for number in range(9)],
)
def parallel_reads(lib: Library, reader: str) -> Any:
    with folder() as path:
        names = _write(lib, path, reader, 2, 3, 4)
        return elements(lib, lambda: getattr(lib.data, reader)(names, num_parallel_reads=2))


@scenario(reader=READERS, eager_only=HOST_ONLY)
def described(lib: Library, reader: str) -> Any:
    with folder() as path:
        names = _write(lib, path, reader, 2, 3)
        dataset = getattr(lib.data, reader)(names)
        return {
            "spec": lib.spec(dataset.element_spec),
            "cardinality": int(dataset.cardinality()),
            "length": lib.outcome(lambda: len(dataset)),
            "batch": lib.spec(dataset.batch(2).element_spec),
        }


@scenario(
    reader=(*READERS, "FixedLengthRecordDataset"),
    case=("missing", "a folder", "a number"),
    eager_only=HOST_ONLY,
)
def files_refused(lib: Library, reader: str, case: str) -> Any:
    with folder() as path:
        name = {"missing": str(path / "missing"), "a folder": str(path), "a number": 3}[case]
        length = (2,) if reader.startswith("Fixed") else ()
        return lib.refuses(lambda: list(getattr(lib.data, reader)(name, *length)))


@scenario(reader=READERS, eager_only=HOST_ONLY)
def a_file_that_is_missing(lib: Library, reader: str) -> Any:
    with folder() as path:
        return elements(lib, lambda: getattr(lib.data, reader)(str(path / "missing")))


@scenario(reader=READERS, eager_only=HOST_ONLY)
def pipelines_of_files(lib: Library, reader: str) -> Any:
    with folder() as path:
        names = _write(lib, path, reader, 3, 1, 4)
        read = getattr(lib.data, reader)
        files = lib.data.Dataset.from_tensor_slices(names)
        return {
            "batch": elements(lib, lambda: read(names).batch(3)),
            "repeat": elements(lib, lambda: read(names).repeat(2)),
            "shard": elements(lib, lambda: read(names).shard(2, 1)),
            "shard of names": elements(lib, lambda: read(files.shard(2, 1))),
            "take": elements(lib, lambda: read(names).skip(2).take(3)),
            "flat_map": elements(lib, lambda: files.flat_map(read)),
            "interleave": elements(lib, lambda: files.interleave(read, cycle_length=2)),
            "zip": elements(lib, lambda: lib.data.Dataset.zip((read(names), read(names)))),
            "shuffle": sorted(elements(lib, lambda: read(names).shuffle(9)), key=str),
            "cache": elements(lib, lambda: read(names).cache().repeat(2)),
            "enumerate": elements(lib, lambda: read(names).enumerate()),
            "window": elements(lib, lambda: read(names).window(3)),
            "concatenate": elements(lib, lambda: read(names).concatenate(read(names[0]))),
        }


@scenario(
    case=("in order", "shuffled", "one pattern", "nothing matches", "a name"), eager_only=HOST_ONLY
)
def list_files(lib: Library, case: str) -> Any:
    def bare(found: Any) -> list[str]:
        return [Path(lib.on_host(name).decode()).name for name in found]

    with folder() as path:
        write_text(path, numbers(1, 1, 1))
        (path / "other.csv").write_text("a")
        make = lib.data.Dataset.list_files
        match case:
            case "in order":
                patterns = [str(path / "lines-*.txt"), str(path / "*.csv")]
                return bare(make(patterns, shuffle=False))
            case "shuffled":
                return sorted(bare(make(str(path / "*.txt"), seed=3)))
            case "one pattern":
                return bare(make(str(path / "lines-[02].txt"), shuffle=False))
            case "a name":
                return bare(make(str(path / "other.csv")))
            case "nothing matches":
                return lib.refuses(lambda: list(make(str(path / "*.nothing"))))


# Records.

RECORDS = [b"a", b"", b"\x00\xff", b"x" * 300]


@scenario(compression=("", "GZIP", "ZLIB"), eager_only=HOST_ONLY)
def records(lib: Library, compression: str) -> Any:
    with folder() as path:
        names = write_records(lib, path, [RECORDS], compression)
        return elements(lib, lambda: lib.data.TFRecordDataset(names, compression_type=compression))


@scenario(eager_only=HOST_ONLY)
def bytes_of_records(lib: Library) -> Any:
    with folder() as path:
        (name,) = write_records(lib, path, [[b"abc", b""]])
        return Path(name).read_bytes().hex()


@scenario(compression=("GZIP", "ZLIB"), eager_only=HOST_ONLY)
def options_of_writers(lib: Library, compression: str) -> Any:
    with folder() as path:
        options = lib.io.TFRecordOptions(compression_type=compression)
        names = write_records(lib, path, [RECORDS], options)
        return elements(lib, lambda: lib.data.TFRecordDataset(names, compression_type=compression))


DAMAGE: dict[str, Callable[[bytearray], bytes]] = {
    "cut in a length": lambda written: bytes(written[:30]),
    "cut in a record": lambda written: bytes(written[:-6]),
    "cut in the last checksum": lambda written: bytes(written[:-2]),
    "another length": lambda written: bytes([written[0] ^ 1]) + bytes(written[1:]),
    "another record": lambda written: bytes(written[:12]) + b"?" + bytes(written[13:]),
    "another checksum": lambda written: bytes(written[:-1]) + bytes([written[-1] ^ 1]),
    "more at the end": lambda written: bytes(written) + b"more",
    "not records": lambda written: b"These are no records, but some text.\n" * 3,
    "empty": lambda written: b"",
}


def _ends(good: int) -> list[Any]:
    """What is read of a damaged file with so many good records."""
    read = [{"string": "first"}, {"string": "second"}][:good]
    return [*read, raises("ValueError"), raises("StopIteration")][:3]


@scenario(case=tuple(DAMAGE), eager_only=HOST_ONLY)
@ours("a file that ends within a length is damaged", _ends(1), case="cut in a length")
@ours("a file that ends within a length is damaged", _ends(2), case="more at the end")
def damaged_records(lib: Library, case: str) -> Any:
    with folder() as path:
        (name,) = write_records(lib, path, [[b"first", b"second"]])
        Path(name).write_bytes(DAMAGE[case](bytearray(Path(name).read_bytes())))
        iterator = iter(lib.data.TFRecordDataset(name))
        return [lib.outcome(lambda: element(lib, next(iterator))) for _ in range(3)]


@scenario(
    header=(0, 3), footer=(0, 2), length=(1, 4), compression=("", "GZIP"), eager_only=HOST_ONLY
)
def records_of_a_fixed_length(
    lib: Library, header: int, footer: int, length: int, compression: str
) -> Any:
    contents = b"HHH"[:header] + b"abcdefgh" + b"FF"[:footer]
    with folder() as path:
        name = path / "fixed"
        name.write_bytes(gzip.compress(contents) if compression else contents)
        return elements(
            lib,
            lambda: lib.data.FixedLengthRecordDataset(
                str(name), length, header, footer, compression_type=compression
            ),
        )


@scenario(case=("a rest", "length 0", "shorter than the header"), eager_only=HOST_ONLY)
def records_of_a_fixed_length_refused(lib: Library, case: str) -> Any:
    length, header = {"a rest": (3, 0), "length 0": (0, 0)}.get(case, (2, 100))
    with folder() as path:
        name = str(path / "fixed")
        Path(name).write_bytes(b"abcdefgh")
        return lib.refuses(lambda: list(lib.data.FixedLengthRecordDataset(name, length, header)))


# Examples, as bytes: what the protocol buffer `tf.train.Example` is on the wire.


def _varint(value: int) -> bytes:
    value %= 2**64
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _field(number: int, contents: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(contents)) + contents


def _feature(values: list[Any], packed: bool = True) -> bytes:
    if not values:
        return b""
    if isinstance(values[0], float):
        floats = [struct.pack("<f", value) for value in values]
        inner = _field(1, b"".join(floats)) if packed else b"".join(b"\x0d" + f for f in floats)
        return _field(2, inner)
    if isinstance(values[0], int):
        ints = [_varint(value) for value in values]
        inner = _field(1, b"".join(ints)) if packed else b"".join(b"\x08" + i for i in ints)
        return _field(3, inner)
    return _field(1, b"".join(_field(1, value) for value in values))


def _example(packed: bool = True, **features: list[Any]) -> bytes:
    entries = [
        _field(1, _field(1, name.encode()) + _field(2, _feature(values, packed)))
        for name, values in features.items()
    ]
    return _field(1, b"".join(entries))


EXAMPLES = {
    "packed": _example(x=[1.5, 2.5], n=[3], s=[b"text"]),
    "unpacked": _example(packed=False, x=[1.5, 2.5], n=[3], s=[b"text"]),
    "negative": _example(x=[-1.0, 0.0], n=[-5], s=[b""]),
    "large": _example(x=[1e30, 2.0], n=[2**40], s=[b"\x00\xff"]),
    "another order": _example(s=[b"text"], n=[3], x=[1.5, 2.5], more=[1, 2]),
}


def _features(lib: Library) -> dict[str, Any]:
    return {
        "x": lib.io.FixedLenFeature([2], np.float32),
        "n": lib.io.FixedLenFeature([], np.int64),
        "s": lib.io.FixedLenFeature([], lib.string),
    }


@scenario(case=tuple(EXAMPLES), eager_only=HOST_ONLY)
def parse_single_example(lib: Library, case: str) -> Any:
    return element(lib, lib.io.parse_single_example(EXAMPLES[case], _features(lib)))


@scenario(eager_only=HOST_ONLY)
def parse_example(lib: Library) -> Any:
    return element(lib, lib.io.parse_example(list(EXAMPLES.values()), _features(lib)))


@scenario(order=("parse then batch", "batch then parse"), eager_only=HOST_ONLY)
def parse_in_a_pipeline(lib: Library, order: str) -> Any:
    with folder() as path:
        names = write_records(lib, path, [list(EXAMPLES.values())[:3]])
        dataset = lib.data.TFRecordDataset(names)
        if order == "parse then batch":
            dataset = dataset.map(lambda x: lib.io.parse_single_example(x, _features(lib))).batch(2)
        else:
            dataset = dataset.batch(2).map(lambda x: lib.io.parse_example(x, _features(lib)))
        return {
            "elements": elements(lib, lambda: dataset),
            "spec": lib.spec(dataset.element_spec),
        }


FEATURES: dict[str, tuple[bytes, Callable[[Library], Any]]] = {
    "default": (_example(), lambda lib: lib.io.FixedLenFeature([], np.int64, default_value=7)),
    "default of a shape": (
        _example(),
        lambda lib: lib.io.FixedLenFeature([2], np.float32, default_value=[1.0, 2.0]),
    ),
    "default text": (_example(), lambda lib: lib.io.FixedLenFeature([], lib.string, "none")),
    "default not needed": (_example(f=[3]), lambda lib: lib.io.FixedLenFeature([], np.int64, 7)),
    "missing": (_example(), lambda lib: lib.io.FixedLenFeature([], np.int64)),
    "empty": (_example(f=[]), lambda lib: lib.io.FixedLenFeature([], np.int64, 7)),
    "empty without a default": (_example(f=[]), lambda lib: lib.io.FixedLenFeature([], np.int64)),
    "another type": (_example(f=[1.0]), lambda lib: lib.io.FixedLenFeature([], np.int64)),
    "too many": (_example(f=[1, 2]), lambda lib: lib.io.FixedLenFeature([], np.int64)),
    "too few": (_example(f=[1, 2]), lambda lib: lib.io.FixedLenFeature([3], np.int64)),
    "one in a list": (_example(f=[1]), lambda lib: lib.io.FixedLenFeature([1], np.int64)),
    "a matrix": (_example(f=[1, 2, 3, 4]), lambda lib: lib.io.FixedLenFeature([2, 2], np.int64)),
    "strings": (_example(f=[b"a", b""]), lambda lib: lib.io.FixedLenFeature([2], lib.string)),
    "int32": (_example(f=[1]), lambda lib: lib.io.FixedLenFeature([], np.int32)),
    "no bytes": (b"", lambda lib: lib.io.FixedLenFeature([], np.int64, 7)),
    "twice": (
        _example(f=[1]) + _example(f=[2]),
        lambda lib: lib.io.FixedLenFeature([], np.int64),
    ),
}


@scenario(case=tuple(FEATURES), eager_only=HOST_ONLY)
def fixed_features(lib: Library, case: str) -> Any:
    contents, feature = FEATURES[case]
    return lib.outcome(
        lambda: element(lib, lib.io.parse_single_example(contents, {"f": feature(lib)}))
    )


@scenario(eager_only=HOST_ONLY)
def parse_what_is_no_example(lib: Library) -> Any:
    feature = {"f": lib.io.FixedLenFeature([], np.int64)}
    return lib.refuses(lambda: lib.io.parse_single_example(b"\xff\xff", feature))
