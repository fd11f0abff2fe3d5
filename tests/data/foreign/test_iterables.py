"""Data sets of plain iterables, iterators and sources by index, and what is none."""

import collections
import dataclasses
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.data import stand_ins
from tests.data.foreign.sources import batches, from_source, rest_after, rows_of_workers, steps
from tests.pipelines import Dataset, elements, flat, on_host, plain, shares

# ------------------------------------------------------------------ plain iterables


class Batches:
    """An iterable that can be read again and again."""

    def __init__(self, *batches: Any):
        self._batches = batches
        self.walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return iter(self._batches)


def test_an_iterable_of_batches_goes_in_directly_epoch_after_epoch():
    source = Batches(*batches(4, 4, 3))
    dataset = on_host(source, 2)
    for _ in range(2):
        found = [shares(value) for value in dataset]
        assert found == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10]]]
    assert source.walks == 2
    assert dataset.cardinality == rx.data.UNKNOWN_CARDINALITY


def test_on_the_devices_of_a_strategy():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for source in (Batches(*batches(4, 3)), iter(batches(4, 3))):
        found = [shares(value) for value in strategy.experimental_distribute_dataset(source)]
        assert found == [[[0, 1], [2, 3]], [[4, 5], [6]]]
    dataset = strategy.distribute_datasets_from_function(lambda context: Batches(*batches(2, 2, 1)))
    found = [shares(value) for value in dataset]
    assert found == [[[0, 1], [2, 3]], [[4], []]]


def test_a_list_of_batches_is_read_item_by_item():
    pairs = [(x, {"y": x * 10}) for x in batches(2, 2, 1)]
    assert elements(from_source(pairs)) == elements(pairs)
    assert from_source(pairs).cardinality() == 3
    assert steps(pairs) == [[[0], [1]], [[2], [3]], [[4], []]]
    assert elements(from_source([])) == []


def test_structures_and_types_of_plain_elements():
    Pair = collections.namedtuple("Pair", "a b")
    element = Pair(np.zeros(2, np.uint8), {"text": "x", "number": 1.5, "list": [1, 2]})
    [found] = from_source(Batches(element))
    assert type(found) is Pair
    assert found.a.dtype == np.uint8
    assert found.b["text"] == b"x"
    assert found.b["number"].dtype == np.float32
    assert found.b["list"].dtype == np.int32


def test_what_is_seen_of_batches_says_nothing_about_the_size_of_others():
    spec = rx.TensorSpec([None], np.int32)
    assert from_source(Batches(*batches(4, 4, 3))).element_spec == spec
    assert from_source(iter(batches(4, 4, 3))).element_spec == spec
    rows = from_source(Batches((np.zeros(3, np.float32), 1), (np.zeros(3, np.float32), 2)))
    shapes = [each.shape for each in rows.element_spec]
    assert shapes == [(3,), ()]  # rows, not batches: these shapes are theirs


def test_a_stream_in_the_middle_of_its_walk_is_not_opened_to_look_at_it():
    source = Batches(*batches(4, 4, 3))
    dataset = from_source(source)
    iterator = iter(dataset)
    next(iterator)
    assert dataset.element_spec == rx.TensorSpec([None], np.int32)
    assert source.walks == 1


def test_a_stream_continues_by_reading_and_dropping():
    assert rest_after(lambda: from_source(Batches(*batches(2, 2, 2, 1))), 2) == (
        [[4, 5], [6]],
        [[4, 5], [6]],
    )
    one, other = rest_after(lambda: on_host(Batches(*batches(2, 2, 2, 1)), 1), 3)
    assert one == other == [[6]]


def test_workers_keep_their_part_of_a_stream():
    with pytest.warns(UserWarning, match="every worker reads all of"):
        one, other = rows_of_workers(lambda: Batches(*batches(4, 4, 3)), 1, 2)
    assert one == [0, 1, 4, 5, 8, 9]
    assert other == [2, 3, 6, 7, 10]


