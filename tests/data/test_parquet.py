"""Parquet files: rows as dicts, with the types of the columns."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.pipelines import all_workers, elements, flat

ParquetDataset = rx.data.ParquetDataset


@pytest.fixture(scope="module")
def arrow() -> Any:
    """The package, or something that stops the test."""
    pytest.importorskip("pyarrow.parquet")
    return pytest.importorskip("pyarrow")


def write(path: Path, rows_in_a_group: int | None = None, **columns: Any) -> str:
    """Writes a file, and returns its name."""
    arrow = sys.modules["pyarrow"]
    table = arrow.table(columns)
    sys.modules["pyarrow.parquet"].write_table(table, path, row_group_size=rows_in_a_group)
    return str(path)


@pytest.fixture
def name(arrow: Any, tmp_path: Path) -> str:
    """Ten rows in groups of four, with columns of many types."""
    rows = range(10)
    pairs = arrow.FixedSizeListArray.from_arrays(arrow.array(range(20)), 2)
    return write(
        tmp_path / "file",
        4,
        i=arrow.array(rows, arrow.int32()),
        u=arrow.array(rows, arrow.uint8()),
        f=np.arange(10.0),
        h=np.arange(10, dtype=np.float16),
        b=[row % 2 == 0 for row in rows],
        s=[f"é{row}" for row in rows],
        y=[bytes([row, 0]) for row in rows],
        d=arrow.array(["x", "y"] * 5).dictionary_encode(),
        pair=pairs,
        list=[[row, row, row] for row in rows],
        texts=[["a", str(row)] for row in rows],
    )


def test_rows_with_the_types_of_their_columns(name: str):
    dataset = ParquetDataset(name)
    spec = dataset.element_spec
    assert {key: (spec[key].shape, spec[key].dtype) for key in spec} == {
        "i": ((), np.int32),
        "u": ((), np.uint8),
        "f": ((), np.float64),
        "h": ((), np.float16),
        "b": ((), bool),
        "s": ((), object),
        "y": ((), object),
        "d": ((), object),
        "pair": ((2,), np.int64),
        "list": ((3,), np.int64),
        "texts": ((2,), object),
    }
    third = elements(dataset)[3]
    assert third == {
        "i": 3,
        "u": 3,
        "f": 3.0,
        "h": 3.0,
        "b": False,
        "s": "é3".encode(),
        "y": b"\3\0",
        "d": b"y",
        "pair": [6, 7],
        "list": [3, 3, 3],
        "texts": [b"a", b"3"],
    }


def test_batches_go_over_the_borders_of_row_groups(name: str):
    batches = list(ParquetDataset(name).batch(3))
    assert [batch["i"].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert [batch["pair"].shape for batch in batches] == [(3, 2)] * 3 + [(1, 2)]
    assert batches[1]["s"].tolist() == ["é3".encode(), "é4".encode(), "é5".encode()]


def test_only_the_columns_that_are_asked_for(name: str):
    assert elements(ParquetDataset(name, columns=["f", "i"]).take(1)) == [{"f": 0.0, "i": 0}]


def test_files_one_after_the_other(name: str, arrow: Any, tmp_path: Path):
    other = write(tmp_path / "other", i=arrow.array([77], arrow.int32()))
    empty = write(tmp_path / "empty", i=arrow.array([], arrow.int32()))
    rows = ParquetDataset([name, empty, other], columns=["i"])
    assert [row["i"] for row in rows] == [*range(10), 77]
    assert [row["i"] for row in rows] == [*range(10), 77]


def test_an_iterator_over_rows_continues(name: str):
    def make() -> Any:
        return ParquetDataset(name, columns=["i"]).shuffle(5, seed=1).batch(3)

    one, other = iter(make()), iter(make())
    for _ in range(2):
        next(one)
    other.set_state(one.get_state())
    assert elements(one) == elements(other)


def test_workers_have_files_of_their_own(arrow: Any, tmp_path: Path):
    names = [
        write(tmp_path / "a", i=arrow.array(range(4), arrow.int32())),
        write(tmp_path / "b", i=arrow.array(range(4, 8), arrow.int32())),
    ]
    found, _ = all_workers(lambda: ParquetDataset(names).map(lambda row: row["i"]).batch(4), 1, 2)
    assert [flat(worker) for worker in found] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_missing_file_is_named(arrow: Any, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        elements(ParquetDataset(str(tmp_path / "nowhere")))


def test_a_damaged_file_is_named(name: str, tmp_path: Path):
    content = Path(name).read_bytes()
    damaged = [
        b"no such file" * 20,
        content[: len(content) // 2],
        b"PAR1" + b"x" * 60 + content[64:],
    ]
    for number, each in enumerate(damaged):
        path = tmp_path / f"damaged {number}"
        path.write_bytes(each)
        with pytest.raises(rx.errors.DataLossError, match=f"damaged {number}'") as raised:
            elements(ParquetDataset(str(path)))
        assert raised.value.path == str(path)


def test_columns_that_are_not_there_are_named(name: str):
    with pytest.raises(ValueError, match="no column 'x'. It has: i, u, f"):
        elements(ParquetDataset(name, columns=["i", "x"]))
    with pytest.raises(ValueError, match="without a column"):
        elements(ParquetDataset(name, columns=[]))


def test_lists_of_lists_are_arrays_and_of_other_lengths_can_be_filled_up(
    tmp_path: Path, arrow: Any
):
    nested = write(tmp_path / "nested", x=[[[1, 2]], [[3, 4]]])
    assert elements(ParquetDataset(nested).batch(2)) == [{"x": [[[1, 2]], [[3, 4]]]}]
    ragged = ParquetDataset(write(tmp_path / "ragged", 2, x=[[1], [1, 2], [], [3]]))
    assert elements(ragged) == [{"x": [1]}, {"x": [1, 2]}, {"x": []}, {"x": [3]}]
    assert elements(ragged.padded_batch(4)) == [{"x": [[1, 0], [1, 2], [0, 0], [3, 0]]}]


def test_what_arrays_have_no_place_for_is_named(tmp_path: Path, arrow: Any):
    cases: dict[str, Any] = {
        "numbers": [1, None],
        "texts": ["a", None],
        "lists": arrow.array([[1, 2], None], arrow.list_(arrow.int64(), 2)),
        "dates": np.array(["2020-01-01"], "datetime64[s]"),
        "structs": [{"a": 1}],
        "nothing": arrow.array([None]),
    }
    for column, values in cases.items():
        name = write(tmp_path / column, **{column: values})
        # pyarrow itself refuses some of them, from version to version, without the column's name.
        with pytest.raises((TypeError, ValueError), match=column) as raised:
            elements(ParquetDataset(name))
        assert name in str(raised.value) + "".join(getattr(raised.value, "__notes__", ()))
    floats = ParquetDataset(write(tmp_path / "floats", x=[1.5, None]))
    assert np.isnan([row["x"] for row in floats]).tolist() == [False, True]


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"pip install 'replicax\[parquet\]'"):
        ParquetDataset("file")
