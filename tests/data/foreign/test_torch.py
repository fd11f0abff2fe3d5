"""Data sets and loaders of torch: of its stand-in, and of torch where it is installed."""

import collections
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.data import stand_ins
from tests.data.foreign.sources import (
    batches,
    from_source,
    installed,
    rest_after,
    rows_of_workers,
    steps,
)
from tests.pipelines import elements, flat, on_host, plain, shares

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
