"""`RaggedFeature(partitions=)`: values in rows, and rows in rows."""

from typing import Any

import numpy as np
import pytest

from replicax._src.records import RaggedFeature, parse_example, parse_single_example
from tests.records.wire import example

R = RaggedFeature
RECORDS = [
    example(
        values=[1, 2, 3, 4],
        lengths=[1, 0, 3],
        splits=[0, 1, 1, 4],
        starts=[0, 1, 1],
        limits=[1, 1, 4],
        ids=[0, 2, 2, 2],
        outer=[2, 1],
    ),
    example(
        values=[5, 6], lengths=[2], splits=[0, 2], starts=[0], limits=[2], ids=[0, 0], outer=[1]
    ),
    example(splits=[0]),  # what is missing is empty
]


def lists(found: Any) -> Any:
    """What rows and lengths mean, as lists of lists."""
    lengths = found.lengths
    lengths = lengths.tolist() if isinstance(lengths, np.ndarray) else lists(lengths)
    return [_cut(row, each) for row, each in zip(found.rows, lengths)]


def _cut(rows: Any, lengths: Any) -> Any:
    if isinstance(lengths, int):
        return rows[:lengths].tolist()
    return [_cut(row, each) for row, each in zip(rows, lengths)]


@pytest.mark.parametrize(
    "partition",
    [
        R.RowLengths("lengths"),
        R.RowSplits("splits"),
        R.RowStarts("starts"),
        R.RowLimits("limits"),
        R.ValueRowIds("ids"),
    ],
)
def test_all_ways_to_say_where_rows_are(partition: Any, native: bool):
    feature = R("int64", "values", [partition])
    found = parse_example(RECORDS, {"x": feature}, native=native)["x"]
    assert lists(found) == [[[1], [], [2, 3, 4]], [[5, 6]], []]
    assert found.rows.shape == (3, 3, 3) and found.lengths.lengths.tolist() == [3, 1, 0]
    one = parse_single_example(RECORDS[0], {"x": feature})["x"]
    assert lists(one) == [[1], [], [2, 3, 4]]


def test_rows_in_rows_and_rows_of_one_length(native: bool):
    feature = R("int64", "values", [R.RowLengths("outer"), R.RowLengths("lengths")])
    found = parse_example(RECORDS, {"x": feature}, native=native)["x"]
    assert lists(found) == [[[[1], []], [[2, 3, 4]]], [[[5, 6]]], []]
    pairs = parse_example(RECORDS, {"values": R("int64", partitions=[R.UniformRowLength(2)])})
    assert lists(pairs["values"]) == [[[1, 2], [3, 4]], [[5, 6]], []]


@pytest.mark.parametrize(
    ("partition", "problem"),
    [
        (R.RowLengths("splits"), "do not add up to 4"),
        (R.RowSplits("lengths"), "do not start at 0"),
        (R.RowLimits("starts"), "do not end at 4"),
        (R.ValueRowIds("outer"), "2 row numbers, in order, for 4 values"),
        (R.UniformRowLength(3), "no whole number of rows of 3"),
    ],
)
def test_what_does_not_fit_is_said(partition: Any, problem: str):
    with pytest.raises(ValueError, match=f"'x' of record 0 cannot be divided .*{problem}"):
        parse_example(RECORDS, {"x": R("int64", "values", [partition])})


def test_what_is_no_partition():
    with pytest.raises(TypeError, match="such as RaggedFeature.RowLengths"):
        R("int64", partitions=["lengths"])


def test_strings_and_an_empty_batch():
    record = example(words=[b"a", b"b"], lengths=[2])
    feature = {"x": R("string", "words", [R.RowLengths("lengths")])}
    assert lists(parse_example([record], feature)["x"]) == [[[b"a", b"b"]]]
    assert np.shape(parse_example([], feature)["x"].rows)[0] == 0
