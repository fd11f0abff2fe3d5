"""The operations of a data set, one by one: which elements, in which structure, how many."""

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from tests.pipelines import Calls, Dataset, elements, plain

UNKNOWN = rx.data.UNKNOWN_CARDINALITY
INFINITE = rx.data.INFINITE_CARDINALITY


class Point(NamedTuple):
    x: Any
    y: Any


def spec(shape: Any, dtype: Any) -> Any:
    return rx.TensorSpec.on_host(shape, np.dtype(dtype))


# ------------------------------------------------------------------ sources


def test_range_takes_what_pythons_takes():
    assert elements(Dataset.range(3)) == [0, 1, 2]
    assert elements(Dataset.range(2, 5)) == [2, 3, 4]
    assert elements(Dataset.range(5, 0, -2)) == [5, 3, 1]
    assert elements(Dataset.range(3, 3)) == []
    assert next(iter(Dataset.range(1))).dtype == np.int64
    small = Dataset.range(2, output_type=np.float32)
    assert [x.dtype for x in small] == [np.float32] * 2
    assert small.element_spec == spec((), np.float32)


def test_slices_of_one_array_and_of_structures():
    x, y = np.arange(6).reshape(3, 2), np.arange(3.0)
    assert elements(Dataset.from_tensor_slices(x)) == [[0, 1], [2, 3], [4, 5]]
    assert elements(Dataset.from_tensor_slices((x, y)))[1] == ([2, 3], 1.0)
    nested = {"b": x, "a": (y, {"c": y})}
    first = next(iter(Dataset.from_tensor_slices(nested)))
    assert list(first) == ["b", "a"] and plain(first) == {"b": [0, 1], "a": (0.0, {"c": 0.0})}


def test_named_tuples_and_dataclasses_stay_what_they_are():
    @dataclasses.dataclass
    class Row:
        x: Any
        y: Any

    point = Point(np.arange(3), np.arange(3.0))
    batch = next(iter(Dataset.from_tensor_slices(point).batch(2)))
    assert type(batch) is Point and plain(batch) == Point([0, 1], [0.0, 1.0])
    row = next(iter(Dataset.from_tensor_slices(Row(np.arange(3), np.arange(3.0))).batch(2)))
    assert type(row) is Row and plain(row.y) == [0.0, 1.0]
    assert elements(Dataset.from_tensor_slices(point).map(lambda p: p.x + p.y)) == [0.0, 2.0, 4.0]
    ordered = collections.OrderedDict(b=np.arange(2), a=np.arange(2))
    assert plain(next(iter(Dataset.from_tensor_slices(ordered)))) == {"b": 0, "a": 0}


def test_python_numbers_have_32_bits_and_arrays_keep_theirs():
    def dtype(tensors: Any) -> Any:
        return Dataset.from_tensor_slices(tensors).element_spec.dtype

    assert dtype([1, 2]) == np.int32 and dtype([1.0]) == np.float32 and dtype([True]) == "bool"
    assert dtype([1j]) == np.complex64
    assert dtype(np.arange(2)) == np.int64 and dtype(np.arange(2.0)) == np.float64
    assert dtype([2**40]) == np.int64  # does not fit in fewer
    assert dtype(jnp.arange(2)) == np.int32 and dtype([jnp.float32(1)]) == np.float32
    assert dtype(np.zeros(2, np.float16)) == np.float16
    assert dtype([[]]) == np.float32
    one = next(iter(Dataset.from_tensors({"a": 1, "b": 2.0})))
    assert one["a"].dtype == np.int32 and one["b"].dtype == np.float32


def test_every_dtype_of_jax_goes_through():
    for dtype in ("bfloat16", "float8_e4m3fn", "float16", "int4", "uint8", "complex64", "bool"):
        x = np.ones((6, 2), jnp.dtype(dtype))
        dataset = Dataset.from_tensor_slices(x).shuffle(6).batch(4)
        assert [batch.dtype for batch in dataset] == [x.dtype] * 2
        assert Dataset.from_tensor_slices(x).element_spec.dtype == x.dtype
        assert next(iter(Dataset.range(3).map(lambda _, x=x: x[0]).batch(3))).dtype == x.dtype


