"""Data sets of files: lines, TFRecords, records of fixed length, names and patterns."""

import functools
import gc
import gzip
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.pipelines import Calls, Dataset, elements, text_files

TextLineDataset, TFRecordDataset = rx.data.TextLineDataset, rx.data.TFRecordDataset


def record_files(folder: Path, *counts: int, compression: str = "") -> list[str]:
    """Files with so many records each: the bytes of numbers that are counted through."""
    names: list[str] = []
    first = 0
    for index, count in enumerate(counts):
        name = str(folder / f"{index}.tfrecord")
        with rx.io.TFRecordWriter(name, compression or None) as writer:
            for number in range(first, first + count):
                writer.write(str(number).encode())
        names.append(name)
        first += count
    return names


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_lines_of_files_one_after_the_other(tmp_path: Path):
    names = text_files(tmp_path, 3, 0, 2)
    assert elements(TextLineDataset(names)) == numbered(5)
    assert elements(TextLineDataset(names[0])) == numbered(3)
    assert elements(TextLineDataset(Path(names[0]))) == numbered(3)
    assert elements(TextLineDataset(names[0].encode())) == numbered(3)
    assert elements(TextLineDataset(np.array(names))) == numbered(5)
    assert elements(TextLineDataset(Dataset.from_tensor_slices(names))) == numbered(5)
    dataset = TextLineDataset(names)
    assert dataset.cardinality() == rx.data.UNKNOWN_CARDINALITY
    assert dataset.element_spec == rx.TensorSpec([], rx.string)
    assert elements(dataset) == elements(dataset)
    assert elements(dataset.batch(3)) == [numbered(5)[:3], numbered(5)[3:]]


def test_line_ends(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"one\r\ntwo\n\nfour")
    assert elements(TextLineDataset(str(tmp_path / "a"))) == [b"one", b"two", b"", b"four"]


@pytest.mark.parametrize(("kind", "compress"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress)])
def test_compressed_lines(kind: str, compress: Any, tmp_path: Path):
    (tmp_path / "a").write_bytes(compress(b"one\ntwo\n"))
    assert elements(TextLineDataset(str(tmp_path / "a"), kind)) == [b"one", b"two"]


@pytest.mark.parametrize("kind", ["", "GZIP", "ZLIB"])
def test_records(kind: str, tmp_path: Path):
    names = record_files(tmp_path, 3, 0, 2, compression=kind)
    dataset = TFRecordDataset(names, kind)
    assert elements(dataset) == numbered(5)
    assert elements(dataset.shuffle(5, seed=1).batch(2).unbatch().take(9)) != []
    assert sorted(elements(dataset.shuffle(5))) == numbered(5)
    batch = next(iter(dataset.batch(4)))
    assert np.asarray(batch).tolist() == numbered(4)


def test_records_of_fixed_length(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"HEAD" + b"aabbcc" + b"END")
    (tmp_path / "b").write_bytes(b"HEAD" + b"dd" + b"END")
    names = [str(tmp_path / "a"), str(tmp_path / "b")]
    dataset = rx.data.FixedLengthRecordDataset(names, 2, 4, 3)
    assert elements(dataset) == [b"aa", b"bb", b"cc", b"dd"]
    assert elements(dataset.batch(3)) == [[b"aa", b"bb", b"cc"], [b"dd"]]


def example(number: int) -> bytes:
    features = {
        "x": rx.train.Feature(float_list=rx.train.FloatList(value=[number, number + 0.5])),
        "y": rx.train.Feature(int64_list=rx.train.Int64List(value=[number])),
    }
    return rx.train.Example(features=rx.train.Features(feature=features)).SerializeToString()


