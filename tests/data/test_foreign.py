"""Data sets of other libraries and plain iterables: contents, order, sharding, state, errors.

Each test of a library runs against its stand-in (`stand_ins.py`), and against the library itself
where it is installed.
"""

import collections
import dataclasses
import gc
import importlib
import itertools
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.data import stand_ins
from tests.pipelines import POLICY, Dataset, all_workers, elements, flat, on_host, plain, shares

from_source = Dataset.from_source
LIBRARIES = ("torch", "grain", "tensorflow", "datasets")


@pytest.fixture(scope="module", autouse=True)
def libraries() -> dict[str, Any]:
    """Those that are installed. Imported before the first test: they change the environment."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in LIBRARIES:
            try:
                found[name] = importlib.import_module(name)
            except ImportError:
                continue
        if "datasets" in found:
            found["datasets"].disable_progress_bars()
            importlib.import_module("tqdm").tqdm.monitor_interval = 0  # it would start a thread
    return found


def installed(libraries: dict[str, Any], name: str) -> Any:
    if name not in libraries:
        pytest.skip(f"{name} is not installed")
    return libraries[name]


def steps(dataset: Any, replicas: int = 2) -> list[Any]:
    """What the replicas of one worker get of the first leaf, step for step."""
    with on_host_iterator(dataset, replicas) as iterator:
        return [shares(_first_leaf(value)) for value in iterator]


def _first_leaf(value: Any) -> Any:
    while isinstance(value, tuple | dict):
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return value


class on_host_iterator:
    """An iterator over a distributed data set that is closed in the end."""

    def __init__(self, *args: Any):
        self._iterator = iter(on_host(*args))

    def __enter__(self) -> Any:
        return self._iterator

    def __exit__(self, *error: object) -> None:
        self._iterator.close()


def rest_after(make: Callable[[], Any], received: int) -> tuple[list[Any], list[Any]]:
    """What follows after some elements, and what follows where a new data set continues there."""
    one, other = iter(make()), iter(make())
    for _ in range(received):
        next(one)
    other.set_state(one.get_state())
    return elements(one), elements(other)


def rows_of_workers(make: Callable[[], Any], replicas: int, workers: int) -> list[list[Any]]:
    """All rows that each worker gets, if their elements are single leaves."""
    found, _ = all_workers(make, replicas, workers)
    return [flat(each) for each in found]


# ------------------------------------------------------------------ plain iterables


class Batches:
    """An iterable that can be read again and again."""

    def __init__(self, *batches: Any):
        self._batches = batches
        self.walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return iter(self._batches)


def batches(*sizes: int) -> list[np.ndarray]:
    """Batches of these sizes; their rows are numbered through."""
    ends = list(itertools.accumulate(sizes))
    return [np.arange(end - size, end, dtype=np.int32) for size, end in zip(sizes, ends)]


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
    assert closed.wait(5)


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
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
    )
    assert found.stdout.strip() == "[]", found.stderr


# ------------------------------------------------------------------ torch


@pytest.fixture(params=["stand-in", "installed"])
def torch(
    request: pytest.FixtureRequest, libraries: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Any:
    if request.param == "stand-in":
        module = stand_ins.torch_module()
        monkeypatch.setitem(sys.modules, "torch", module)
        return module
    module = installed(libraries, "torch")
    monkeypatch.setattr(
        module, "bfloat16_tensor", lambda x: module.as_tensor(x).bfloat16(), raising=False
    )
    return module


def torch_rows(torch: Any, size: int, row: Callable[[int], Any]) -> Any:
    """A map-style data set that remembers what was asked for."""

    class Rows(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.asked: list[int] = []

        def __len__(self) -> int:
            return size

        def __getitem__(self, index: int) -> Any:
            self.asked.append(index)
            return row(index)

    return Rows()


def test_batches_of_a_torch_loader_are_tuples_dicts_and_texts(torch: Any):
    def row(index: int) -> Any:
        x = torch.as_tensor(np.full(2, index, np.float32))
        return x, {"name": f"row {index}", "pair": (x, np.float32(index))}

    loader = torch.utils.data.DataLoader(torch_rows(torch, 5, row), batch_size=2)
    dataset = from_source(loader)
    first, _, last = dataset
    assert plain(first) == (
        [[0, 0], [1, 1]],
        {"name": [b"row 0", b"row 1"], "pair": ([[0, 0], [1, 1]], [0, 1])},
    )
    assert plain(last) == ([[4, 4]], {"name": [b"row 4"], "pair": ([[4, 4]], [4])})
    assert dataset.cardinality() == len(dataset) == 3
    assert dataset.element_spec[0] == rx.TensorSpec([None, 2], np.float32)
    assert dataset.element_spec[1]["name"] == rx.TensorSpec([None], rx.string)
    assert elements(dataset) == elements(dataset)
    assert steps(loader)[-1] == [[[4.0, 4.0]], []]


def test_a_torch_loader_of_texts_alone(torch: Any):
    loader = torch.utils.data.DataLoader(torch_rows(torch, 3, str), batch_size=2)
    assert elements(from_source(loader)) == [[b"0", b"1"], [b"2"]]


def test_a_torch_loader_that_drops_the_last_batch_has_one_size(torch: Any):
    rows = torch_rows(torch, 5, lambda i: np.float32(i))
    dataset = from_source(torch.utils.data.DataLoader(rows, batch_size=2, drop_last=True))
    assert dataset.element_spec == rx.TensorSpec([2], np.float32)
    assert elements(dataset) == [[0, 1], [2, 3]]
    assert dataset.cardinality() == 2


def test_a_torch_loader_without_batches_yields_rows(torch: Any):
    rows = torch_rows(torch, 3, lambda i: (np.zeros(2, np.float32), "text"))
    loader = torch.utils.data.DataLoader(rows, batch_size=None)
    assert elements(from_source(loader)) == [([0.0, 0.0], b"text")] * 3
    with pytest.raises(ValueError, match=r"batch\(...\)"):
        steps(loader)


def test_a_torch_loader_continues(torch: Any):
    rows = torch_rows(torch, 7, lambda i: np.float32(i))
    loader = torch.utils.data.DataLoader(rows, batch_size=2)
    assert rest_after(lambda: from_source(loader), 2) == ([[4, 5], [6]],) * 2


def test_rows_of_a_torch_data_set_are_shuffled_and_sharded_by_index(torch: Any):
    made: list[Any] = []

    def make() -> Any:
        made.append(torch_rows(torch, 11, lambda i: torch.as_tensor(np.float32(i))))
        return from_source(made[-1]).shuffle(11, seed=2).batch(4)

    found = rows_of_workers(make, 1, 2)
    assert sorted(flat(found)) == list(range(11))
    assert sorted(map(sorted, found)) == sorted(sorted(each.asked) for each in made)
    assert len(elements(make())) == 3


def test_rows_of_a_torch_data_set_must_be_batched(torch: Any):
    rows = torch_rows(torch, 4, lambda i: (np.zeros(3, np.float32), i))
    with pytest.raises(ValueError, match=r"not batched.*from_source\(data_set\).batch\("):
        on_host(rows, 2)
    assert rows.asked == []


def test_rows_of_a_torch_data_set_of_every_structure(torch: Any):
    def tensor(value: Any) -> Any:
        return torch.as_tensor(np.asarray(value, np.float32))

    cases = [
        (lambda i: [tensor(i), i], ([0, 1], [0, 1])),
        (lambda i: {"x": tensor([i, i]), "y": str(i)}, {"x": [[0, 0], [1, 1]], "y": [b"0", b"1"]}),
        (lambda i: (tensor(i), [tensor(i), (i, 1.5)]), ([0, 1], ([0, 1], ([0, 1], [1.5, 1.5])))),
        (lambda i: collections.UserDict(x=tensor(i)), {"x": [0, 1]}),
        (tensor, [0, 1]),
    ]
    for row, expected in cases:
        dataset = from_source(torch_rows(torch, 2, row))
        assert elements(dataset.batch(2)) == [expected]
        assert len(list(dataset)) == 2
    ragged = from_source(torch_rows(torch, 2, lambda i: tensor([1.0] * (i + 1))))
    assert elements(ragged.padded_batch(2)) == [[[1, 0], [1, 1]]]


def test_bfloat16_of_torch_stays_bfloat16(torch: Any):
    x = np.array([[1, 2], [-3, 0.5]], np.float32)
    rows = torch_rows(torch, 2, lambda i: torch.bfloat16_tensor(x[i]))
    [batch] = from_source(rows).batch(2)
    assert batch.dtype == jnp.bfloat16
    assert batch.astype(np.float32).tolist() == x.tolist()


def test_a_torch_tensor_data_set_is_read_as_arrays(torch: Any):
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.arange(4, dtype=np.int32)
    source = torch.utils.data.TensorDataset(torch.as_tensor(x), torch.as_tensor(y))
    dataset = from_source(source)
    assert elements(dataset.batch(3)) == [(x[:3].tolist(), [0, 1, 2]), (x[3:].tolist(), [3])]
    assert dataset.element_spec == (
        rx.TensorSpec([2], np.float32),
        rx.TensorSpec([], np.int32),
    )


def test_a_torch_iterable_data_set_is_a_stream_whatever_length_it_claims(torch: Any):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter([torch.as_tensor(batch) for batch in batches(2, 2, 1)])

        def __len__(self) -> int:
            return 1000  # an estimate, as torch says

    for source in (Stream(), torch.utils.data.DataLoader(Stream(), batch_size=None)):
        assert from_source(source).cardinality() == rx.data.UNKNOWN_CARDINALITY
        assert steps(source) == [[[0], [1]], [[2], [3]], [[4], []]]


def test_a_torch_data_set_may_fill_its_tensor_again(torch: Any):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            buffer = torch.as_tensor(np.zeros(2, np.float32))
            for number in range(3):
                yield buffer.fill_(number)

    for source in (Stream(), torch.utils.data.DataLoader(Stream(), batch_size=None)):
        assert elements(from_source(source).batch(3)) == [[[0, 0], [1, 1], [2, 2]]]


def test_a_torch_data_set_without_a_length_is_refused(torch: Any):
    class Rows(torch.utils.data.Dataset):
        pass

    with pytest.raises(TypeError, match="Rows .torch. has no length"):
        from_source(Rows())


class Squares:
    """Made a torch data set in the test below; here because workers of torch look it up."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return np.full(2, index, np.float32), np.int32(index * index)


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.parametrize("persistent", [False, True])
def test_a_torch_loader_with_workers_beside_the_thread_that_reads_ahead(
    libraries: dict[str, Any], persistent: bool
):
    torch = installed(libraries, "torch")
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=8, num_workers=2, persistent_workers=persistent
    )
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = strategy.experimental_distribute_dataset(loader)
    expected = [index * index for index in range(40)]
    for _ in range(2):
        assert flat([shares(y) for _, y in dataset]) == expected
    iterator = iter(dataset)
    next(iterator)
    assert iterator.element_spec[0].shape == (None, 2)  # without another walk
    state = iterator.get_state()
    rest = [shares(y) for _, y in iterator]
    again = iter(dataset)
    again.set_state(state)
    assert [shares(y) for _, y in again] == rest
    for _ in dataset:
        break
    del iterator, again, loader, dataset
    gc.collect()  # the iterators of torch end their workers