def test_the_error_of_an_iterable_comes_at_its_item_with_the_users_traceback():
    def failing() -> Iterator[Any]:
        yield from batches(2, 2)
        raise KeyError("in the user's code")

    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for source in (failing(), Dataset.from_generator(failing), failing()):
        iterator = iter(strategy.experimental_distribute_dataset(source))
        assert len([next(iterator), next(iterator)]) == 2
        with pytest.raises(KeyError, match="in the user's code") as raised:
            next(iterator)
        assert "failing" in [entry.name for entry in raised.traceback]
        assert any("at item 2" in note for note in raised.value.__notes__)


# ------------------------------------------------------------------ iterators, read once


def test_an_iterator_says_that_it_was_read():
    dataset = from_source(iter(batches(2, 2, 1)))
    assert elements(dataset) == [[0, 1], [2, 3], [4]]
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"read already.*from_generator\("):
            next(iter(dataset))


def test_a_look_at_an_iterator_takes_nothing_away():
    def generator() -> Iterator[Any]:
        yield from batches(2, 2, 1)

    dataset = from_source(generator())
    assert dataset.element_spec == rx.TensorSpec([None], np.int32)
    assert plain(next(iter(dataset))) == [0, 1]
    doubled = dataset.map(lambda x: x * 2)
    assert doubled.element_spec.dtype == np.int32
    assert elements(doubled) == [[0, 2], [4, 6], [8]]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_short_iterators(count: int):
    dataset = from_source(iter(batches(*[2] * count)))
    if count:
        assert dataset.element_spec == rx.TensorSpec([None], np.int32)
    assert len(elements(dataset)) == count


def test_two_data_sets_of_one_iterator_do_not_share_it_out():
    iterator = iter(batches(2, 2, 2, 1))
    one, other = from_source(iterator), from_source(iterator)
    assert one.element_spec == other.element_spec
    assert len(elements(one)) == 4
    with pytest.raises(RuntimeError, match="read already"):
        elements(other)


def test_walks_that_overlap_do_not_mix():
    dataset = from_source(iter(batches(1, 1, 1, 1)))
    one, other = iter(dataset), iter(dataset)
    assert plain(next(one)) == plain(next(other)) == [0]
    assert plain(next(other)) == plain(next(one)) == [1]
    assert plain(next(one)) == [2]
    with pytest.raises(RuntimeError, match="read already"):
        next(other)
    assert plain(next(one)) == [3]


def test_an_iterator_that_fails_at_once_fails_again_and_does_not_seem_empty():
    def failing() -> Iterator[Any]:
        raise OSError("no connection")
        yield

    dataset = from_source(failing())
    for _ in range(2):
        with pytest.raises(OSError, match="no connection"):
            next(iter(dataset))


def test_a_generator_is_closed_with_the_walk():
    closed = threading.Event()

    def generator() -> Iterator[Any]:
        try:
            yield from batches(*[2] * 100)
        finally:
            closed.set()

    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    iterator = iter(strategy.experimental_distribute_dataset(generator()))
    for _ in range(3):
        next(iterator)
    iterator.close()
    assert closed.wait(60)


def test_an_iterator_of_replicas_from_a_function():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = strategy.distribute_datasets_from_function(lambda context: iter(batches(2, 2, 1)))
    assert dataset.element_spec.shape == (None,)
    assert [shares(value) for value in dataset] == [[[0, 1], [2, 3]], [[4], []]]


# ------------------------------------------------------------------ sources by index


class Numbers:
    """Has a length and elements, and says what was asked for."""

    def __init__(self, size: int):
        self.size, self.asked = size, []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        assert type(index) is int
        self.asked.append(index)
        return np.int32(index)


def test_anything_with_a_length_and_elements_is_read_by_index():
    source = Numbers(1000)
    dataset = from_source(source).shuffle(1000, seed=1).skip(500).take(6).batch(3)
    assert source.asked == []
    found = flat(elements(dataset))
    assert found == source.asked
    assert len(set(found)) == 6
    assert dataset.cardinality() == 2


def test_workers_fetch_only_their_rows():
    sources = [Numbers(23) for _ in range(2)]
    given = iter(sources)
    found = rows_of_workers(lambda: from_source(next(given)).shuffle(23, seed=3).batch(8), 2, 2)
    assert sorted(flat(found)) == list(range(23))
    assert sorted(map(sorted, found)) == sorted(sorted(source.asked) for source in sources)


