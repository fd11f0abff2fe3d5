"""Data sets of Grain: of its stand-in, and of Grain where it is installed."""

import sys
from typing import Any

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
from tests.pipelines import elements, flat

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