# ------------------------------------------------------------------ Grain


@pytest.fixture(params=["stand-in", "installed"])
def grain_map(request: pytest.FixtureRequest, libraries: dict[str, Any]) -> Any:
    """Makes a MapDataset of a function of the index."""
    if request.param == "stand-in":
        return lambda get, size: stand_ins.MapDataset(get, size)
    grain = installed(libraries, "grain")
    return lambda get, size: grain.MapDataset.range(size).map(get)


def test_batches_of_grain_by_index(grain_map: Any):
    sizes = [4, 4, 2]
    source = grain_map(lambda i: {"x": batches(*sizes)[i], "y": batches(*sizes)[i] * 2}, 3)
    dataset = from_source(source)
    assert dataset.cardinality() == 3
    assert dataset.element_spec["x"] == rx.TensorSpec([None], np.int32)
    assert steps(source) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8], [9]]]
    assert rest_after(lambda: from_source(source), 1)[1] == elements(dataset)[1:]


def test_rows_of_grain_are_shuffled_and_sharded_by_index(grain_map: Any):
    asked: list[int] = []

    def get(index: int) -> Any:
        asked.append(int(index))
        return np.float32(index)

    def make() -> Any:
        return from_source(grain_map(get, 13)).shuffle(13, seed=1).batch(4)

    found = rows_of_workers(make, 1, 2)
    assert sorted(flat(found)) == sorted(asked) == list(range(13))
    with pytest.raises(ValueError, match=r"batch\(...\)"):
        steps(grain_map(get, 13))