def test_text_is_bytes():
    assert elements(Dataset.from_tensor_slices(["a", "ü"])) == [b"a", "ü".encode()]
    assert elements(Dataset.from_tensor_slices(np.array([b"x", b"yy"]))) == [b"x", b"yy"]
    batch = next(iter(Dataset.from_tensor_slices(["a", "bc"]).batch(2)))
    assert batch.dtype == object and batch.tolist() == [b"a", b"bc"]
    table = Dataset.from_tensor_slices(np.array([["a", "b"], ["c", "d"]]))
    assert elements(table.batch(2)) == [[[b"a", b"b"], [b"c", b"d"]]]
    assert table.element_spec == spec((2,), object)
    assert elements(Dataset.from_tensors("x").batch(1)) == [[b"x"]]
    assert elements(Dataset.range(2).map(lambda x: f"n{x}").batch(2)) == [[b"n0", b"n1"]]
    assert elements(Dataset.range(1).map(lambda x: np.str_("s"))) == [b"s"]


def test_one_element_of_from_tensors():
    dataset = Dataset.from_tensors((np.arange(3), "text", 1.5))
    assert elements(dataset) == [([0, 1, 2], b"text", 1.5)]
    assert len(dataset) == 1
    assert dataset.element_spec == (spec((3,), int), spec((), object), spec((), np.float32))


def test_empty_data_sets():
    nothing = Dataset.from_tensor_slices(np.zeros((0, 3), np.float32))
    assert elements(nothing) == [] and len(nothing) == 0
    assert nothing.element_spec == spec((3,), np.float32)
    for each in (
        nothing.batch(2),
        nothing.map(lambda x: x),
        nothing.filter(lambda x: True),
        nothing.repeat(),
        nothing.repeat(3),
        nothing.shuffle(4),
        nothing.enumerate(),
        nothing.batch(2).unbatch(),
        nothing.batch(2).rebatch(3),
        nothing.window(2),
        nothing.cache().repeat(2),
        nothing.prefetch(2),
        nothing.take(3),
        nothing.skip(3),
        nothing.shard(2, 1),
        nothing.padded_batch(2),
        nothing.flat_map(Dataset.from_tensors),
        Dataset.zip(nothing, Dataset.range(5)),
        Dataset.zip(Dataset.range(5), nothing),
        nothing.concatenate(nothing),
        nothing.map(lambda x: x, vectorized=True).batch(2),
    ):
        assert elements(each) == [], each


def test_generators():
    def count(stop: int, step: int = 1) -> Iterator[int]:
        yield from range(0, stop, step)

    assert elements(Dataset.from_generator(lambda: count(3))) == [0, 1, 2]
    assert elements(Dataset.from_generator(count, args=(5, 2))) == [0, 2, 4]
    assert elements(Dataset.from_generator(lambda: [1.5, 2.5])) == [1.5, 2.5]
    dataset = Dataset.from_generator(lambda: count(3))
    assert elements(dataset) == elements(dataset)
    assert dataset.cardinality() == UNKNOWN and dataset.element_spec == spec((), np.int32)


