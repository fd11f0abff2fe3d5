"""`Records`: selecting without copying, and in and out of lists."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicax._src.records import Records

CONTENTS = [b"one", b"", b"three", b"\x00\x00"]


@pytest.fixture(params=["bytes", "array"])
def records(request: pytest.FixtureRequest) -> Records:
    made = Records.from_list(CONTENTS)
    if request.param == "bytes":
        return made
    return Records(made.bytes_of_buffer, made.starts, made.lengths)


def test_list_in_and_out(records: Records):
    assert len(records) == 4
    assert records.to_list() == list(records) == CONTENTS
    assert records.starts.dtype == records.lengths.dtype == np.int64


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (slice(1, None, 2), [b"", b"\x00\x00"]),
        (slice(None, None, -1), CONTENTS[::-1]),
        ([2, 0, 2], [b"three", b"one", b"three"]),
        ([-1], [b"\x00\x00"]),
        ([], []),
        (np.array([True, False, True, False]), [b"one", b"three"]),
    ],
)
def test_select_shares_the_buffer(records: Records, which: Any, expected: list[bytes]):
    selected = records.select(which)
    assert selected.to_list() == expected
    assert selected.buffer is records.buffer or np.shares_memory(
        selected.bytes_of_buffer, records.bytes_of_buffer
    )


def test_a_record_that_is_not_there(records: Records):
    with pytest.raises(IndexError):
        records.select([4])


def test_buffer_cannot_be_written(records: Records):
    with pytest.raises(ValueError, match="read-only"):
        records.bytes_of_buffer[0] = 1


def test_users_array_stays_writable():
    array = np.frombuffer(b"abc", np.uint8).copy()
    Records(array, [0], [3])
    array[0] = 7


@given(st.lists(st.lists(st.binary(max_size=5), max_size=5), max_size=5))
def test_concatenate(parts: list[list[bytes]]):
    joined = Records.concatenate([Records.from_list(part) for part in parts])
    assert joined.to_list() == [content for part in parts for content in part]


def test_concatenate_parts_of_one_buffer_shares_it(records: Records):
    joined = Records.concatenate([records.select([3, 0]), records.select([2])])
    assert joined.to_list() == [b"\x00\x00", b"one", b"three"]
    assert joined.buffer is records.buffer or len(joined.buffer) == len(records.buffer)


def test_concatenate_leaves_behind_what_no_record_needs():
    large = Records.from_list([bytes(1000), b"a", b"b", bytes(1000)])
    joined = Records.concatenate([large.select([2, 1]), Records.from_list([b"c"])])
    assert joined.to_list() == [b"b", b"a", b"c"]
    assert len(joined.buffer) == 3


def test_text_is_refused():
    with pytest.raises(TypeError, match=r"index 1: 'text'.*\.encode\(\)"):
        Records.from_list([b"bytes", "text"])  # type: ignore[list-item]


def test_wrong_buffer_and_places_are_refused():
    with pytest.raises(TypeError, match="float64"):
        Records(np.zeros(3), [0], [1])
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(1,\)"):
        Records(b"abc", [0, 1], [1])


def test_repr():
    assert repr(Records.from_list(CONTENTS)) == "Records(4 records in a buffer of 10 bytes)"