def test_gaps_of_a_grain_filter_are_named(grain_map: Any):
    source = grain_map(lambda i: None if i == 1 else np.float32(i), 4)
    with pytest.raises(TypeError, match=r"Element 1 of .* is None.*to_iter_dataset\(\)"):
        elements(from_source(source).batch(4))


def test_grain_for_ever():
    endless = stand_ins.MapDataset(lambda i: np.float32(i), sys.maxsize)
    dataset = from_source(endless)
    assert dataset.cardinality() == rx.data.INFINITE_CARDINALITY
    assert elements(dataset.skip(10).batch(2).take(2)) == [[10, 11], [12, 13]]


def test_the_grain_that_is_installed_for_ever(libraries: dict[str, Any]):
    grain = installed(libraries, "grain")
    dataset = from_source(grain.MapDataset.range(3).repeat())
    assert dataset.cardinality() == rx.data.INFINITE_CARDINALITY
    assert elements(dataset.batch(5).take(1)) == [[0, 1, 2, 0, 1]]


def test_a_stream_of_grain():
    source = stand_ins.IterDataset([(batch, batch) for batch in batches(2, 1)])
    assert steps(source) == [[[0], [1]], [[2], []]]


def test_pipelines_of_the_grain_that_is_installed(libraries: dict[str, Any]):
    grain = installed(libraries, "grain")
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    pipeline = grain.MapDataset.source(x).shuffle(seed=1).batch(2)
    assert elements(from_source(pipeline)) == elements(list(pipeline))
    stream = grain.MapDataset.range(9).filter(lambda i: i % 2 == 0).to_iter_dataset().batch(2)
    for source in (stream, iter(stream)):
        assert steps(source) == [[[0], [2]], [[4], [6]], [[8], []]]
    assert rest_after(lambda: from_source(stream), 1) == ([[4, 6], [8]],) * 2
    loader = grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, 5, 1),
        sampler=grain.samplers.SequentialSampler(5),
        operations=[grain.transforms.Batch(2)],
    )
    assert steps(loader) == [[[0], [1]], [[2], [3]], [[4], []]]
    rows = from_source(grain.sources.RangeDataSource(0, 5, 1)).batch(3)
    assert elements(rows) == [[0, 1, 2], [3, 4]]


