"""Sequence examples by the compiled helper and by protobuf: the same of any bytes."""

import ctypes
import mmap
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicax._src.records import (
    BytesList,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FixedLenFeature,
    FixedLenSequenceFeature,
    FloatList,
    Int64List,
    RaggedFeature,
    Records,
    SequenceExample,
    VarLenFeature,
    _native,
    parse_sequence_example,
)
from tests.records.wire import field

CONTEXT = {"n": FixedLenFeature([], "int64", 0), "s": VarLenFeature("string")}
FIXED = {
    "tokens": FixedLenSequenceFeature([], "int64", allow_missing=True),
    "vectors": FixedLenSequenceFeature([2], "float32", allow_missing=True),
}
VARYING = {
    "tokens": VarLenFeature("int64"),
    "vectors": RaggedFeature("float32"),
    "words": RaggedFeature("string"),
}


def _feature(values: Any) -> Feature:
    if not values:
        return Feature()
    if isinstance(values[0], bytes):
        return Feature(bytes_list=BytesList(value=values))
    if isinstance(values[0], float):
        return Feature(float_list=FloatList(value=values))
    return Feature(int64_list=Int64List(value=values))


def _record(context: dict[str, Any], **lists: Any) -> bytes:
    return SequenceExample(
        context=Features(feature={name: _feature(values) for name, values in context.items()}),
        feature_lists=FeatureLists(
            feature_list={
                name: FeatureList(feature=[_feature(values) for values in steps])
                for name, steps in lists.items()
            }
        ),
    ).SerializeToString()


SEEDS = [
    _record(
        {"n": [1], "s": [b"a", b""]},
        tokens=[[1], [-2], [300]],
        vectors=[[1.0, 2.0], [3.0, 4.0]],
        words=[[b"x", b"yz"], [], [b""]],
    ),
    _record({"n": [2]}, tokens=[[5]], other=[[1.0]], vectors=[], words=[[b"w" * 200]]),
    _record({}, tokens=[[7]]),
    _record({"n": [3]}),
    b"",
]


def outcome(records: Any, sequences: Any, native: bool) -> Any:
    """What parsing gives, or its error, in a form that can be compared."""
    try:
        found = parse_sequence_example(records, CONTEXT, sequences, native=native)
    except ValueError as error:
        return str(error).partition(": b")[0]  # of the record, or of its context
    parts = []
    for part in found:
        for name, value in part.items():
            for array in value if isinstance(value, tuple) else [value]:
                content = array.tolist() if array.dtype == object else array.tobytes()
                parts.append((name, array.dtype, array.shape, content))
    return parts


def check(contents: list[bytes], both: list[bool]) -> None:
    records = Records.from_list([b"before", *contents, b"after"]).select(slice(1, -1))
    for sequences in (FIXED, VARYING):
        one, *others = (outcome(records, sequences, native) for native in both)
        assert all(other == one for other in others)


def test_regular_records_need_no_protobuf(
    library: _native.Library | None, monkeypatch: pytest.MonkeyPatch
):
    if library is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(_native, "_load", lambda: library)
    wanted = {name: outcome(SEEDS, each, False) for name, each in _BOTH.items()}
    monkeypatch.setattr("replicax._src.records._sequence_example._read_by_protobuf", None)
    for name, each in _BOTH.items():
        assert outcome(SEEDS, each, True) == wanted[name]


_BOTH = {"fixed": FIXED, "varying": VARYING}


def test_other_forms_mean_the_same(both: list[bool]):
    context, lists = (
        field(1, field(1, field(1, b"n") + field(2, field(3, field(1, b"\x07"))))),
        field(1, field(1, b"tokens") + field(2, field(1, field(3, field(1, b"\x05"))))),
    )
    check([context + field(2, lists + lists)], both)  # the last one counts
    check([field(2, lists) + context], both)  # in another order
    check([field(2, lists) + field(2, lists)], both)
    unpacked = field(1, field(1, b"tokens") + field(2, field(1, field(3, b"\x08\x05\x08\x06"))))
    check([field(2, unpacked)], both)


def test_every_flip_and_every_cut(both: list[bool]):
    seed = SEEDS[0]
    for place in range(len(seed)):
        flipped = bytearray(seed)
        flipped[place] ^= 1 << place % 8
        check([bytes(flipped), SEEDS[1]], both)
        check([seed[:place]], both)


@given(st.data())
@settings(max_examples=150)
def test_damaged_records_mean_the_same(both: list[bool], data: st.DataObject):
    contents = []
    for _ in range(data.draw(st.integers(1, 3))):
        content = bytearray(data.draw(st.sampled_from(SEEDS)))
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(content)))
            how = data.draw(st.sampled_from(["set", "cut", "insert", "remove"]))
            if how == "cut":
                del content[place:]
            elif how == "insert":
                content[place:place] = data.draw(st.binary(min_size=1, max_size=3))
            elif place < len(content) and how == "remove":
                del content[place]
            elif place < len(content):
                content[place] = data.draw(st.integers(0, 255))
        contents.append(bytes(content))
    check(contents, both)


def test_nothing_behind_the_buffer_is_read(library: _native.Library | None):
    """The buffer ends where memory does: one byte further would end the process."""
    if library is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler, and pages of Linux")
    program = (
        "from pathlib import Path; from replicax._src.records import _native; "
        "from tests.records import test_sequence_example as here; "
        f"here.read_at_the_edge(_native.Library(Path({str(library.path)!r})))"
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
    for _ in range(4000):
        content = bytearray(rng.choice(SEEDS))
        for _ in range(rng.randrange(3)):
            if content:
                content[rng.randrange(len(content))] = rng.choice([0, 1, 10, 0x7F, 0xFF, 0x80])
        content = content[: rng.randrange(len(content) + 1)]
        edge = whole[page - len(content) : page]
        edge[:] = np.frombuffer(bytes(content), np.uint8)
        records = Records(edge, [0], [len(content)])
        names = ["tokens", "vectors", "words"]
        found = library.find_sequences(records, names)
        if found is None:  # the steps alone
            zero = np.zeros((3, 1), np.int64)
            found = _native.Sequences(records, zero, zero + len(content), zero + rng.randrange(4))
        for number, dtype in enumerate((np.int64, np.float32, object)):
            library.read_steps(records, found, number, np.dtype(dtype))