def test_the_signature_of_a_generator_converts_and_checks():
    signature = (rx.TensorSpec([None], "float32"), rx.TensorSpec([], rx.string))
    items = [([1, 2], "a"), ([3], "b")]
    dataset = Dataset.from_generator(lambda: items, output_signature=signature)
    first = next(iter(dataset))
    assert first[0].dtype == np.float32 and plain(first) == ([1.0, 2.0], b"a")
    assert dataset.element_spec == (spec((None,), np.float32), spec((), object))
    older = Dataset.from_generator(
        lambda: [{"a": 1, "b": [2.0]}], {"a": "int32", "b": "float32"}, {"a": [], "b": [None]}
    )
    assert older.element_spec == {"a": spec((), np.int32), "b": spec((None,), np.float32)}
    assert elements(older) == [{"a": 1, "b": [2.0]}]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (([1, 2], "a", 3), "structure"),
        ([[1.5], "a"], None),
        ((["x"], "a"), "does not convert"),
        (([[1.0]], "a"), "shape"),
        (([1.0], 5), "does not convert|text"),
        (("text", "a"), "text"),
    ],
)
def test_items_that_do_not_fit_the_signature(item: Any, said: str | None):
    signature = (rx.TensorSpec([None], "float32"), rx.TensorSpec([], rx.string))
    dataset = Dataset.from_generator(lambda: [([1.0], "ok"), item], output_signature=signature)
    iterator = iter(dataset)
    next(iterator)
    if said is None:  # a list stands for a tuple, as in TensorFlow
        assert plain(next(iterator)) == ([1.5], b"a")
    else:
        with pytest.raises(TypeError, match=f"(?s)item 1 of from_generator.*(?:{said})"):
            next(iterator)


def test_foreign_iterables_go_in():
    batches = [np.arange(3), np.arange(3) + 3]
    assert elements(Dataset.from_source(iter(batches))) == [[0, 1, 2], [3, 4, 5]]

    class Loader:
        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[Any]:
            return iter(batches)

    dataset = Dataset.from_source(Loader())
    assert len(dataset) == 2 and elements(dataset) == elements(dataset) == [[0, 1, 2], [3, 4, 5]]
    same = Dataset.range(3)
    assert elements(Dataset.from_source(same)) == [0, 1, 2]


def test_an_iterator_is_read_once_and_says_so():
    dataset = Dataset.from_source(iter([np.arange(2), np.arange(2)]))
    assert str(dataset) and repr(dataset)  # looking does not read
    assert elements(dataset) == [[0, 1], [0, 1]]
    with pytest.raises(RuntimeError, match="read already.*from_generator"):
        list(dataset)


def test_the_spec_of_an_iterator_does_not_lose_its_elements():
    dataset = Dataset.from_source(iter([np.arange(2), np.arange(2) + 2]))
    assert dataset.element_spec in (spec((2,), int), spec((None,), int))
    assert elements(dataset) == [[0, 1], [2, 3]]


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


# ------------------------------------------------------------------ what is computed, and when


def test_nothing_runs_before_it_is_asked_for():
    calls = Calls()
    made: list[int] = []

    def generate() -> Iterator[int]:
        made.append(1)
        yield from range(3)

    dataset = Dataset.from_generator(generate).map(calls.of()).shuffle(2).batch(2).prefetch(1)
    iterator = iter(dataset)
    assert made == [] and calls == []
    iterator.close()


def test_functions_run_only_for_elements_that_are_used():
    calls = Calls()
    numbers = Dataset.range(100).map(calls.of())
    assert elements(numbers.shuffle(100, seed=1).skip(5).take(2).batch(2)) == [calls]
    calls.clear()
    assert elements(numbers.shard(10, 3).take(2)) == calls == [3, 13]
    calls.clear()
    assert elements(numbers.skip(98)) == calls == [98, 99]
    calls.clear()
    assert elements(numbers.batch(10).skip(9)) == [calls] == [list(range(90, 100))]
    calls.clear()
    assert elements(numbers.repeat(3).skip(299)) == calls == [99]
    calls.clear()
    pairs = Dataset.zip(numbers, Dataset.range(100)).shuffle(100, seed=2).take(1)
    assert [elements(pairs)[0][0]] == calls


def test_functions_run_for_used_elements_only_also_across_epochs_and_partial_batches():
    calls = Calls()
    numbers = Dataset.range(5).map(calls.of())
    assert elements(numbers.repeat(2).shuffle(10, seed=1).take(1)) == calls
    calls.clear()
    assert elements(numbers.batch(2).shuffle(3, seed=1).take(1)) == [calls]