# ------------------------------------------------------------------ tf.data


@pytest.fixture(params=["stand-in", "installed"])
def tf_pipeline(request: pytest.FixtureRequest, libraries: dict[str, Any]) -> Any:
    """Makes a tf.data.Dataset of batches of 2 rows of a dict of numbers and texts."""

    def stand_in(size: int, policy: str = "AUTO") -> Any:
        spec = {
            "x": stand_ins.TensorSpec((None, 2), "float32"),
            "s": stand_ins.TensorSpec((None,), "string"),
        }
        rows = range(size)
        found = [
            {
                "s": np.array([str(i).encode() for i in rows[first : first + 2]], object),
                "x": np.array([[i, i] for i in rows[first : first + 2]], np.float32),
            }
            for first in range(0, size, 2)
        ]
        return stand_ins.DatasetV2(found, spec, policy)

    if request.param == "stand-in":
        return stand_in
    tf = installed(libraries, "tensorflow")

    def real(size: int, policy: str = "AUTO") -> Any:
        x = np.array([[i, i] for i in range(size)], np.float32)
        rows = {"x": x, "s": [str(i) for i in range(size)]}
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = getattr(
            tf.data.experimental.AutoShardPolicy, policy
        )
        return tf.data.Dataset.from_tensor_slices(rows).batch(2).with_options(options)

    return real