def test_examples_are_parsed_one_by_one_or_in_batches_alike(tmp_path: Path):
    name = str(tmp_path / "a.tfrecord")
    with rx.io.TFRecordWriter(name) as writer:
        for number in range(7):
            writer.write(example(number))
    features = {
        "x": rx.io.FixedLenFeature([2], "float32"),
        "y": rx.io.FixedLenFeature([], "int64"),
    }
    records = TFRecordDataset(name)

    def fast(record: Any) -> Any:
        row = rx.io.parse_single_example(record, features)
        return row["x"], row["y"]

    def slow(record: Any) -> Any:
        row = rx.io.parse_single_example(record, features)
        return row["x"] * 1, row["y"] + 0

    wanted = [([n, n + 0.5], n) for n in range(7)]
    assert elements(records.map(fast)) == elements(records.map(slow)) == wanted
    for pipeline in (
        lambda fn: records.map(fn).batch(3),
        lambda fn: records.shuffle(4, seed=1).map(fn).batch(3),
        lambda fn: records.map(fn).shuffle(4, seed=1).batch(3, drop_remainder=True),
        lambda fn: records.take(5).repeat(2).map(fn).skip(2).batch(4),
        lambda fn: records.map(fn).cache().repeat(2).batch(4),
    ):
        assert elements(pipeline(fast)) == elements(pipeline(slow))
    whole = records.batch(3).map(lambda batch: rx.io.parse_example(batch, features))
    assert elements(whole)[0] == {"x": [w[0] for w in wanted[:3]], "y": [0, 1, 2]}
    assert records.map(fast).element_spec == records.map(slow).element_spec


def sparse_rows(folder: Path, *counts: int) -> Any:
    """Records with so many values each, of a length that is not fixed."""
    name = str(folder / "sparse.tfrecord")
    with rx.io.TFRecordWriter(name) as writer:
        for count in counts:
            values = rx.train.Feature(int64_list=rx.train.Int64List(value=range(count)))
            features = rx.train.Features(feature={"v": values})
            writer.write(rx.train.Example(features=features).SerializeToString())
    return TFRecordDataset(name)


def test_sparse_values_are_not_cut_into_rows(tmp_path: Path):
    """Either as in TensorFlow, or refused with a word: never as if their three arrays were rows."""
    features = {"v": rx.io.VarLenFeature("int64")}
    records = sparse_rows(tmp_path, 1, 1, 2, 0)

    def single(record: Any) -> Any:
        return rx.io.parse_single_example(record, features)["v"]

    def several(batch: Any) -> Any:
        return rx.io.parse_example(batch, features)["v"]

    whole = next(iter(records.batch(2).map(several)))
    assert whole.dense_shape.tolist() == [2, 1] and whole.values.tolist() == [0, 0]
    try:
        (stacked,) = list(records.map(single).take(2).batch(2))
        assert stacked.dense_shape.tolist() == [2, 1] and stacked.values.tolist() == [0, 0]
    except (TypeError, ValueError) as error:
        assert "parse" in str(error).lower()
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for batches in (
        records.batch(2).map(several),
        records.batch(2).map(several).unbatch().batch(2),
    ):
        with pytest.raises((TypeError, ValueError), match="(?i)sparse"):
            list(strategy.experimental_distribute_dataset(batches))


def test_names_come_sorted_or_shuffled(tmp_path: Path):
    names = sorted(text_files(tmp_path, *[1] * 9))
    pattern = str(tmp_path / "*.txt")
    files = Dataset.list_files(pattern, shuffle=False)
    assert [os.fsdecode(name) for name in files] == names and len(files) == 9
    shuffled = Dataset.list_files(pattern, seed=1)
    one, two = elements(shuffled), elements(shuffled)
    assert sorted(one) == sorted(two) == [name.encode() for name in names]
    assert one != two
    assert elements(Dataset.list_files(pattern, seed=1)) == one
    patterns = [str(tmp_path / "1.txt"), str(tmp_path / "[23].txt")]
    several = Dataset.list_files(patterns, shuffle=False)
    assert len(elements(several)) == 3
    assert len(elements(Dataset.list_files(tmp_path / "*.txt"))) == 9
    assert sorted(elements(TextLineDataset(Dataset.list_files(pattern)))) == sorted(numbered(9))


