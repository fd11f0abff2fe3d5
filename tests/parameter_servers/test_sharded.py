"""A variable in parts does what the array does that it stands for: random operations, in turns."""

# Looks into what workers and servers tell each other.
# pyright: basic

import itertools
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.parameter_servers._sharded import ShardedVariable, offsets_of
from tests.parameter_servers.actors import Cluster

SCATTERS = {
    "scatter_add": np.add.at,
    "scatter_sub": np.subtract.at,
    "scatter_max": np.maximum.at,
    "scatter_min": np.minimum.at,
    "scatter_mul": np.multiply.at,
}


def in_parts(cluster: Cluster, value: np.ndarray, parts: int) -> ShardedVariable:
    offsets = offsets_of(len(value), parts)

    def make(index: int, name: str, part: Any) -> Any:
        return cluster.variable(part, index % 2)

    return ShardedVariable(
        cluster.view, make, lambda shape, dtype: offsets, initial_value=value, name="table"
    )


@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_as_an_array(cluster: Cluster, parts: int, dtype: Any):
    random = np.random.default_rng(parts)

    def drawn(*shape: int) -> np.ndarray:
        return random.integers(-3, 4, size=shape).astype(dtype)

    for shape in ((7,), (11, 2, 3)):
        expected = drawn(*shape)
        variable = in_parts(cluster, expected, parts)
        assert len(variable.variables) == parts and variable.shape == shape
        sizes = [part.shape[0] for part in variable.variables]
        assert sizes == sorted(sizes, reverse=True) and max(sizes) - min(sizes) <= 1
        for _ in range(8):
            rows = random.integers(shape[0], size=random.integers(6))
            match random.integers(5):
                case 0:
                    expected = drawn(*shape)
                    variable.assign(expected)
                case 1:
                    change = drawn(*shape)
                    expected = expected + change
                    variable.assign_add(change)
                case 2:
                    change = drawn(*shape)
                    expected = expected - change
                    variable.assign_sub(change)
                case 3:
                    name = random.choice(list(SCATTERS))
                    change = drawn(len(rows), *shape[1:])
                    SCATTERS[name](expected := np.array(expected), rows, change)
                    getattr(variable, name)(rx.IndexedSlices(change, rows))
                case _:
                    rows = np.unique(rows)
                    change = drawn(len(rows), *shape[1:])
                    (expected := np.array(expected))[rows] = change
                    variable.scatter_update(rx.IndexedSlices(change, rows))
            np.testing.assert_array_equal(variable.numpy(), expected)
            ids = random.integers(shape[0], size=(2, random.integers(4)))
            np.testing.assert_array_equal(variable.sparse_read(ids), expected[ids])
            np.testing.assert_array_equal(variable[1:5], expected[1:5])
            np.testing.assert_array_equal(np.asarray(variable + 1), expected + dtype(1))


def test_where_parts_begin():
    for rows, parts in itertools.product(range(1, 9), range(1, 9)):
        offsets = offsets_of(rows, parts)
        assert offsets[0] == 0 and offsets[-1] == rows and len(offsets) == min(rows, parts) + 1
        sizes = np.diff(offsets)
        assert sizes.min() >= 1 and sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("ids", [[5], [-1], [[0, 7]], [2**40]])
def test_rows_that_are_not_there(cluster: Cluster, ids: Any):
    variable = in_parts(cluster, np.zeros((5, 2), np.float32), 2)
    with pytest.raises(IndexError, match=r"has shape \(5, 2\): there is no row"):
        variable.sparse_read(np.array(ids))


@pytest.mark.parametrize("ids", [[0.0], [True]])
def test_numbers_of_rows_are_integers(cluster: Cluster, ids: Any):
    variable = in_parts(cluster, np.zeros((5, 2), np.float32), 2)
    with pytest.raises(TypeError, match="numbers of rows are integers"):
        variable.sparse_read(np.array(ids))
