"""Operations of data sets: map, filter, data sets of data sets, batches, order and number."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from tests.pipelines import Dataset, elements

UNKNOWN = rx.data.UNKNOWN_CARDINALITY
INFINITE = rx.data.INFINITE_CARDINALITY


def spec(shape: Any, dtype: Any) -> Any:
    return rx.TensorSpec.on_host(shape, np.dtype(dtype))


# ------------------------------------------------------------------ map and filter


def test_map_gets_the_items_of_a_tuple():
    pairs = Dataset.from_tensor_slices((np.arange(3), np.arange(3) * 10))
    assert elements(pairs.map(lambda x, y: x + y)) == [0, 11, 22]
    assert elements(pairs.map(lambda *xy: {"sum": sum(xy), "x": xy[0]}))[1] == {"sum": 11, "x": 1}
    assert elements(pairs.map(lambda x, y: [x, y])) == [(0, 0), (1, 10), (2, 20)]
    named = Dataset.from_tensor_slices({"x": np.arange(3)})
    assert elements(named.map(lambda row: row["x"] * 2)) == [0, 2, 4]
    deep = Dataset.from_tensor_slices(((np.arange(2), np.arange(2)), np.arange(2)))
    assert elements(deep.map(lambda pair, z: pair[0] + pair[1] + z)) == [0, 3]


def test_map_may_use_jax_and_return_python():
    assert elements(Dataset.range(3).map(lambda x: jnp.square(x))) == [0, 1, 4]
    assert elements(Dataset.range(2).map(lambda x: (float(x), "t", [int(x), 2]))) == [
        (0.0, b"t", [0, 2]),
        (1.0, b"t", [1, 2]),
    ]


@pytest.mark.parametrize("options", [{}, {"num_parallel_calls": 3}, {"num_parallel_calls": -1}])
def test_parallel_calls_keep_the_order(options: Any):
    dataset = Dataset.range(20).map(lambda x: x * 2, **options).batch(8)
    assert elements(dataset) == [
        list(range(0, 16, 2)),
        list(range(16, 32, 2)),
        list(range(32, 40, 2)),
    ]


def test_the_three_kinds_of_map_agree():
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    rows = Dataset.from_tensor_slices((x, np.arange(8, dtype=np.int32)))

    def fn(row: Any, label: Any) -> Any:
        return {"x": row * 2 + 1, "label": label + 10}

    per_element = elements(rows.map(fn).batch(3))
    assert elements(rows.map(fn, vectorized=True).batch(3)) == per_element
    assert elements(rows.map(fn, on_device=True).batch(3)) == per_element
    assert elements(rows.batch(3).map(fn)) == per_element
    assert elements(rows.batch(3).map(fn, on_device=True)) == per_element
    # One by one, over a shuffle, a filter and repetitions too.
    assert elements(rows.map(fn, vectorized=True)) == elements(rows.map(fn))
    shuffled = [
        elements(rows.map(fn, **options).shuffle(5, seed=1).repeat(2).take(11).batch(4))
        for options in ({}, {"vectorized": True}, {"on_device": True})
    ]
    assert shuffled[0] == shuffled[1] == shuffled[2]


def test_specs_of_maps():
    rows = Dataset.from_tensor_slices(np.zeros((8, 3), np.float32))
    assert rows.map(lambda x: x.sum()).element_spec == spec((), np.float32)
    assert rows.map(lambda x: (x, "t")).element_spec == (spec((3,), np.float32), spec((), object))
    assert rows.map(lambda x: x[:2], on_device=True).element_spec == spec((2,), np.float32)
    batches = rows.batch(4)
    assert batches.map(lambda x: x * 2).element_spec == spec((None, 3), np.float32)
    assert batches.map(lambda x: x * 2, on_device=True).element_spec == spec((None, 3), np.float32)
    assert batches.map(lambda x: x.mean(0)).element_spec == spec((3,), np.float32)
    whole = rows.batch(4, drop_remainder=True)
    assert whole.map(lambda x: x * 2).element_spec == spec((4, 3), np.float32)
    vectorized = rows.map(lambda x: x.sum(1), vectorized=True)
    assert vectorized.element_spec == spec((), np.float32)


def test_filter_keeps_what_it_is_told():
    assert elements(Dataset.range(6).filter(lambda x: x % 2 == 0)) == [0, 2, 4]
    pairs = Dataset.from_tensor_slices((np.arange(4), np.arange(4) % 2))
    assert elements(pairs.filter(lambda x, y: y == 1)) == [(1, 1), (3, 1)]
    assert elements(Dataset.range(4).filter(lambda x: jnp.asarray(x) > 1)) == [2, 3]
    assert elements(Dataset.range(4).filter(lambda x: False)) == []
    assert Dataset.range(4).filter(lambda x: True).cardinality() == UNKNOWN
    batches = Dataset.range(9).filter(lambda x: x % 3 != 0).batch(4)
    assert elements(batches) == [[1, 2, 4, 5], [7, 8]]


# ------------------------------------------------------------------ data sets of data sets


def test_flat_map_and_interleave():
    assert elements(Dataset.range(4).flat_map(Dataset.range)) == [0, 0, 1, 0, 1, 2]
    rows = Dataset.from_tensor_slices(np.arange(6).reshape(2, 3))
    assert elements(rows.flat_map(Dataset.from_tensor_slices)) == [0, 1, 2, 3, 4, 5]

    def repeated(x: Any) -> Any:
        return Dataset.from_tensors(x).repeat(3)

    turns = Dataset.range(1, 6).interleave(repeated, cycle_length=2, block_length=2)
    assert elements(turns) == [1, 1, 2, 2, 1, 2, 3, 3, 4, 4, 3, 4, 5, 5, 5]
    by_default = Dataset.range(3).interleave(repeated)
    assert elements(by_default) == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert turns.cardinality() == UNKNOWN and turns.element_spec == spec((), int)


def test_interleave_of_data_sets_of_different_lengths():
    turns = Dataset.range(5).interleave(Dataset.range, cycle_length=3, block_length=1)
    assert sorted(elements(turns)) == sorted(n for x in range(5) for n in range(x))


def test_windows_are_data_sets():
    assert elements(Dataset.range(7).window(3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert elements(Dataset.range(7).window(3, shift=1, drop_remainder=True)) == [
        [n, n + 1, n + 2] for n in range(5)
    ]
    assert elements(Dataset.range(7).window(2, shift=3, stride=2)) == [[0, 2], [3, 5], [6]]
    assert elements(Dataset.range(7).window(2, shift=4)) == [[0, 1], [4, 5]]
    pairs = Dataset.zip(Dataset.range(4), Dataset.range(10, 14)).window(2)
    assert elements(pairs) == [([0, 1], [10, 11]), ([2, 3], [12, 13])]
    sliding = Dataset.range(5).window(3, 1, drop_remainder=True).flat_map(lambda w: w.batch(3))
    assert elements(sliding) == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


@given(
    count=st.integers(0, 12),
    size=st.integers(1, 5),
    shift=st.integers(1, 6),
    stride=st.integers(1, 3),
    drop=st.booleans(),
)
def test_windows_by_their_definition(count: int, size: int, shift: int, stride: int, drop: bool):
    dataset = Dataset.range(count).window(size, shift, stride, drop)
    wanted = [
        list(range(start, min(start + (size - 1) * stride + 1, count), stride))
        for start in range(0, count, shift)
    ]
    wanted = [window for window in wanted if not drop or len(window) == size]
    assert elements(dataset) == wanted
    assert len(dataset) == len(wanted)


# ------------------------------------------------------------------ batches


@given(count=st.integers(0, 20), size=st.integers(1, 7), drop=st.booleans())
def test_batches_by_their_definition(count: int, size: int, drop: bool):
    dataset = Dataset.range(count).batch(size, drop_remainder=drop)
    wanted = [list(range(i, min(i + size, count))) for i in range(0, count, size)]
    wanted = [batch for batch in wanted if not drop or len(batch) == size]
    assert elements(dataset) == wanted and len(dataset) == len(wanted)
    assert dataset.element_spec == spec((size if drop else None,), int)


def test_batches_of_batches():
    dataset = Dataset.range(10).batch(2).batch(2)
    assert elements(dataset) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9]]]
    assert dataset.element_spec == spec((None, None), int)
    assert elements(dataset.unbatch()) == elements(Dataset.range(10).batch(2))
    assert elements(dataset.unbatch().unbatch()) == list(range(10))
    three = Dataset.range(8).batch(2, True).batch(2, True).batch(2, True)
    assert elements(three) == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]
    assert three.element_spec == spec((2, 2, 2), int)
    with pytest.raises(ValueError, match="shapes or dtypes differ.*padded_batch"):
        list(Dataset.range(9).batch(2).batch(5))


def test_padded_batches():
    lists = Dataset.from_generator(lambda: [[1], [2, 3], [4, 5, 6], []][:3])
    assert elements(lists.padded_batch(2)) == [[[1, 0], [2, 3]], [[4, 5, 6]]]
    filled = [[1, -1, -1, -1], [2, 3, -1, -1], [4, 5, 6, -1]]
    assert elements(lists.padded_batch(3, [4], -1)) == [filled]
    assert elements(lists.padded_batch(2, drop_remainder=True)) == [[[1, 0], [2, 3]]]
    text = Dataset.from_generator(lambda: [["a"], ["b", "c"]])
    assert elements(text.padded_batch(2)) == [[[b"a", b""], [b"b", b"c"]]]
    assert elements(text.padded_batch(2, padding_values="-")) == [[[b"a", b"-"], [b"b", b"c"]]]
    (single,) = Dataset.from_tensor_slices([b"a", b"bc"]).padded_batch(2)
    assert list(map(type, single)) == [bytes, bytes] and single.tolist() == [b"a", b"bc"]
    named = Dataset.from_generator(
        lambda: [{"x": [1], "y": 1}, {"x": [1, 2], "y": 2}],
        output_signature={"x": rx.TensorSpec([None], "int32"), "y": rx.TensorSpec([], "int32")},
    )
    padded = named.padded_batch(2, {"y": [], "x": [3]}, {"y": 0, "x": 9})
    assert elements(padded) == [{"x": [[1, 9, 9], [1, 2, 9]], "y": [1, 2]}]
    assert padded.element_spec == {"x": spec((None, 3), np.int32), "y": spec((None,), np.int32)}


def test_padding_that_does_not_fit():
    lists = Dataset.from_generator(lambda: [[1], [2, 3, 4]])
    with pytest.raises(ValueError, match=r"fill element up to \(2,\).*\(3,\).*does not fit"):
        list(lists.padded_batch(2, [2]))
    mixed = Dataset.from_generator(lambda: [[1], [[2]]])
    with pytest.raises(ValueError, match="one number of dimensions"):
        list(mixed.padded_batch(2))


@given(
    count=st.integers(0, 14),
    first=st.integers(1, 5),
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    drop=st.booleans(),
)
def test_rebatch_by_its_definition(count: int, first: int, sizes: list[int], drop: bool):
    if not any(sizes):
        sizes = [*sizes, 1]
    argument = sizes if len(sizes) > 1 else sizes[0]
    dataset = Dataset.range(count).batch(first).rebatch(argument, drop_remainder=drop)
    wanted: list[list[int]] = []
    start = turn = 0
    while start < count:
        size = sizes[turn % len(sizes)]
        rows = list(range(start, min(start + size, count)))
        if len(rows) == size or not drop:
            wanted.append(rows)
        start, turn = start + size, turn + 1
    got = elements(dataset)
    while got and sizes.count(0) and not got[-1]:
        got.pop()  # empty batches after the last row are as TensorFlow likes
    while wanted and not wanted[-1]:
        wanted.pop()
    assert got == wanted


def test_unbatch_gives_the_rows_back():
    rows = Dataset.from_tensor_slices({"x": np.arange(6).reshape(3, 2), "t": ["a", "b", "c"]})
    assert elements(rows.batch(2).unbatch()) == elements(rows)
    assert elements(rows.batch(2).map(lambda b: b).unbatch()) == elements(rows)
    assert len(rows.batch(2).unbatch()) == 3
    assert rows.batch(2).unbatch().element_spec == rows.element_spec
    assert elements(Dataset.range(10).batch(3, True).unbatch()) == list(range(9))


def test_rows_that_are_no_rows_are_refused():
    with pytest.raises(ValueError, match=r"single value without rows.*\.batch"):
        list(Dataset.range(3).unbatch())
    uneven = Dataset.from_tensors((np.arange(3), np.arange(4)))
    with pytest.raises(ValueError, match=r"element\[0\] has 3, element\[1\] has 4"):
        list(uneven.unbatch())


def test_structures_that_change_within_a_batch_are_refused():
    for items in (
        [{"a": 1}, {"b": 2}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [(1, 2), (1, 2, 3)],
        [1, (1, 2)],
        [{"a": 1}, 1],
    ):
        dataset = Dataset.from_generator(lambda items=items: iter(items))
        with pytest.raises((ValueError, TypeError), match="(?i)structure"):
            list(dataset.batch(2))
        with pytest.raises((ValueError, TypeError), match="(?i)structure"):
            list(dataset.padded_batch(2))


def test_keys_in_another_order_are_the_same_structure():
    items = [{"a": 1, "b": [2]}, {"b": [20], "a": 10}]
    dataset = Dataset.from_generator(lambda: iter(items))
    assert elements(dataset.batch(2)) == [{"a": [1, 10], "b": [[2], [20]]}]
    assert elements(dataset.padded_batch(2)) == [{"a": [1, 10], "b": [[2], [20]]}]
    mapped = Dataset.range(2).map(lambda x: items[int(x)])
    assert elements(mapped.batch(2)) == [{"a": [1, 10], "b": [[2], [20]]}]
    signature = {"a": rx.TensorSpec([], "int32"), "b": rx.TensorSpec([1], "int32")}
    checked = Dataset.from_generator(lambda: iter(items), output_signature=signature)
    assert elements(checked.batch(2)) == [{"a": [1, 10], "b": [[2], [20]]}]
    one = Dataset.from_tensor_slices({"a": [1], "b": [2]})
    other = Dataset.from_tensor_slices({"b": [20], "a": [10]})
    assert elements(one.concatenate(other).batch(2)) == [{"a": [1, 10], "b": [2, 20]}]


# ------------------------------------------------------------------ order and number


def test_take_skip_and_shard():
    numbers = Dataset.range(10)
    assert elements(numbers.take(3)) == [0, 1, 2] and len(numbers.take(30)) == 10
    assert elements(numbers.take(0)) == [] and elements(numbers.take(-1)) == list(range(10))
    assert elements(numbers.skip(8)) == [8, 9] and elements(numbers.skip(20)) == []
    assert elements(numbers.skip(-1)) == [] and len(numbers.skip(8)) == 2
    assert elements(numbers.shard(3, 1)) == [1, 4, 7] and len(numbers.shard(3, 1)) == 3
    assert elements(numbers.shard(20, 15)) == []
    assert elements(numbers.shard(3, 1).shard(2, 1)) == [4]


def test_repeat():
    numbers = Dataset.range(3)
    assert elements(numbers.repeat(2)) == [0, 1, 2] * 2 and len(numbers.repeat(2)) == 6
    assert elements(numbers.repeat(0)) == [] and len(numbers.repeat(0)) == 0
    assert elements(numbers.repeat().take(7)) == [0, 1, 2, 0, 1, 2, 0]
    assert elements(numbers.repeat(-1).take(4)) == [0, 1, 2, 0]
    assert numbers.repeat().cardinality() == INFINITE
    assert elements(numbers.repeat(2).repeat(2)) == [0, 1, 2] * 4
    assert elements(numbers.repeat(2).batch(4)) == [[0, 1, 2, 0], [1, 2]]
    assert elements(numbers.batch(2).repeat(2)) == [[0, 1], [2]] * 2


def test_concatenate_and_zip():
    one, other = Dataset.range(2), Dataset.range(10, 13)
    assert elements(one.concatenate(other)) == [0, 1, 10, 11, 12]
    assert len(one.concatenate(other)) == 5
    assert elements(Dataset.zip(one, other)) == [(0, 10), (1, 11)]
    assert elements(Dataset.zip((one, other))) == [(0, 10), (1, 11)]
    assert elements(Dataset.zip({"a": one, "b": (other, one)}))[1] == {"a": 1, "b": (11, 1)}
    assert elements(Dataset.zip(datasets=(one, other))) == [(0, 10), (1, 11)]
    assert len(Dataset.zip(one, other.repeat())) == 2
    assert Dataset.zip(one.repeat(), other.repeat()).cardinality() == INFINITE
    assert elements(Dataset.zip(one.batch(2), other.batch(2))) == [([0, 1], [10, 11])]
    assert elements(Dataset.zip(one, Dataset.zip(one, other)))[1] == (1, (1, 11))
    assert elements(one.concatenate(other).batch(3)) == [[0, 1, 10], [11, 12]]


def test_concatenate_widens_the_spec():
    one = Dataset.from_tensors(np.zeros((2, 3)))
    other = Dataset.from_tensors(np.zeros((2, 5)))
    assert one.concatenate(other).element_spec == spec((2, None), float)
    assert one.concatenate(Dataset.from_tensors(np.zeros(2))).element_spec == spec(None, float)


def test_what_is_not_known_of_an_empty_data_set_is_no_hindrance():
    nothing = Dataset.range(0).map(lambda x: x)
    assert elements(nothing.concatenate(Dataset.range(2))) == [0, 1]
    assert elements(Dataset.range(2).concatenate(nothing)) == [0, 1]
    assert elements(nothing.map(lambda x: x, vectorized=True)) == []


def test_enumerate():
    assert elements(Dataset.from_tensor_slices(["a", "b"]).enumerate(5)) == [(5, b"a"), (6, b"b")]
    numbered = Dataset.from_tensor_slices((np.arange(2), np.arange(2))).enumerate()
    assert elements(numbered) == [(0, (0, 0)), (1, (1, 1))]
    assert numbered.element_spec == (spec((), int), (spec((), int), spec((), int)))
    assert elements(numbered.batch(2)) == [([0, 1], ([0, 1], [0, 1]))]


def test_reduce_and_apply():
    assert int(Dataset.range(5).reduce(np.int64(0), lambda total, x: total + x)) == 10
    total, count = Dataset.range(4).reduce((0, 0), lambda s, x: (s[0] + int(x), s[1] + 1))
    assert (int(total), int(count)) == (6, 4)
    pairs = Dataset.zip(Dataset.range(3), Dataset.range(3))
    assert int(pairs.reduce(0, lambda s, pair: s + int(pair[0] * pair[1]))) == 5
    assert elements(Dataset.range(5).apply(lambda dataset: dataset.skip(3))) == [3, 4]


@given(
    count=st.integers(0, 15),
    operations=st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 12)),
            st.tuples(st.just("skip"), st.integers(0, 12)),
            st.tuples(st.just("repeat"), st.integers(0, 3)),
            st.tuples(st.just("shard"), st.integers(1, 4), st.integers(0, 3)),
            st.tuples(st.just("concatenate"), st.integers(0, 4)),
            st.tuples(st.just("enumerate")),
            st.tuples(st.just("filter")),
            st.tuples(st.just("cache")),
            st.tuples(st.just("rows"), st.integers(1, 4)),
        ),
        max_size=5,
    ),
    size=st.integers(1, 5),
)
def test_chains_of_operations_are_those_of_lists(count: int, operations: Any, size: int):
    dataset, wanted = Dataset.range(count), list(range(count))
    for name, *args in operations:
        if name == "shard":
            args[1] %= args[0]
            wanted = wanted[args[1] :: args[0]]
            dataset = dataset.shard(*args)
        elif name == "take":
            dataset, wanted = dataset.take(*args), wanted[: args[0]]
        elif name == "skip":
            dataset, wanted = dataset.skip(*args), wanted[args[0] :]
        elif name == "repeat":
            dataset, wanted = dataset.repeat(*args), wanted * args[0]
        elif name == "concatenate":
            dataset, wanted = dataset.concatenate(Dataset.range(*args)), [*wanted, *range(args[0])]
        elif name == "enumerate":
            dataset = dataset.enumerate().map(lambda number, x: number + x)
            wanted = [number + x for number, x in enumerate(wanted)]
        elif name == "filter":
            dataset, wanted = (
                dataset.filter(lambda x: x % 3 != 1),
                [x for x in wanted if x % 3 != 1],
            )
        elif name == "cache":
            dataset = dataset.cache()
        else:
            dataset = dataset.batch(args[0]).unbatch()
    assert elements(dataset) == wanted
    assert dataset.cardinality() in (UNKNOWN, len(wanted))
    assert elements(dataset.batch(size)) == [
        wanted[i : i + size] for i in range(0, len(wanted), size)
    ]