def test_missing_files_are_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"No files match.*\*\.none"):
        Dataset.list_files(str(tmp_path / "*.none"))
    names = [*text_files(tmp_path, 2), str(tmp_path / "missing.txt")]
    of_two_bytes = functools.partial(rx.data.FixedLengthRecordDataset, record_bytes=2)
    for make in (TextLineDataset, TFRecordDataset, of_two_bytes):
        iterator = iter(make(names[1]))
        with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
            next(iterator)
    iterator = iter(TextLineDataset(names))
    assert [next(iterator), next(iterator)] == [b"0", b"1"]
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        next(iterator)
    assert "TextLine" in str(TextLineDataset(names[1]))


@pytest.mark.parametrize("damage", ["cut", "flip", "no records"])
def test_damaged_files_are_named_with_the_offset(damage: str, tmp_path: Path):
    (name,) = record_files(tmp_path, 3)
    content = bytearray(Path(name).read_bytes())
    size = len(content) // 3
    if damage == "cut":
        content = content[: 2 * size + 5]
    elif damage == "flip":
        content[2 * size + 12] ^= 1
    else:
        content = bytearray(b"these are not the records that you are looking for")
    Path(name).write_bytes(content)
    iterator = iter(TFRecordDataset(name))
    good = 0 if damage == "no records" else 2
    assert [next(iterator) for _ in range(good)] == numbered(good)
    with pytest.raises(rx.errors.DataLossError, match=r"0\.tfrecord") as caught:
        next(iterator)
    assert str(good * size) in str(caught.value)
    assert next(iterator, None) is None


def test_a_file_is_opened_when_it_is_reached(tmp_path: Path):
    names = text_files(tmp_path, 2, 2)
    Path(names[1]).rename(tmp_path / "elsewhere")
    iterator = iter(TextLineDataset(names).map(lambda x: x))
    assert [next(iterator), next(iterator)] == [b"0", b"1"]
    (tmp_path / "elsewhere").rename(names[1])
    assert elements(iterator) == [b"2", b"3"]


def test_files_are_closed(tmp_path: Path):
    (name,) = record_files(tmp_path, 200)

    def open_files() -> int:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(os.path.exists(link) and os.path.realpath(link) == name for link in links)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("no list of open files here")
    iterator = iter(TFRecordDataset(name).map(lambda x: x).batch(3))
    next(iterator)
    iterator.close()
    assert open_files() == 0
    for _ in TFRecordDataset(name).prefetch(2):
        break
    assert elements(TFRecordDataset(name).take(2)) == numbered(2)
    gc.collect()
    assert open_files() == 0


def test_functions_of_records_run_for_those_that_are_used(tmp_path: Path):
    calls = Calls()
    dataset = TFRecordDataset(record_files(tmp_path, 20)).map(calls.of())

    def records() -> list[bytes]:  # not what stands for a record when it is looked for parsing
        return [call for call in calls if isinstance(call, bytes)]

    assert elements(dataset.shuffle(20, seed=1).take(2)) == records()
    calls.clear()
    assert elements(dataset.shard(5, 1).batch(4)) == [records()]


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    for name in ("pyarrow", "pyarrow.parquet", "array_record", "array_record.python"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pyarrow.*pip install 'replicax\[parquet\]'"):
        rx.data.ParquetDataset("a.parquet")
    with pytest.raises(ImportError, match=r"array-record.*pip install 'replicax\[arrayrecord\]'"):
        rx.data.ArrayRecordDataset("a.array_record")


def test_parquet_rows_are_dicts(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    table = pyarrow.table(
        {
            "x": np.arange(6, dtype=np.float32),
            "t": [f"n{i}" for i in range(6)],
            "v": pyarrow.array([[i, i + 1] for i in range(6)]),
        }
    )
    name = str(tmp_path / "a.parquet")
    parquet.write_table(table, name, row_group_size=4)
    rows = elements(rx.data.ParquetDataset(name))
    assert rows[5] == {"x": 5.0, "t": b"n5", "v": [5, 6]} and len(rows) == 6
    assert elements(rx.data.ParquetDataset(name, columns=["x"]).batch(4))[1] == {"x": [4.0, 5.0]}
