"""A variable in parts does what the array does that it stands for: random operations, in turns."""

# Looks into what workers and servers tell each other.
# pyright: basic

import itertools
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.parameter_servers._shard_info import made_in_parts
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


def first_values(shape: Any = (7, 2), dtype: Any = np.int32) -> Any:
    """A function that makes parts: each number is that of its row."""

    def make(shard_info: Any) -> np.ndarray:
        (rows, width), (start, _) = shard_info
        return np.arange(start, start + rows)[:, None] * np.ones((1, width), int)

    found = made_in_parts({"initial_value": make, "shape": shape, "dtype": dtype})
    assert found is not None
    return found


def test_made_part_by_part(cluster: Cluster):
    def make(index: int, name: str, part: Any) -> Any:
        assert part.shape[0] <= 3 and name == f"table/part_{index}"
        return cluster.variable(part, index % 2)

    values = first_values()
    table = ShardedVariable.part_by_part(cluster.view, make, [0, 3, 5, 7], values, name="table")
    assert (table.name, table.shape, table.dtype) == ("table:0", (7, 2), np.int32)
    expected = np.arange(7)[:, None] * np.ones((1, 2), int)
    np.testing.assert_array_equal(table.numpy(), expected)
    np.testing.assert_array_equal(values.all(), expected)


def test_a_part_of_another_shape():
    text = r"part of shape \(2, 3\) that begins at \(1, 0\), and returned .* shape \(2, 2\)"
    found = first_values(shape=(7, 3))._replace(make=lambda info: np.zeros((2, 2)))
    with pytest.raises(ValueError, match=text):
        found.part(1, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"initial_value": lambda shard_info: 0, "shape": (7, 2)},  # as in TensorFlow
        {"initial_value": lambda shard_info: 0, "dtype": np.int32},
        {"initial_value": lambda shard_info: 0, "shape": (None, 2), "dtype": np.int32},
        {"initial_value": lambda: 0, "shape": (7, 2), "dtype": np.int32},
        {"initial_value": np.zeros((7, 2)), "shape": (7, 2), "dtype": np.int32},
        {"initial_value": dict, "shape": 7, "dtype": np.int32},
    ],
)
def test_what_is_made_as_a_whole(arguments: Any):
    assert made_in_parts(arguments) is None


def test_parts_that_are_asked_for_by_two_arguments():
    def make(partition_shape: Any, partition_offset: Any) -> Any:
        return np.full(partition_shape, partition_offset[0])

    found = made_in_parts({"initial_value": make, "shape": 7, "dtype": np.int32})
    assert found is not None
    np.testing.assert_array_equal(found.part(4, 6), [4, 4])
