"""The compiled helper: it says what Python says, whatever the bytes are, and may be missing."""

import contextlib
import ctypes
import mmap
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicax._src.records import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    Records,
    SparseTensor,
    VarLenFeature,
    _build,
    _native,
    parse_example,
    parse_single_example,
    scan_tfrecords,
)
from replicax._src.records._features import Kind
from replicax._src.records._frames import find_frames
from tests.records.wire import entry, example, field, packed_floats, record

VARYING = {
    "f": VarLenFeature("float32"),
    "i": VarLenFeature("int64"),
    "s": VarLenFeature("string"),
}
FIXED = {
    "f": FixedLenFeature([2], "float32", [0, 0]),
    "i": FixedLenFeature([2], "int64", [0, 0]),
    "s": FixedLenFeature([], "string", b""),
}
PADDED = {
    "f": FixedLenSequenceFeature([], "float32", allow_missing=True),
    "s": FixedLenSequenceFeature([], "string", allow_missing=True),
}


def outcome(serialized: Any, features: Any, native: bool, parse: Any = parse_example) -> Any:
    """What parsing gives, or its error, in a form that can be compared."""
    try:
        found = parse(serialized, features, native=native)
    except ValueError as error:
        return str(error)
    parts = []
    for value in found.values():
        for array in value if isinstance(value, SparseTensor) else [np.asarray(value)]:
            content = array.tolist() if array.dtype == object else array.tobytes()
            parts.append((array.dtype, array.shape, content))
    return parts


def check(serialized: list[bytes], both: list[bool]) -> None:
    """All ways to the values of some records must come to the same."""
    records = Records.from_list([b"before", *serialized, b"after"]).select(slice(1, -1))
    for features in (VARYING, FIXED, PADDED):
        one, *others = (outcome(records, features, native) for native in both)
        assert all(other == one for other in others)
        alone = [outcome([content], features, both[-1]) for content in serialized]
        single = [outcome(c, features, both[-1], parse_single_example) for c in serialized]
        assert [isinstance(a, str) for a in alone] == [isinstance(s, str) for s in single]
        for batch, value in zip(alone, single):  # text that stands alone is no array
            if isinstance(batch, str):
                assert batch == value
            elif features is FIXED:
                assert [part[2] for part in batch[:2]] == [part[2] for part in value[:2]]
        assert isinstance(one, str) == any(isinstance(text, str) for text in single)


SEEDS = [
    example(f=[1.0, 2.0], i=[3, 300], s=[b"abc"]),
    example(i=[-1, 2**62], s=[b""], other=[b"xyz"], f=[0.5, 0.25]),
    example(s=[b"x" * 200], f=[]),
    record(entry(b"f", packed_floats(1)), entry(b"f", packed_floats(1, 2)), entry(b"i", b"")),
    b"",
]


@given(st.data())
@settings(max_examples=150)
def test_damaged_examples_mean_the_same(both: list[bool], data: st.DataObject):
    contents = []
    for _ in range(data.draw(st.integers(1, 3))):
        content = bytearray(data.draw(st.sampled_from(SEEDS)))
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(content)))
            how = data.draw(st.sampled_from(["set", "flip", "cut", "insert", "remove"]))
            if how == "cut":
                del content[place:]
            elif how == "insert":
                content[place:place] = data.draw(st.binary(min_size=1, max_size=3))
            elif place < len(content) and how == "remove":
                del content[place]
            elif place < len(content):
                byte = data.draw(st.integers(0, 255))
                content[place] = content[place] ^ (1 << byte % 8) if how == "flip" else byte
        contents.append(bytes(content))
    check(contents, both)


@given(st.lists(st.binary(max_size=30), max_size=4))
def test_random_bytes_mean_the_same(both: list[bool], contents: list[bytes]):
    check(contents, both)


@given(st.binary(max_size=12), st.sampled_from([b"f", b"i", b"s"]), st.integers(1, 3))
def test_random_lists_mean_the_same(both: list[bool], content: bytes, key: bytes, kind: int):
    check([record(entry(key, field(kind, content)))], both)
    check([record(entry(key, field(kind, field(1, content))))], both)


def test_every_flip_and_every_cut(both: list[bool]):
    seed = SEEDS[0]
    for place in range(len(seed)):
        for bit in range(8):
            flipped = bytearray(seed)
            flipped[place] ^= 1 << bit
            check([bytes(flipped)], both)
        check([seed[:place]], both)


@given(st.binary(max_size=60), st.booleans())
def test_random_files_mean_the_same(both: list[bool], piece: bytes, verify: bool):
    found = [find_frames(piece, verify, native) for native in both]
    for frames in found[1:]:
        assert frames[2:] == found[0][2:]
        assert frames.starts.tolist() == found[0].starts.tolist()
        assert frames.lengths.tolist() == found[0].lengths.tolist()


