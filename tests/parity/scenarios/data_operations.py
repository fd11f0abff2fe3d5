"""Data sets on the host: every operation, element by element, with its spec and its cardinality."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .._expected import raises
from .._library import Library
from .._pipelines import HOST_ONLY, element, elements
from .._registry import ours, scenario

Make = Callable[[Library], Any]


class Point(NamedTuple):
    """A structure with names."""

    x: Any
    y: Any


def _range(lib: Library, *arguments: Any, **options: Any) -> Any:
    return lib.data.Dataset.range(*arguments, **options)


def _slices(lib: Library, tensors: Any) -> Any:
    return lib.data.Dataset.from_tensor_slices(tensors)


def _tensors(lib: Library, tensors: Any) -> Any:
    return lib.data.Dataset.from_tensors(tensors)


def _generator(lib: Library, items: Any, *specs: Any, **options: Any) -> Any:
    """Makes a data set of a generator, with the spec of its items where there is one."""

    def generate() -> Iterator[Any]:
        yield from items

    if specs:
        first, *others = (lib.TensorSpec(shape, dtype) for shape, dtype in specs)
        options["output_signature"] = (first, *others) if others else first
    return lib.data.Dataset.from_generator(generate, **options)


def _lists(lib: Library) -> Any:
    """Lists of 1, 2, 3, ... numbers."""
    lists = [[1], [2, 3], [4, 5, 6], [7], []]
    return _generator(lib, lists, ([None], "int32"))


def _zip(lib: Library, *arguments: Any) -> Any:
    return lib.data.Dataset.zip(*arguments)


def _pairs(lib: Library, count: int = 5) -> Any:
    return _slices(lib, (np.arange(count), np.arange(count, dtype="float32") * 10))


def _columns(lib: Library, count: int = 5) -> Any:
    return _slices(lib, {"a": np.arange(count), "b": np.arange(count * 2).reshape(count, 2)})


TYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64"),
)

SOURCES: dict[str, Make] = {
    "slices of a list": lambda lib: _slices(lib, [1, 2, 3]),
    "slices of floats": lambda lib: _slices(lib, [1.5, 2.5]),
    "slices of a mixed list": lambda lib: _slices(lib, [1, 2.5]),
    "slices of large numbers": lambda lib: _slices(lib, [2**40]),
    "slices of bools": lambda lib: _slices(lib, [True, False]),
    "slices of rows": lambda lib: _slices(lib, [[1, 2], [3, 4], [5, 6]]),
    "slices of a list of tuples": lambda lib: _slices(lib, [(1, 2), (3, 4)]),
    "slices of a list of arrays": lambda lib: _slices(lib, [np.arange(2), np.arange(2) + 5]),
    "slices of a cube": lambda lib: _slices(lib, np.arange(8.0).reshape(2, 2, 2)),
    "slices of a tuple": lambda lib: _slices(lib, ([1, 2], [3.0, 4.0])),
    "slices of a tuple of one": lambda lib: _slices(lib, ([1, 2],)),
    "slices of a dict": lambda lib: _slices(lib, {"a": [1, 2], "b": [[1.0, 2.0], [3.0, 4.0]]}),
    "slices of a dict in any order": lambda lib: _slices(lib, {"b": [1, 2], "a": [3, 4]}),
    "slices of a nest": lambda lib: _slices(
        lib, ({"a": [1, 2], "b": ([3, 4], [5.0, 6.0])}, [7, 8])
    ),
    "slices of a namedtuple": lambda lib: _slices(lib, Point([1, 2], [3.0, 4.0])),
    "slices of strings": lambda lib: _slices(lib, ["a", "bc", ""]),
    "slices of bytes": lambda lib: _slices(lib, [b"\xff\x00", b"\x00", b"z"]),
    "slices of rows of strings": lambda lib: _slices(lib, [["a", "b"], ["c", "d"]]),
    "slices of an array of strings": lambda lib: _slices(lib, np.array(["a", "bc"])),
    "slices of nothing": lambda lib: _slices(lib, np.zeros((0, 3), "float32")),
    "slices of an empty list": lambda lib: _slices(lib, []),
    **{
        f"slices of {dtype}": lambda lib, dtype=dtype: _slices(lib, np.arange(2).astype(dtype))
        for dtype in TYPES
    },
    "tensors: a number": lambda lib: _tensors(lib, 3),
    "tensors: a list": lambda lib: _tensors(lib, [1, 2]),
    "tensors: a tuple": lambda lib: _tensors(lib, (1, [2.0, 3.0])),
    "tensors: a dict": lambda lib: _tensors(lib, {"a": 1, "b": "text"}),
    "tensors: strings": lambda lib: _tensors(lib, ["a", "b"]),
    "range(5)": lambda lib: _range(lib, 5),
    "range(2, 5)": lambda lib: _range(lib, 2, 5),
    "range(1, 10, 3)": lambda lib: _range(lib, 1, 10, 3),
    "range(5, 1)": lambda lib: _range(lib, 5, 1),
    "range(5, 1, -2)": lambda lib: _range(lib, 5, 1, -2),
    "range(0)": lambda lib: _range(lib, 0),
    "range(-3)": lambda lib: _range(lib, -3),
    "range with an output type": lambda lib: _range(lib, 3, output_type=np.int32),
    "range of floats": lambda lib: _range(lib, 3, output_type=np.float32),
    "generator of scalars": lambda lib: _generator(lib, [1, 2, 3], ([], "int32")),
    "generator of floats": lambda lib: _generator(lib, [1, 2.5], ([], "float32")),
    "generator of lists": _lists,
    "generator of rows": lambda lib: _generator(lib, [[1, 2], [3, 4]], ([2], "int64")),
    "generator of tuples": lambda lib: _generator(
        lib, [(1, [2.0, 3.0]), (4, [5.0, 6.0])], ([], "int32"), ([2], "float32")
    ),
    "generator of dicts": lambda lib: _generator(
        lib,
        [{"a": 1, "b": [2.0]}, {"a": 3, "b": [4.0]}],
        output_signature={
            "a": lib.TensorSpec([], "int32"),
            "b": lib.TensorSpec([1], "float32"),
        },
    ),
    "generator of strings": lambda lib: _generator(lib, ["a", b"b"], ([], lib.string)),
    "generator of nothing": lambda lib: _generator(lib, [], ([], "int32")),
    "generator with types": lambda lib: _generator(lib, [1, 2], output_types=np.int64),
    "generator with types and shapes": lambda lib: _generator(
        lib, [(1, [2]), (3, [4])], output_types=(np.int32, np.float32), output_shapes=([], [1])
    ),
    "generator with arguments": lambda lib: lib.data.Dataset.from_generator(
        lambda first, last: iter(range(first, last)),
        args=(2, 5),
        output_signature=lib.TensorSpec([], "int32"),
    ),
    "generator that is a list": lambda lib: lib.data.Dataset.from_generator(
        lambda: [1, 2, 3], output_signature=lib.TensorSpec([], "int32")
    ),
}

BATCHES: dict[str, Make] = {
    "batch": lambda lib: _range(lib, 7).batch(3),
    "batch that divides": lambda lib: _range(lib, 6).batch(3),
    "batch with drop_remainder": lambda lib: _range(lib, 7).batch(3, drop_remainder=True),
    "batch larger than the data": lambda lib: _range(lib, 2).batch(5),
    "batch that is dropped": lambda lib: _range(lib, 2).batch(5, drop_remainder=True),
    "batch of one": lambda lib: _range(lib, 2).batch(1),
    "batch of nothing": lambda lib: _range(lib, 0).batch(3),
    "batch of batches": lambda lib: _range(lib, 12).batch(2).batch(4),
    "batch of rows": lambda lib: _slices(lib, [[1, 2], [3, 4], [5, 6]]).batch(2),
    "batch of pairs": lambda lib: _pairs(lib).batch(2),
    "batch of columns": lambda lib: _columns(lib).batch(3),
    "batch of points": lambda lib: _slices(lib, Point([1, 2], [3.0, 4.0])).batch(2),
    "batch of strings": lambda lib: _slices(lib, ["a", "bc", ""]).batch(2),
    "batch of an infinite range": lambda lib: _range(lib, 3).repeat().batch(2),
    "batch of an infinite range, dropping": lambda lib: (
        _range(lib, 3).repeat().batch(2, drop_remainder=True)
    ),
    "batch with parallel calls": lambda lib: _range(lib, 5).batch(
        2, num_parallel_calls=2, deterministic=True
    ),
    "batch of a generator": lambda lib: _generator(lib, [[1, 2], [3, 4]], ([None], "int32")).batch(
        2
    ),
    "padded_batch": lambda lib: _lists(lib).padded_batch(2),
    "padded_batch with drop_remainder": lambda lib: _lists(lib).padded_batch(
        2, drop_remainder=True
    ),
    "padded_batch to any size": lambda lib: _lists(lib).padded_batch(2, padded_shapes=[None]),
    "padded_batch to a size": lambda lib: _lists(lib).padded_batch(2, padded_shapes=[4]),
    "padded_batch with -1": lambda lib: _lists(lib).padded_batch(2, padded_shapes=[-1]),
    "padded_batch with a value": lambda lib: _lists(lib).padded_batch(3, padding_values=-1),
    "padded_batch of scalars": lambda lib: _range(lib, 5).padded_batch(2),
    "padded_batch of tuples": lambda lib: _zip(
        lib, _lists(lib), _slices(lib, [1.0, 2.0, 3.0, 4.0, 5.0])
    ).padded_batch(2, padded_shapes=([5], []), padding_values=(9, 0.0)),
    "padded_batch of tuples with one value": lambda lib: _zip(
        lib, _lists(lib), _lists(lib)
    ).padded_batch(2, padding_values=7),
    "padded_batch of dicts": lambda lib: (
        _lists(lib)
        .map(lambda x: {"a": x, "b": x + 1})
        .padded_batch(2, padded_shapes={"a": [None], "b": [4]})
    ),
    "padded_batch of strings": lambda lib: _generator(
        lib, [["a"], ["b", "c"], []], ([None], lib.string)
    ).padded_batch(3),
    "padded_batch of strings with a value": lambda lib: _generator(
        lib, [["a"], ["b", "c"], []], ([None], lib.string)
    ).padded_batch(3, padding_values="-"),
    "padded_batch of matrices": lambda lib: _generator(
        lib, [[[1.0]], [[2.0, 3.0], [4.0, 5.0]]], ([None, None], "float32")
    ).padded_batch(2, padding_values=0.5),
    "unbatch": lambda lib: _range(lib, 7).batch(3).unbatch(),
    "unbatch of rows": lambda lib: _slices(lib, [[[1, 2], [3, 4]]]).unbatch(),
    "unbatch of pairs": lambda lib: _pairs(lib).batch(2).unbatch(),
    "unbatch of columns": lambda lib: _columns(lib).batch(2).unbatch(),
    "unbatch of strings": lambda lib: _slices(lib, ["a", "b", "c"]).batch(2).unbatch(),
    "unbatch of lists": lambda lib: _lists(lib).unbatch(),
    "unbatch of slices": lambda lib: _slices(lib, [[1, 2, 3], [4, 5, 6]]).unbatch(),
    "rebatch up": lambda lib: _range(lib, 10).batch(2).rebatch(3),
    "rebatch down": lambda lib: _range(lib, 10).batch(4).rebatch(3),
    "rebatch with drop_remainder": lambda lib: _range(lib, 10).batch(4).rebatch(3, True),
    "rebatch to a list": lambda lib: _range(lib, 10).batch(4).rebatch([2, 1, 3]),
    "rebatch to a list with drop_remainder": lambda lib: (
        _range(lib, 10).batch(4).rebatch([2, 1, 3], drop_remainder=True)
    ),
    "rebatch to a list with zeros": lambda lib: _range(lib, 7).batch(4).rebatch([2, 0, 1]),
    "rebatch to an even list": lambda lib: _range(lib, 8).batch(4, True).rebatch([2, 2]),
    "rebatch of pairs": lambda lib: _pairs(lib).batch(2).rebatch(3),
    "rebatch of columns": lambda lib: _columns(lib).batch(3).rebatch(2),
    "rebatch of static batches": lambda lib: (
        _range(lib, 8).batch(4, drop_remainder=True).rebatch(2)
    ),
    "rebatch of lists": lambda lib: _lists(lib).rebatch(4),
}


def _evens(x: Any) -> Any:
    return x % 2 == 0


MAPS: dict[str, Make] = {
    "map": lambda lib: _range(lib, 4).map(lambda x: x + 1),
    "map to another type": lambda lib: _range(lib, 4).map(lambda x: x / 2),
    "map to a tuple": lambda lib: _range(lib, 3).map(lambda x: (x, x * 2)),
    "map to a list": lambda lib: _range(lib, 3).map(lambda x: [x, x * 2]),
    "map to a tuple with a list": lambda lib: _range(lib, 2).map(lambda x: (x, [x, x + 1])),
    "map to a list of lists": lambda lib: _range(lib, 2).map(lambda x: [[x, x], [x + 1, x]]),
    "map to a dict of lists": lambda lib: _range(lib, 2).map(lambda x: {"a": [x, x + 1]}),
    "map to a dict": lambda lib: _range(lib, 3).map(lambda x: {"a": x, "b": x * 2}),
    "map to a point": lambda lib: _range(lib, 3).map(lambda x: Point(x, x * 2)),
    "map to a nest": lambda lib: _range(lib, 2).map(lambda x: (x, {"a": (x, x + 1)})),
    "map to a tuple of one": lambda lib: _range(lib, 2).map(lambda x: (x,)),
    "map to a constant": lambda lib: _range(lib, 2).map(lambda x: 1),
    "map to constants": lambda lib: _range(lib, 2).map(lambda x: (1, 2.5, "text", True, [1, 2])),
    "map to an array": lambda lib: _range(lib, 2).map(lambda x: np.arange(3, dtype="int16")),
    "map to a number of NumPy": lambda lib: _range(lib, 2).map(lambda x: np.float64(0.5)),
    "map to a data set": lambda lib: _range(lib, 3).map(lambda x: lib.data.Dataset.range(x)),
    "map of tuples": lambda lib: _pairs(lib, 3).map(lambda a, b: b),
    "map of tuples to dicts": lambda lib: _pairs(lib, 2).map(lambda a, b: {"a": a, "b": b}),
    "map of dicts": lambda lib: _columns(lib, 3).map(lambda row: row["a"] + 1),
    "map of points": lambda lib: _slices(lib, Point([1, 2], [3, 4])).map(lambda p: p.x + p.y),
    "map of nests": lambda lib: _slices(lib, (([1, 2], [3, 4]), [5, 6])).map(
        lambda pair, z: pair[0] + pair[1] + z
    ),
    "map of a tuple of one": lambda lib: _slices(lib, ([1, 2],)).map(lambda x: x + 1),
    "map of batches": lambda lib: _range(lib, 5).batch(2).map(lambda x: x * x),
    "map of batches of pairs": lambda lib: _pairs(lib).batch(2).map(lambda a, b: (b, a)),
    "map of rows": lambda lib: _slices(lib, [[1, 2], [3, 4]]).map(lambda row: row[1]),
    "map with parallel calls": lambda lib: _range(lib, 5).map(
        lambda x: x + 1, num_parallel_calls=2
    ),
    "map with AUTOTUNE": lambda lib: _range(lib, 5).map(
        lambda x: x + 1, num_parallel_calls=lib.data.AUTOTUNE, deterministic=True
    ),
    "map of nothing": lambda lib: _range(lib, 0).map(lambda x: x + 1),
    "map of strings": lambda lib: _slices(lib, ["a", "b"]).map(lambda x: (x, x + b"!")),
    "map of float32": lambda lib: _slices(lib, [1.0, 2.0]).map(lambda x: x * 2.5),
    "map of uint8": lambda lib: _slices(lib, np.array([200, 100], "uint8")).map(lambda x: x // 3),
    "map then map": lambda lib: _range(lib, 3).map(lambda x: (x, x)).map(lambda a, b: a - b),
    "filter": lambda lib: _range(lib, 7).filter(_evens),
    "filter of tuples": lambda lib: _pairs(lib).filter(lambda a, b: b > 15.0),
    "filter of dicts": lambda lib: _columns(lib).filter(lambda row: row["a"] > 2),
    "filter of all": lambda lib: _range(lib, 3).filter(lambda x: x < 0),
    "filter of none": lambda lib: _range(lib, 3).filter(lambda x: True),
    "filter of strings": lambda lib: _slices(lib, ["a", "b", "a"]).filter(lambda x: x == b"a"),
    "filter then batch": lambda lib: _range(lib, 9).filter(_evens).batch(2),
    "filter of batches": lambda lib: _range(lib, 9).batch(2).filter(lambda x: x[0] > 3),
    "flat_map": lambda lib: _range(lib, 4).flat_map(lambda x: lib.data.Dataset.range(x)),
    "flat_map of repeats": lambda lib: _range(lib, 1, 4).flat_map(
        lambda x: lib.data.Dataset.from_tensors(x).repeat(x)
    ),
    "flat_map of slices": lambda lib: _slices(lib, [[1, 2], [3, 4]]).flat_map(
        lambda row: lib.data.Dataset.from_tensor_slices(row)
    ),
    "flat_map of tuples": lambda lib: _pairs(lib, 2).flat_map(
        lambda a, b: lib.data.Dataset.from_tensors((a, b)).repeat(2)
    ),
    "flat_map to tuples": lambda lib: _range(lib, 2).flat_map(
        lambda x: lib.data.Dataset.from_tensors((x, x + 1))
    ),
    "flat_map of nothing": lambda lib: _range(lib, 0).flat_map(lambda x: lib.data.Dataset.range(x)),
    **{
        f"interleave {cycle} {block}": lambda lib, cycle=cycle, block=block: _range(
            lib, 1, 6
        ).interleave(
            lambda x: lib.data.Dataset.range(x * 10, x * 11), cycle_length=cycle, block_length=block
        )
        for cycle, block in ((1, 1), (1, 2), (2, 1), (2, 3), (3, 2), (4, 1), (10, 1), (10, 3))
    },
    "interleave in parallel": lambda lib: _range(lib, 1, 6).interleave(
        lambda x: lib.data.Dataset.range(x * 10, x * 11),
        cycle_length=2,
        block_length=2,
        num_parallel_calls=2,
        deterministic=True,
    ),
    "interleave of equal lengths": lambda lib: _range(lib, 1, 6).interleave(
        lambda x: lib.data.Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    ),
    "interleave with empty ones": lambda lib: _range(lib, 5).interleave(
        lambda x: lib.data.Dataset.range(10 * (x % 2), 10 * (x % 2) + x), cycle_length=2
    ),
    "interleave of tuples": lambda lib: _pairs(lib, 3).interleave(
        lambda a, b: lib.data.Dataset.from_tensors((a, b)).repeat(2), cycle_length=2
    ),
    "interleave of nothing": lambda lib: _range(lib, 0).interleave(
        lambda x: lib.data.Dataset.range(x), cycle_length=2
    ),
    "interleave of an infinite one": lambda lib: (
        _range(lib, 3)
        .repeat()
        .interleave(lambda x: lib.data.Dataset.from_tensors(x).repeat(2), cycle_length=2)
    ),
}

PARTS: dict[str, Make] = {
    "repeat": lambda lib: _range(lib, 2).repeat(),
    "repeat None": lambda lib: _range(lib, 2).repeat(None),
    "repeat -1": lambda lib: _range(lib, 2).repeat(-1),
    "repeat 0": lambda lib: _range(lib, 2).repeat(0),
    "repeat 1": lambda lib: _range(lib, 2).repeat(1),
    "repeat 2": lambda lib: _range(lib, 2).repeat(2),
    "repeat of repeat": lambda lib: _range(lib, 2).repeat(2).repeat(2),
    "repeat of a filter": lambda lib: _range(lib, 3).filter(_evens).repeat(2),
    "repeat of a generator": lambda lib: _generator(lib, [1, 2], ([], "int32")).repeat(2),
    "repeat then batch": lambda lib: _range(lib, 3).repeat(2).batch(2),
    "batch then repeat": lambda lib: _range(lib, 3).batch(2).repeat(2),
    "batch then repeat for ever": lambda lib: _range(lib, 3).batch(2).repeat(),
    "repeat for ever of nothing, taking none": lambda lib: _range(lib, 0).repeat().take(0),
    "take -1": lambda lib: _range(lib, 5).take(-1),
    "take 0": lambda lib: _range(lib, 5).take(0),
    "take 2": lambda lib: _range(lib, 5).take(2),
    "take 9": lambda lib: _range(lib, 5).take(9),
    "take of repeat": lambda lib: _range(lib, 2).repeat().take(5),
    "take -1 of repeat": lambda lib: _range(lib, 2).repeat().take(-1),
    "take of a filter": lambda lib: _range(lib, 9).filter(_evens).take(2),
    "take 0 of a filter": lambda lib: _range(lib, 9).filter(_evens).take(0),
    "take of batches": lambda lib: _range(lib, 9).batch(2).take(2),
    "skip -1": lambda lib: _range(lib, 5).skip(-1),
    "skip 0": lambda lib: _range(lib, 5).skip(0),
    "skip 2": lambda lib: _range(lib, 5).skip(2),
    "skip 9": lambda lib: _range(lib, 5).skip(9),
    "skip of repeat": lambda lib: _range(lib, 3).repeat().skip(2),
    "skip of a filter": lambda lib: _range(lib, 9).filter(_evens).skip(2),
    "skip -1 of repeat": lambda lib: _range(lib, 3).repeat().skip(-1),
    "skip then take": lambda lib: _range(lib, 9).skip(3).take(2),
    "shard 3 0": lambda lib: _range(lib, 8).shard(3, 0),
    "shard 3 1": lambda lib: _range(lib, 8).shard(3, 1),
    "shard 3 2": lambda lib: _range(lib, 8).shard(3, 2),
    "shard 1 0": lambda lib: _range(lib, 3).shard(1, 0),
    "shard of too few": lambda lib: _range(lib, 2).shard(5, 4),
    "shard of repeat": lambda lib: _range(lib, 3).repeat().shard(2, 1),
    "shard of batches": lambda lib: _range(lib, 9).batch(2).shard(2, 1),
    "shard with names": lambda lib: _range(lib, 4).shard(num_shards=2, index=0),
    "concatenate": lambda lib: _range(lib, 2).concatenate(_range(lib, 5, 8)),
    "concatenate nothing": lambda lib: _range(lib, 2).concatenate(_range(lib, 0)),
    "concatenate pairs": lambda lib: _pairs(lib, 2).concatenate(_pairs(lib, 1)),
    "concatenate after repeat": lambda lib: _range(lib, 2).repeat().concatenate(_range(lib, 1)),
    "concatenate a filter": lambda lib: _range(lib, 2).concatenate(_range(lib, 5).filter(_evens)),
    "concatenate rows of other lengths": lambda lib: _slices(lib, [[1, 2]]).concatenate(
        _slices(lib, [[1, 2, 3]])
    ),
    "concatenate batches": lambda lib: _range(lib, 3).batch(2).concatenate(_range(lib, 4).batch(3)),
    "enumerate": lambda lib: _slices(lib, ["a", "b"]).enumerate(),
    "enumerate from 5": lambda lib: _slices(lib, ["a", "b"]).enumerate(start=5),
    "enumerate pairs": lambda lib: _pairs(lib, 2).enumerate(),
    "enumerate columns": lambda lib: _columns(lib, 2).enumerate(),
    "enumerate repeat": lambda lib: _range(lib, 2).repeat().enumerate(),
    "enumerate a filter": lambda lib: _range(lib, 5).filter(_evens).enumerate(),
    "cache": lambda lib: _range(lib, 3).cache(),
    "cache then repeat": lambda lib: _range(lib, 3).cache().repeat(2),
    "cache of a generator": lambda lib: _generator(lib, [1, 2], ([], "int32")).cache().repeat(2),
    "cache of repeat": lambda lib: _range(lib, 2).repeat().cache().take(3),
    "prefetch": lambda lib: _range(lib, 3).prefetch(1),
    "prefetch 0": lambda lib: _range(lib, 3).prefetch(0),
    "prefetch AUTOTUNE": lambda lib: _range(lib, 3).prefetch(lib.data.AUTOTUNE),
    "prefetch of repeat": lambda lib: _range(lib, 3).repeat().prefetch(2),
    "shuffle of one place": lambda lib: _range(lib, 4).shuffle(1),
    "shuffle of nothing": lambda lib: _range(lib, 0).shuffle(4),
    "zip": lambda lib: _zip(lib, (_range(lib, 3), _range(lib, 5, 8))),
    "zip of arguments": lambda lib: _zip(lib, _range(lib, 3), _range(lib, 5, 8)),
    "zip by name": lambda lib: lib.data.Dataset.zip(datasets=(_range(lib, 1), _range(lib, 2))),
    "zip of one": lambda lib: _zip(lib, _range(lib, 2)),
    "zip of a tuple of one": lambda lib: _zip(lib, (_range(lib, 2),)),
    "zip of a dict": lambda lib: _zip(lib, {"a": _range(lib, 2), "b": _pairs(lib, 2)}),
    "zip of a nest": lambda lib: _zip(lib, ((_range(lib, 2), _range(lib, 2)), _pairs(lib, 2))),
    "zip of a point": lambda lib: _zip(lib, Point(_range(lib, 2), _range(lib, 3))),
    "zip of other lengths": lambda lib: _zip(lib, _range(lib, 2), _range(lib, 5), _range(lib, 3)),
    "zip with nothing": lambda lib: _zip(lib, _range(lib, 2), _range(lib, 0)),
    "zip with repeat": lambda lib: _zip(lib, _range(lib, 3), _range(lib, 2).repeat()),
    "zip of repeats": lambda lib: _zip(lib, _range(lib, 3).repeat(), _range(lib, 2).repeat()),
    "zip with a filter": lambda lib: _zip(lib, _range(lib, 3), _range(lib, 9).filter(_evens)),
    "zip of batches": lambda lib: _zip(lib, _range(lib, 5).batch(2), _range(lib, 5).batch(3)),
}

WINDOWS: dict[str, Make] = {
    "window": lambda lib: _range(lib, 7).window(3),
    "window with drop_remainder": lambda lib: _range(lib, 7).window(3, drop_remainder=True),
    "window with a shift": lambda lib: _range(lib, 5).window(3, shift=1),
    "window with a shift, dropping": lambda lib: _range(lib, 5).window(
        3, shift=1, drop_remainder=True
    ),
    "window with a stride": lambda lib: _range(lib, 7).window(3, shift=2, stride=2),
    "window with a stride, dropping": lambda lib: _range(lib, 7).window(3, 1, 2, True),
    "window with a stride alone": lambda lib: _range(lib, 7).window(2, stride=2),
    "window with a large shift": lambda lib: _range(lib, 9).window(2, shift=4),
    "window larger than the data": lambda lib: _range(lib, 2).window(5),
    "window that is dropped": lambda lib: _range(lib, 2).window(5, drop_remainder=True),
    "window of nothing": lambda lib: _range(lib, 0).window(2),
    "window of pairs": lambda lib: _pairs(lib, 3).window(2),
    "window of columns": lambda lib: _columns(lib, 3).window(2),
    "window of batches": lambda lib: _range(lib, 5).batch(2).window(2),
    "window of repeat": lambda lib: _range(lib, 3).repeat().window(2),
    "windows batched": lambda lib: (
        _range(lib, 5)
        .window(3, shift=1, drop_remainder=True)
        .flat_map(lambda window: window.batch(3))
    ),
    "windows of other lengths batched": lambda lib: (
        _range(lib, 7).window(3).flat_map(lambda window: window.batch(3))
    ),
    "windows flattened": lambda lib: _range(lib, 5).window(3, 1).flat_map(lambda window: window),
    "windows of pairs zipped": lambda lib: (
        _pairs(lib, 5)
        .window(2)
        .flat_map(lambda a, b: lib.data.Dataset.zip((a.batch(2), b.batch(2))))
    ),
    "windows of columns batched": lambda lib: (
        _columns(lib, 5).window(2).flat_map(lambda window: window["b"].batch(2))
    ),
    "windows of columns zipped": lambda lib: (
        _columns(lib, 5)
        .window(2)
        .flat_map(lambda window: lib.data.Dataset.zip({k: v.batch(2) for k, v in window.items()}))
    ),
    "windows interleaved": lambda lib: (
        _range(lib, 6).window(2).interleave(lambda window: window, cycle_length=2)
    ),
}

DATASETS = {**SOURCES, **BATCHES, **MAPS, **PARTS, **WINDOWS}


NARROW = "a spec has 32 bits as long as JAX has"


@scenario(case=tuple(DATASETS), eager_only=HOST_ONLY)
@ours(NARROW, [{"int32": [1, 2]}, {"int32": [3, 4]}], case="generator of rows")
def contents(lib: Library, case: str) -> Any:
    return elements(lib, lambda: DATASETS[case](lib))


def _known(spec: Any, size: int) -> dict[str, Any]:
    return {"spec": spec, "cardinality": size, "length": size}


# Where TensorFlow does not know the number of elements, though it could.
COUNTED = {
    "unbatch": _known("int64[]", 7),
    "unbatch of pairs": _known({"tuple": ["int64[]", "float32[]"]}, 5),
    "unbatch of columns": _known({"a": "int64[]", "b": "int64[2]"}, 5),
    "unbatch of strings": _known("string[]", 3),
    "rebatch up": _known("int64[?]", 4),
    "rebatch down": _known("int64[?]", 4),
    "rebatch with drop_remainder": _known("int64[3]", 3),
    "rebatch of pairs": _known({"tuple": ["int64[?]", "float32[?]"]}, 2),
    "rebatch of columns": _known({"a": "int64[?]", "b": "int64[?, 2]"}, 3),
    "rebatch of static batches": _known("int64[2]", 4),
    "skip -1 of repeat": _known("int64[]", 0),
}


@scenario(case=tuple(DATASETS), eager_only=HOST_ONLY)
@ours("what can be counted is", lambda case: COUNTED[case], case=tuple(COUNTED))
@ours(NARROW, {**_known("int32[2]", -2), "length": raises("TypeError")}, case="generator of rows")
@ours(
    "a function is asked for its result, not analysed, and here there is nothing to ask it about",
    raises("ValueError"),
    case=("map of nothing", "flat_map of nothing", "interleave of nothing"),
)
def described(lib: Library, case: str) -> Any:
    def describe() -> Any:
        dataset = DATASETS[case](lib)
        return {
            "spec": lib.spec(dataset.element_spec),
            "cardinality": int(dataset.cardinality()),
            "length": lib.outcome(lambda: len(dataset)),
        }

    return lib.outcome(describe)


@scenario(
    case=(
        *("slices of strings", "slices of a nest", "batch of columns", "slices of a namedtuple"),
        *("batch of strings", "map to a tuple", "range(5)"),
    ),
    eager_only=HOST_ONLY,
)
def as_numpy_iterator(lib: Library, case: str) -> Any:
    dataset = DATASETS[case](lib)
    return lib.outcome(lambda: [element(lib, item) for item in dataset.as_numpy_iterator()])


@scenario(
    case=("range(5)", "batch of pairs", "generator of tuples", "filter", "cache", "zip of a dict"),
    eager_only=HOST_ONLY,
)
def read_twice(lib: Library, case: str) -> Any:
    dataset = DATASETS[case](lib)
    first, second = iter(dataset), iter(dataset)
    return {
        "in turn": [element(lib, next(each)) for each in (first, second, first)],
        "afterwards": elements(lib, lambda: dataset),
    }


@scenario(eager_only=HOST_ONLY)
def iterators(lib: Library) -> Any:
    def past_the_end() -> Any:
        iterator = iter(lib.data.Dataset.range(1))
        next(iterator)
        iterator.get_next()

    dataset = lib.data.Dataset.range(2)
    iterator = iter(dataset)
    return {
        "itself": iter(iterator) is iterator,
        "spec": lib.spec(iterator.element_spec),
        "get_next": element(lib, iterator.get_next()),
        "next": element(lib, next(iterator)),
        "end": [lib.outcome(lambda: next(iterator)) for _ in range(2)],
        "get_next past the end": lib.outcome(past_the_end),
        "truth": bool(lib.data.Dataset.range(0)),
        "next of a data set": lib.outcome(lambda: next(dataset)),
    }


@scenario(eager_only=HOST_ONLY)
def optionals(lib: Library) -> Any:
    iterator = iter(lib.data.Dataset.range(1))
    first, second, third = (iterator.get_next_as_optional() for _ in range(3))
    return {
        "has_value": [bool(each.has_value()) for each in (first, second, third)],
        "value": element(lib, first.get_value()),
        "again": element(lib, first.get_value()),
        "no value": lib.outcome(second.get_value),
        "spec": lib.spec(first.element_spec),
    }
