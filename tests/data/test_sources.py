"""Data sets from arrays, ranges, generators and other iterables."""

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.pipelines import Dataset, elements, plain

UNKNOWN = rx.data.UNKNOWN_CARDINALITY


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