def test_nothing_behind_the_buffer_is_read(library: _native.Library | None):
    """The buffer ends where memory does: one byte further would end the process."""
    if library is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler, and pages of Linux")
    program = (
        "import sys; from pathlib import Path; from replicax._src.records import _native; "
        "from tests.records import test_native; "
        f"test_native.read_at_the_edge(_native.Library(Path({str(library.path)!r})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": "src:.", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0, result.stderr


def read_at_the_edge(library: _native.Library) -> None:
    """Puts damaged records at the end of a page that is followed by one that cannot be read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    whole = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + page), page, 0) == 0
    rng = random.Random(0)
    _native._load = lambda: library  # type: ignore[assignment]
    seeds = [*SEEDS, b"\x05\0\0\0\0\0\0\0\xea\xb2\x04>defgh\x80Ub}"]
    for _ in range(3000):
        content = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(3)):
            if content:
                content[rng.randrange(len(content))] = rng.choice([0, 1, 10, 0x7F, 0xFF, 0x80])
        content = content[: rng.randrange(len(content) + 1)]
        size = len(content)
        edge = whole[page - size : page]
        edge[:] = np.frombuffer(bytes(content), np.uint8)
        records = Records(edge, [0], [size])
        library.read_columns(records, VARYING)
        for start in {0, min(1, size)}:
            places = edge, np.array([start]), np.array([size - start])
            for kind in (Kind.BYTES, Kind.FLOAT, Kind.INT):
                library.read_lists(*places, kind)
        outcome(records, FIXED, True)
        library.find_frames(edge, True)
        library.find_frames(edge, False)


def test_places_outside_of_the_buffer(native: bool):
    good = example(f=[1.0, 2.0])
    for start, length in ((1, len(good)), (-1, 3), (2**62, 2**62)):
        with pytest.raises(ValueError, match="Not all records lie within"):
            Records(good, [0, start], [len(good), length])
        records = Records(good, [0, 0], [len(good), len(good)])
        records.starts[1], records.lengths[1] = start, length
        with contextlib.suppress(ValueError, IndexError):  # all is well if the process lives on
            parse_example(records, VARYING, native=native)


def list_of(*texts: bytes) -> bytes:
    return b"".join(b"\x0a" + bytes([len(text)]) + text for text in texts)


def test_strings_are_written_only_where_there_is_room(library: _native.Library | None):
    if library is None:
        pytest.skip("there is no C compiler")
    buffer = np.frombuffer(list_of(b"ab", b"", b"c"), np.uint8)
    starts, lengths = np.zeros(1, np.int64), np.array([buffer.size])
    counts = np.zeros(1, np.int64)
    found = np.full(6, -1, np.int64)
    at = _native._at
    places = at(buffer), buffer.size, at(starts), at(lengths), 1
    total = library._read_lists(*places, Kind.BYTES, at(found), 2, at(counts))
    assert total == counts[0] == 3
    assert found.tolist() == [2, 6, 2, 0, -1, -1]


@pytest.mark.parametrize("kind", [Kind.BYTES, Kind.FLOAT, Kind.INT])
def test_there_is_room_for_the_shortest_values(library: _native.Library | None, kind: Kind):
    if library is None:
        pytest.skip("there is no C compiler")
    content = {Kind.BYTES: list_of(*[b""] * 4), Kind.FLOAT: bytes(16), Kind.INT: bytes(4)}[kind]
    buffer = np.frombuffer(content * 2, np.uint8)
    starts, lengths = np.array([0, len(content)]), np.array([len(content)] * 2)
    found = library.read_lists(buffer, starts, lengths, kind)
    assert found is not None
    assert found[0].shape[-1] == 8 and found[1].tolist() == [4, 4]
    assert library.read_lists(buffer, starts + 1, lengths, kind) is None  # not in the buffer


# ---- building and loading -----------------------------------------------------------------------


def test_script_and_loader_mean_the_same_file():
    assert _build.LIBRARY == _native.LIBRARY


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library = tmp_path / "librecords.so"
    library.write_bytes(b"old")
    monkeypatch.setenv("CC", "no-such-compiler -x")
    problem = _build.build(library)
    assert problem is not None and "no-such-compiler" in problem
    assert list(tmp_path.iterdir()) == []  # the old one is gone too: it may not fit the source


def test_source_that_cannot_be_compiled(tmp_path: Path):
    problem = _build.build(tmp_path / "librecords.so", ["--no-such-option"])
    assert problem is not None and "failed" in problem
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_library_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
):
    path = tmp_path / "librecords.so"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(_native, "LIBRARY", path)
    load = _native._load.__wrapped__
    monkeypatch.setattr(_native, "_load", load)
    assert _native.library(None) is None
    assert parse_example([SEEDS[0]], FIXED)["s"].tolist() == [b"abc"]
    with pytest.raises(RuntimeError, match="not there.*replicax._src.records._build"):
        next(scan_tfrecords(__file__, native=True))


def test_library_of_another_version(library: _native.Library | None, monkeypatch: Any):
    if library is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(_native, "_VERSION", -1)
    with pytest.raises(AttributeError, match="another version"):
        _native.Library(library.path)
