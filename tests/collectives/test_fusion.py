"""Packs of small tensors: a partition, within the limit, that changes no result."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from replicax._src.collectives._fusion import DEFAULT_BYTES_PER_PACK, plan_packs
from replicax._src.devices import BETWEEN_WORKERS, IN_ONE_PROCESS, Packing
from tests.replicas import mirrored, on_devices

SHAPES = st.lists(st.integers(0, 9), max_size=3).map(tuple)
DTYPES = st.sampled_from(["float32", "int32", "float16", "int8", "complex64"])
TENSORS = st.lists(st.tuples(SHAPES, DTYPES), max_size=12)


def size_of(tensor: Any) -> int:
    return math.prod(tensor.shape) * tensor.dtype.itemsize


@given(
    TENSORS,
    st.sampled_from([0, 1, 16, 200, 1 << 12, 1 << 30]),
    st.sampled_from([IN_ONE_PROCESS, BETWEEN_WORKERS, Packing(1 << 12, 2)]),
)
def test_packs_partition_the_tensors(tensors: Any, limit: int, packing: Packing):
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in tensors]
    packs = plan_packs(arrays, limit, packing)
    assert sorted(index for pack in packs for index in pack) == list(range(len(arrays)))
    for pack in packs:
        looks = [(arrays[index].dtype, arrays[index].shape) for index in pack]
        assert len({dtype for dtype, _ in looks}) == 1
        assert max(map(looks.count, looks)) <= (packing.most_alike or len(arrays))
        runs = [look for look, _ in itertools.groupby(looks)]
        assert len(runs) == len(set(runs)), "those of one shape are next to each other"
        if len(pack) > 1:
            assert sum(size_of(arrays[i]) for i in pack) <= (limit or DEFAULT_BYTES_PER_PACK)
    for look in {(array.dtype, array.shape) for array in arrays}:
        packed = [i for pack in packs for i in pack if (arrays[i].dtype, arrays[i].shape) == look]
        assert packed == sorted(packed), "tensors of one shape stay in their order"


def test_small_tensors_go_together_and_large_ones_alone():
    small, large = (
        jax.ShapeDtypeStruct((8,), "float32"),
        jax.ShapeDtypeStruct((1 << 20,), "float32"),
    )
    assert plan_packs([small, large, small, small], 0) == [[0, 2, 3], [1]]
    assert plan_packs([small, small], 1) == [[0], [1]]


def test_inside_one_process_packs_have_not_too_many_tensors_of_one_shape():
    matrix, vector = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((8, 8), (8,)))
    assert plan_packs([matrix, vector, matrix, vector], 0) == [[0, 2, 1, 3]]
    packs = plan_packs([matrix, vector] * 20, 0)
    assert [len(pack) for pack in packs] == [16, 16, 8], "8 of each, then 4 of each"
    assert [len(pack) for pack in plan_packs([vector] * 40, 0, BETWEEN_WORKERS)] == [40]


@settings(max_examples=8)
@given(
    st.lists(st.tuples(SHAPES, DTYPES), min_size=1, max_size=5),
    st.sampled_from([0, 1, 40]),
    st.sampled_from(["SUM", "MEAN"]),
)
def test_packing_changes_no_result(tensors: Any, limit: int, op: str):
    strategy = mirrored(2)
    parts = [
        [(np.arange(math.prod(shape)).reshape(shape) % 7 + i).astype(dtype) for i in range(2)]
        for shape, dtype in tensors
    ]
    values = [on_devices(strategy, each) for each in parts]
    options = rx.distribute.experimental.CommunicationOptions(bytes_per_pack=limit)
    with strategy.scope():
        reduced = strategy.extended.batch_reduce_to(op, [(v, v) for v in values], options)
    for result, (first, second) in zip(reduced, parts, strict=True):
        expected = (first + second) / (2 if op == "MEAN" else 1)
        for part in result.values:
            np.testing.assert_allclose(part, expected, rtol=1e-3)
            assert part.shape == expected.shape


@pytest.mark.parametrize("num_packs", [0, 1, 2, 100])
@pytest.mark.parametrize(
    "kind", [rx.distribute.NcclAllReduce, rx.distribute.HierarchicalCopyAllReduce]
)
def test_any_number_of_packs_gives_the_same_sums(kind: Any, num_packs: int):
    strategy = mirrored(3, cross_device_ops=kind(num_packs=num_packs))
    values = [
        on_devices(strategy, [jnp.full(size, float(i)) for i in range(3)]) for size in (1, 5, 0, 7)
    ]
    total = strategy.reduce("SUM", values, axis=None)
    for array, size in zip(total, (1, 5, 0, 7), strict=True):
        np.testing.assert_array_equal(array, np.full(size, 3.0))