def test_a_generator_is_advanced_by_what_is_asked_for():
    read: list[int] = []

    def generate() -> Iterator[int]:
        for number in range(10_000):
            read.append(number)
            yield number

    source = Dataset.from_generator(generate, output_signature=rx.TensorSpec([], "int32"))

    def after(dataset: Any, count: int = 1) -> int:
        read.clear()
        iterator = iter(dataset)
        for _ in range(count):
            next(iterator)
        iterator.close()
        return len(read)

    assert after(source) == 1 and after(source, 3) == 3
    assert after(source.batch(4)) == 4 and after(source.batch(4).unbatch()) <= 4
    assert after(source.map(lambda x: x).enumerate(), 2) == 2
    assert after(source.filter(lambda x: x % 5 == 4)) == 5
    assert after(source.shard(3, 2), 2) == 6 and after(source.skip(3)) == 4
    assert after(source.window(3)) == 3
    assert after(Dataset.zip(source, Dataset.range(9)), 2) == 2
    assert after(source.cache(), 2) == 2
    assert after(source.batch(2).rebatch(3)) == 4
    assert after(source.padded_batch(3)) == 3
    assert after(source.take(5), 2) == 2
    assert after(source.flat_map(Dataset.from_tensors), 2) == 2
    assert after(Dataset.range(2).flat_map(lambda x: source), 2) == 2
    assert after(Dataset.range(2).flat_map(lambda x: source.batch(2))) <= 4
    assert after(Dataset.range(2).flat_map(lambda x: source.filter(lambda y: y % 2 == 1))) <= 4
    assert after(Dataset.range(2).interleave(lambda x: source.batch(2), 2)) <= 4
    assert after(source.shuffle(3, seed=1)) <= 8


def test_an_endless_generator_can_be_used():
    def generate() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    source = Dataset.from_generator(generate)
    assert elements(source.take(2)) == [0, 1]
    assert elements(source.batch(2).take(2)) == [[0, 1], [2, 3]]
    assert elements(Dataset.zip(source, Dataset.range(2))) == [(0, 0), (1, 1)]
    assert len(elements(source.shuffle(10).take(5))) == 5


# ------------------------------------------------------------------ whose memory


def test_rows_of_the_users_arrays_cannot_be_written_to():
    x = np.zeros((4, 2))
    for dataset in (Dataset.from_tensor_slices(x), Dataset.from_tensors(x)):
        with pytest.raises(ValueError, match="read-only"):
            next(iter(dataset))[...] = 1

    def in_place(row: Any) -> Any:
        row += 1
        return row

    with pytest.raises(ValueError, match="read-only"):
        list(Dataset.from_tensor_slices(x).map(in_place))
    assert x.flags.writeable and not x.any()


def test_batches_are_the_users_own():
    x = np.zeros((4, 2))
    for batch in Dataset.from_tensor_slices(x).batch(2):
        batch += 1
    for batch in Dataset.from_tensor_slices(x).batch(2).map(lambda b: b):
        batch += 1
    assert not x.any()


def reused() -> Iterator[Any]:
    buffer = np.zeros(2, np.float32)
    for number in range(4):
        buffer[:] = number
        yield buffer


def reused_dict() -> Iterator[Any]:
    row: dict[str, Any] = {}
    for number in range(4):
        row["x"] = number
        yield row


def test_a_generator_may_use_its_buffer_again():
    dataset = Dataset.from_generator(reused)
    wanted = [[number] * 2 for number in range(4)]
    for each in (
        dataset.cache(),
        dataset.batch(3).unbatch(),
        dataset.window(4).flat_map(lambda window: window),
        Dataset.zip(dataset, Dataset.range(4)).map(lambda x, _: x).batch(4).unbatch(),
        dataset.prefetch(3),
        dataset,
    ):
        assert elements(list(each)) == wanted, each
    assert sorted(elements(dataset.shuffle(4))) == wanted
    assert elements(Dataset.from_generator(reused_dict).batch(4)) == [{"x": [0, 1, 2, 3]}]
    assert [row["x"] for row in list(Dataset.from_generator(reused_dict))] == [0, 1, 2, 3]