def test_a_tf_data_pipeline(tf_pipeline: Any):
    dataset = from_source(tf_pipeline(5))
    assert dataset.element_spec == {
        "x": rx.TensorSpec([None, 2], np.float32),
        "s": rx.TensorSpec([None], rx.string),
    }
    assert dataset.cardinality() == len(dataset) == 3
    assert elements(dataset)[1:] == [
        {"x": [[2, 2], [3, 3]], "s": [b"2", b"3"]},
        {"x": [[4, 4]], "s": [b"4"]},
    ]
    assert elements(dataset) == elements(dataset)
    with on_host_iterator(tf_pipeline(5), 2) as iterator:
        *_, last = iterator
    assert shares(last["x"]) == [[[4, 4]], []]
    assert shares(last["s"]) == [[b"4"], []]


def test_a_tf_data_pipeline_continues(tf_pipeline: Any):
    one, other = rest_after(lambda: from_source(tf_pipeline(9)), 3)
    assert one == other
    assert len(one) == 2
    everything = from_source(tf_pipeline(4)).skip(5)  # more than there are
    assert elements(everything) == []
    again = from_source(tf_pipeline(4)).repeat(2)
    assert elements(again.skip(3)) == elements(again)[3:]


def test_the_shard_policy_of_a_tf_data_pipeline_is_kept(tf_pipeline: Any):
    for name, policy in [("AUTO", POLICY.DATA), ("OFF", POLICY.OFF), ("DATA", POLICY.DATA)]:
        dataset = on_host(tf_pipeline(4, name), 2)
        assert f"policy: {policy.name} (" in str(dataset)


def test_skipping_is_left_to_tf_data():
    source = stand_ins.DatasetV2(batches(2, 2, 2), stand_ins.TensorSpec((None,), "int32"))
    assert elements(from_source(source).skip(2)) == [[4, 5]]
    assert source.skipped == 2


def test_what_is_no_array_in_tf_data_is_refused():
    ragged = {"r": (stand_ins.RaggedTensorSpec((None, None), "int32"),)}
    with pytest.raises(TypeError, match=r"element\['r'\]\[0\] .* RaggedTensorSpec.*to_tensor\(\)"):
        from_source(stand_ins.DatasetV2([], ragged))


def test_what_is_no_array_in_the_tf_data_that_is_installed_is_refused(libraries: dict[str, Any]):
    tf = installed(libraries, "tensorflow")
    data, rows = tf.data.Dataset, tf.ragged.constant([[1], [2, 3]])
    for source, match in [
        (data.from_tensor_slices(rows).batch(2), r"RaggedTensorSpec.*to_tensor"),
        (data.from_tensor_slices(tf.sparse.eye(3)).batch(2), r"SparseTensorSpec.*to_dense"),
        (data.range(4).window(2), r"DatasetSpec.*flat_map"),
    ]:
        with pytest.raises(TypeError, match=match):
            from_source(source)