def test_indexed_sources_continue_by_index():
    def make() -> Any:
        return from_source(Numbers(20)).shuffle(20, seed=5).batch(3)

    one, other = rest_after(make, 4)
    assert one == other
    source = Numbers(20)
    iterator = iter(from_source(source).batch(3))
    iterator.set_state({**iterator.get_state(), "position": 5})
    assert plain(next(iterator)) == source.asked == [15, 16, 17]
    assert len(str(iterator.get_state())) < 200


def test_many_elements_are_asked_for_at_once_where_the_source_can():
    class Together(Numbers):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            self.asked.append(indices)
            return [np.int32(index) for index in indices]

    source = Together(10)
    assert elements(from_source(source).batch(4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert source.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    class Short(Numbers):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [0]

    with pytest.raises(ValueError, match="asked for 4 elements, and returned 1"):
        elements(from_source(Short(10)).batch(4))


def test_a_data_source_of_tensorflow_datasets_is_read_by_index():
    source = stand_ins.BaseDataSource(6)
    dataset = from_source(source)
    assert dataset.cardinality() == 6
    [first, _] = dataset.batch(3)
    assert first["image"].shape == (3, 2, 1) and first["image"].dtype == np.uint8
    source.asked.clear()

    def make() -> Any:
        return from_source(source).shuffle(6, seed=1).map(lambda row: row["label"]).batch(2)

    assert sorted(flat(elements(make()))) == list(range(6))
    assert all(len(keys) == 2 for keys in source.asked)
    expected, found = rest_after(make, 1)
    assert found == expected
    workers = rows_of_workers(make, 2, 2)
    assert sorted(flat(workers)) == list(range(6))


@dataclasses.dataclass
class Row:
    x: Any
    y: Any


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (lambda i: np.full(2, i, np.uint8), [[0, 0], [1, 1], [2, 2]]),
        (lambda i: (i, float(i), i > 1), ([0, 1, 2], [0.0, 1.0, 2.0], [False, False, True])),
        (lambda i: {"a": i, "b": str(i)}, {"a": [0, 1, 2], "b": [b"0", b"1", b"2"]}),
        (lambda i: {"a": {"b": (i, [i, i])}}, {"a": {"b": ([0, 1, 2], [[0, 0], [1, 1], [2, 2]])}}),
        (lambda i: (np.float32(i), jnp.full(1, i)), ([0.0, 1.0, 2.0], [[0], [1], [2]])),
        (lambda i: b"x" * i, [b"", b"x", b"xx"]),
        (
            lambda i: {"b": i, "a": 2 * i} if i else {"a": 0, "b": 0},
            {"a": [0, 2, 4], "b": [0, 1, 2]},
        ),
    ],
)
def test_rows_of_every_structure(row: Callable[[int], Any], expected: Any):
    class Rows(Numbers):
        def __getitem__(self, index: int) -> Any:
            return row(index)

    dataset = from_source(Rows(3))
    [batch] = dataset.batch(3)
    assert plain(batch) == expected
    [same] = Dataset.from_generator(lambda: iter(dataset)).batch(3)  # row by row
    assert plain(same) == expected
    assert [a.dtype for a in _leaves(same)] == [a.dtype for a in _leaves(batch)]


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = tuple(value[key] for key in sorted(value))
    return (
        [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple) else [value]
    )


def test_numbers_that_need_64_bits_keep_them():
    class Rows(Numbers):
        def __getitem__(self, index: int) -> Any:
            return 2**40 + index

    [batch] = from_source(Rows(2)).batch(2)
    assert batch.dtype == np.int64
    assert batch.tolist() == [2**40, 2**40 + 1]


def test_rows_of_different_lengths_can_be_filled_up():
    class Rows(Numbers):
        def __getitem__(self, index: int) -> Any:
            return {"x": np.arange(index)}

    dataset = from_source(Rows(3))
    assert elements(dataset.padded_batch(3)) == [{"x": [[0, 0], [0, 0], [0, 1]]}]
    with pytest.raises(ValueError, match=r"padded_batch\(\)"):
        elements(dataset.batch(3))