def test_views_of_a_buffer_that_is_used_again():
    def broadcast() -> Iterator[Any]:
        for buffer in reused():
            yield np.broadcast_to(buffer, (1, 2))

    def read_only() -> Iterator[Any]:
        for buffer in reused():
            view = buffer.view()
            view.flags.writeable = False
            yield view

    def matrices() -> Iterator[Any]:
        for buffer in reused():
            yield buffer.view(np.matrix)

    for generate in (broadcast, read_only, matrices):
        found = np.concatenate(list(Dataset.from_generator(generate).batch(4)))
        assert found.reshape(4, 2).tolist() == [[number] * 2 for number in range(4)], generate


def test_an_iterator_may_use_its_buffer_again():
    looked_at = Dataset.from_source(reused())
    assert looked_at.element_spec.dtype == np.float32
    for dataset in (Dataset.from_source(reused()), looked_at):
        assert elements(dataset.batch(4)) == [[[number] * 2 for number in range(4)]]


def test_a_function_of_map_may_use_its_buffer_again():
    buffer = np.zeros(2)

    def fill(number: Any) -> Any:
        buffer[:] = number
        return buffer

    wanted = [[number] * 2 for number in range(4)]
    dataset = Dataset.range(4).map(fill)
    assert elements(dataset.batch(4).unbatch()) == wanted
    assert elements(list(dataset.cache())) == wanted
    assert elements(dataset.shuffle(4, seed=1)) != [[3.0] * 2] * 4


# ------------------------------------------------------------------ iterating


def test_an_iterator_ends_for_ever():
    two = Dataset.range(2)
    for dataset in (two, two.map(lambda x: x), two.prefetch(1)):
        iterator = iter(dataset)
        assert iter(iterator) is iterator and elements(iterator) == [0, 1]
        for _ in range(3):
            assert next(iterator, None) is None
        with pytest.raises(rx.errors.OutOfRangeError, match="no more elements: all 2"):
            iterator.get_next()
        assert not iterator.get_next_as_optional().has_value()


def test_optionals():
    iterator = iter(Dataset.range(1))
    optional = iterator.get_next_as_optional()
    assert optional.has_value() and int(optional.get_value()) == 0
    assert optional.element_spec == spec((), int)
    empty = iterator.get_next_as_optional()
    assert not empty.has_value() and empty.element_spec == spec((), int)
    with pytest.raises(ValueError, match=r"no value: ask has_value\(\)"):
        empty.get_value()
    assert rx.experimental.Optional.from_value(3).get_value() == 3


def test_optionals_run_nothing_more():
    calls = Calls()

    def generate() -> Iterator[int]:
        calls.append("start")
        yield from range(3)

    iterator = iter(Dataset.from_generator(generate).map(calls.of()))
    optional = iterator.get_next_as_optional()
    assert optional.has_value() and plain(optional.get_value()) == 0
    assert calls == ["start", 0]
    strategy = rx.distribute.OneDeviceStrategy("CPU:0")
    batches = Dataset.from_generator(generate).batch(3)
    distributed = iter(strategy.experimental_distribute_dataset(batches))
    calls.clear()
    assert distributed.get_next_as_optional().has_value() and calls == ["start"]
    assert not distributed.get_next_as_optional().has_value() and calls == ["start"]


def test_iterators_are_independent():
    dataset = Dataset.range(4).map(lambda x: x)
    one, other = iter(dataset), iter(dataset)
    assert [plain(next(each)) for each in (one, one, other, one)] == [0, 1, 0, 2]
    assert elements(dataset.as_numpy_iterator()) == [0, 1, 2, 3]
    assert [(plain(a), plain(b)) for a, b in zip(dataset, dataset)] == [(n, n) for n in range(4)]


def test_lengths():
    assert len(Dataset.range(5)) == 5 and bool(Dataset.range(0))
    with pytest.raises(TypeError, match="forever"):
        len(Dataset.range(5).repeat())
    with pytest.raises(TypeError, match="not known.*sum"):
        len(Dataset.range(5).filter(lambda x: True))