def test_pipelines_of_the_tf_data_that_is_installed(libraries: dict[str, Any]):
    tf = installed(libraries, "tensorflow")
    x = np.arange(6, dtype=np.float32)
    Pair = collections.namedtuple("Pair", "a b")
    pairs = from_source(tf.data.Dataset.from_tensor_slices(Pair(x, {"c": x})).batch(4))
    assert elements(pairs)[1] == Pair([4, 5], {"c": [4, 5]})
    half = from_source(tf.data.Dataset.from_tensor_slices(tf.cast(x, tf.bfloat16)).batch(4))
    assert half.element_spec.dtype == jnp.bfloat16
    assert [batch.astype(np.float32).tolist() for batch in half] == [[0, 1, 2, 3], [4, 5]]
    fixed = from_source(tf.data.Dataset.range(5).batch(2, drop_remainder=True))
    assert fixed.element_spec == rx.TensorSpec([2], np.int64) or fixed.element_spec.shape == (2,)
    endless = from_source(tf.data.Dataset.range(3).batch(2).repeat())
    assert endless.cardinality() == rx.data.INFINITE_CARDINALITY
    kept = from_source(tf.data.Dataset.range(9).filter(lambda i: i % 2 == 0).batch(2))
    assert kept.cardinality() == rx.data.UNKNOWN_CARDINALITY
    assert elements(kept) == [[0, 2], [4, 6], [8]]
    with pytest.raises(TypeError, match="from_tensor_slices"):
        from_source(tf.constant(x))


# ------------------------------------------------------------------ Hugging Face