@pytest.mark.parametrize(
    ("row", "error", "match"),
    [
        (lambda i: 1 // (i - 5), ZeroDivisionError, "zero"),
        (lambda i: None if i == 5 else i, TypeError, "Element 5 of .* is None"),
        (lambda i: next(iter(())) if i == 5 else i, RuntimeError, "StopIteration for the elements"),
        (lambda i: object(), TypeError, "cannot be in an element of a data set"),
        (lambda i: (i,) * (1 + (i == 5)), ValueError, "one structure"),
    ],
)
def test_errors_of_an_indexed_source_name_it_and_the_elements(row: Any, error: Any, match: str):
    class Rows(Numbers):
        def __getitem__(self, index: int) -> Any:
            return row(index)

    iterator = iter(from_source(Rows(8)).batch(4))
    with pytest.raises(error, match=match) as raised:
        elements(iterator)
    text = str(raised.value) + "".join(getattr(raised.value, "__notes__", []))
    assert "Rows" in text
    assert error is RuntimeError or "the elements" in text


# ------------------------------------------------------------------ what is no data set


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (np.zeros((4, 2)), r"float64\[4,2\] is no data set.*from_tensor_slices\(arrays\).batch\("),
        (jnp.zeros(4), r"from_tensor_slices\(arrays\)"),
        ((np.zeros(4), np.zeros(4)), r"from_tensor_slices\(arrays\)"),
        ({"x": np.zeros(4), "y": {"z": np.zeros(4)}}, r"from_tensor_slices\(arrays\)"),
        ([np.zeros(4), np.zeros(4)], r"from_tensor_slices\(arrays\).*from_generator\(lambda: bat"),
        ([[1, 2], [3, 4]], r"from_tensor_slices\(arrays\)"),
        ([1, 2, 3], r"from_tensor_slices\(arrays\)"),
        (stand_ins.Tensor(np.zeros(4)), r"from_tensor_slices\(arrays\)"),
        (7, "is no data set"),
        ("train.tfrecord", r"rx.data.TFRecordDataset\(names\)"),
        (["a.tfrecord", "b.tfrecord"], r"rx.data.TFRecordDataset\(names\)"),
        (Path("train.txt"), r"rx.data.TextLineDataset\(names\)"),
        (lambda: iter([]), r"from_generator\(function\)"),
        ({"train": Batches()}, "Pass an rx.data.Dataset, an iterable of batches"),
        (stand_ins.DatasetDict(train=1.5, test=Batches()), r"such as datasets\['train'\]"),
        (None, "Pass an rx.data.Dataset"),
    ],
)
def test_what_is_no_data_set_is_refused_with_the_line_to_write(source: Any, match: str):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for take in (from_source, strategy.experimental_distribute_dataset):
        with pytest.raises(TypeError, match=match):
            take(source)
    with pytest.raises(TypeError):
        strategy.distribute_datasets_from_function(lambda context: source)


def test_a_table_of_columns_is_refused_with_its_line():
    class Frame:
        columns = ["x"]
        shape = (3, 1)
        dtype = "object"

        def items(self) -> Any: ...

        def __array__(self) -> Any: ...

        def __iter__(self) -> Any:
            return iter(self.columns)

    with pytest.raises(TypeError, match=r"from_tensor_slices\(dict\(frame\)\)"):
        from_source(Frame())


def test_what_is_distributed_is_not_distributed_again():
    dataset = on_host(Batches(*batches(2, 2)), 2)
    for source in (dataset, iter(dataset)):
        with pytest.raises(TypeError, match="distributed already"):
            from_source(source)


def test_nothing_is_imported_that_is_not_met():
    program = """
import sys
import numpy as np
import replicax as rx
from_source = rx.data.Dataset.from_source
list(from_source([(np.zeros(2),)]))
list(from_source(iter([np.zeros(2)])))
try:
    from_source(np.zeros(2))
except TypeError:
    pass
names = ("torch", "tensorflow", "grain", "datasets", "pyarrow", "array_record", "pandas")
print([name for name in names if name in sys.modules])
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=500
    )
    assert found.stdout.strip() == "[]", found.stderr