def test_columns_of_a_format_are_read_by_index(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", stand_ins.torch_module())
    source = stand_ins.ArrowDataset(
        {
            "x": np.arange(10, dtype=np.float32).reshape(5, 2),
            "s": list("abcde"),
            "t": [stand_ins.Tensor(np.float32(i)) for i in range(5)],
            "d": [{"a": i} for i in range(5)],
        }
    )
    dataset = from_source(source)
    assert elements(dataset.batch(2))[1] == {
        "x": [[4, 5], [6, 7]],
        "s": [b"c", b"d"],
        "t": [2, 3],
        "d": {"a": [2, 3]},
    }
    assert source.asked == [slice(0, 2, 1), slice(2, 4, 1), slice(4, 5, 1)]
    source.asked.clear()
    dataset = from_source(stand_ins.ArrowDataset({"s": list("abc")})).shuffle(3, seed=0)
    assert sorted(row["s"] for row in dataset) == [b"a", b"b", b"c"]
    with pytest.raises(ValueError, match="not batched"):
        on_host(source, 2)


def test_rows_of_a_hugging_face_stream_without_features():
    rows = [{"x": np.full(2, i, np.uint8), "y": i, "l": [0.5, i]} for i in range(5)]
    dataset = from_source(stand_ins.StreamedDataset(rows))
    [batch] = dataset.batch(5)
    assert {name: batch[name].dtype.name for name in batch} == {
        "x": "uint8",
        "y": "int32",
        "l": "float32",
    }
    assert rest_after(lambda: dataset, 3)[1] == elements(rows[3:])
    assert dataset.cardinality() == rx.data.UNKNOWN_CARDINALITY


@pytest.fixture
def hugging_face(libraries: dict[str, Any]) -> Any:
    return installed(libraries, "datasets")


def all_types(hf: Any, size: int) -> Any:
    features = hf.Features(
        {
            "i": hf.Value("int32"),
            "u": hf.Value("uint8"),
            "d": hf.Value("float64"),
            "s": hf.Value("string"),
            "b": hf.Value("bool"),
            "v": hf.List(hf.Value("float32"), length=2),
            "r": hf.List(hf.Value("int64")),
            "a": hf.Array2D((2, 2), "uint8"),
            "c": hf.ClassLabel(names=["no", "yes"]),
        }
    )
    rows = range(size)
    return hf.Dataset.from_dict(
        {
            "i": list(rows),
            "u": [i % 256 for i in rows],
            "d": [i + 0.1 for i in rows],
            "s": [f"é{i}" for i in rows],
            "b": [i % 2 == 0 for i in rows],
            "v": [[i, i + 0.5] for i in rows],
            "r": [[i] * 3 for i in rows],
            "a": [[[i, 1], [2, 3]] for i in rows],
            "c": [i % 2 for i in rows],
        },
        features=features,
    )


def test_columns_of_hugging_face_keep_their_types(hugging_face: Any):
    source = all_types(hugging_face, 7)
    for dataset in (from_source(source), from_source(source.to_iterable_dataset())):
        spec = dataset.element_spec
        assert {name: (spec[name].shape, spec[name].dtype) for name in spec} == {
            "i": ((), np.int32),
            "u": ((), np.uint8),
            "d": ((), np.float64),
            "s": ((), object),
            "b": ((), bool),
            "v": ((2,), np.float32),
            "r": ((None,), np.int64),
            "a": ((2, 2), np.uint8),
            "c": ((), np.int64),
        }
        first, second = dataset.batch(4)
        assert {name: first[name].dtype for name in first} == {
            name: spec[name].dtype for name in spec
        }
        assert second["d"].tolist() == [4.1, 5.1, 6.1]
        assert second["s"].tolist() == ["é4".encode(), "é5".encode(), "é6".encode()]
        assert second["v"].tolist() == [[4, 4.5], [5, 5.5], [6, 6.5]]
        assert second["r"].tolist() == [[4] * 3, [5] * 3, [6] * 3]
        assert second["a"][0].tolist() == [[4, 1], [2, 3]]
        assert elements(row["i"] for row in dataset) == list(range(7))


def test_rows_of_hugging_face_are_shuffled_selected_and_sharded(hugging_face: Any):
    source = all_types(hugging_face, 20).select_columns(["i"]).select(range(4, 20, 2))
    dataset = from_source(source).map(lambda row: row["i"]).shuffle(8, seed=1).batch(3)
    assert sorted(flat(elements(dataset))) == list(range(4, 20, 2))
    found = rows_of_workers(lambda: dataset, 1, 2)
    assert sorted(flat(found)) == list(range(4, 20, 2))
    one, other = rest_after(lambda: dataset, 1)
    assert one == other
    with pytest.raises(ValueError, match="not batched"):
        on_host(source, 2)


def test_batches_of_a_hugging_face_stream(hugging_face: Any):
    source = all_types(hugging_face, 100).select_columns(["i", "s"]).to_iterable_dataset()
    found = steps(source.batch(8))
    assert flat(found) == list(range(100))
    assert found[-1] == [[96, 97], [98, 99]]
    rows = from_source(source).map(lambda row: row["i"]).batch(7)
    assert rest_after(lambda: rows, 9)[1] == elements(rows)[9:]
    mapped = source.map(lambda row: {"h": np.full(2, row["i"], np.float16)})
    [batch] = from_source(mapped).take(3).batch(3)
    assert batch["h"].dtype == np.float16


def test_formats_and_transforms_of_hugging_face_are_kept(hugging_face: Any):
    source = all_types(hugging_face, 4)
    formatted = from_source(source.with_format("numpy", columns=["i", "v"]))
    assert set(next(iter(formatted))) == {"i", "v"}
    texts = source.with_transform(lambda rows: {"n": [len(s) for s in rows["s"]]})
    assert elements(from_source(texts).batch(4)) == [{"n": [2, 2, 2, 2]}]
    nested = hugging_face.Dataset.from_dict({"x": [{"a": 1, "b": [1, 2]}, {"a": 2, "b": [3, 4]}]})
    assert elements(from_source(nested).batch(2)) == [{"x": {"a": [1, 2], "b": [[1, 2], [3, 4]]}}]


def test_rows_of_hugging_face_that_are_no_arrays(hugging_face: Any):
    ragged = from_source(hugging_face.Dataset.from_dict({"x": [[1], [1, 2], []]}))
    assert elements(ragged.padded_batch(3)) == [{"x": [[1, 0], [1, 2], [0, 0]]}]
    with pytest.raises(ValueError, match=r"padded_batch\(\)"):
        elements(ragged.batch(3))
    missing = from_source(hugging_face.Dataset.from_dict({"x": [1, None]}))
    with pytest.raises(ValueError, match="'x' .* has missing values"):
        elements(missing.batch(2))
    splits = hugging_face.DatasetDict({"train": all_types(hugging_face, 2)})
    with pytest.raises(TypeError, match=r"such as datasets\['train'\]"):
        from_source(splits)
