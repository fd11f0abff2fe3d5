"""Data sets on the host: mistakes that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._expected import raises
from .._library import Library
from .._pipelines import HOST_ONLY, elements
from .._registry import ours, scenario
from .data_operations import Point, _columns, _generator, _lists, _pairs, _range, _slices, _zip

Make = Callable[[Library], Any]


def _fail(*_: Any) -> Any:
    raise LookupError("on purpose")


def _failing() -> Iterator[int]:
    yield 1
    raise LookupError("on purpose")


REFUSED: dict[str, Make] = {
    "slices of a scalar": lambda lib: _slices(lib, 3),
    "slices of other lengths": lambda lib: _slices(lib, ([1, 2], [1, 2, 3])),
    "slices of a ragged list": lambda lib: _slices(lib, [[1, 2], [3]]),
    "slices of numbers and texts": lambda lib: _slices(lib, [1, "a"]),
    "range of nothing": lambda lib: _range(lib),
    "range with step 0": lambda lib: _range(lib, 0, 5, 0),
    "range of four": lambda lib: _range(lib, 0, 5, 1, 1),
    "range of a text": lambda lib: _range(lib, "5"),
    "batch(0)": lambda lib: _range(lib, 3).batch(0),
    "batch(-1)": lambda lib: _range(lib, 3).batch(-1),
    "batch of a text": lambda lib: _range(lib, 3).batch("a"),
    "batch of a fraction": lambda lib: _range(lib, 3).batch(2.5),
    "batch of lists of other lengths": lambda lib: _lists(lib).batch(2),
    "padded_batch(0)": lambda lib: _lists(lib).padded_batch(0),
    "padded_batch to too few": lambda lib: _lists(lib).padded_batch(3, padded_shapes=[2]),
    "padded_batch with another rank": lambda lib: _lists(lib).padded_batch(
        2, padded_shapes=[None, None]
    ),
    "padded_batch with another structure": lambda lib: _lists(lib).padded_batch(
        2, padded_shapes=([None], [None])
    ),
    "unbatch of scalars": lambda lib: _range(lib, 3).unbatch(),
    "unbatch of other lengths": lambda lib: _slices(lib, ([[1, 2]], [[1, 2, 3]])).unbatch(),
    "rebatch(0)": lambda lib: _range(lib, 3).batch(2).rebatch(0),
    "rebatch of scalars": lambda lib: _range(lib, 3).rebatch(2),
    "map of pairs with one argument": lambda lib: _pairs(lib).map(lambda x: x),
    "map of points with two arguments": lambda lib: _slices(lib, Point([1], [3])).map(
        lambda x, y: x + y
    ),
    "map with two arguments": lambda lib: _range(lib, 3).map(lambda x, y: x),
    "map of a dict with two arguments": lambda lib: _columns(lib).map(lambda a, b: a),
    "map with parallel calls -2": lambda lib: _range(lib, 3).map(
        lambda x: x, num_parallel_calls=-2
    ),
    "interleave with a cycle of 0": lambda lib: _range(lib, 3).interleave(
        lambda x: lib.data.Dataset.range(x), cycle_length=0
    ),
    "interleave with a block of 0": lambda lib: _range(lib, 3).interleave(
        lambda x: lib.data.Dataset.range(x), cycle_length=2, block_length=0
    ),
    "shuffle(0)": lambda lib: _range(lib, 3).shuffle(0),
    "shuffle(-3)": lambda lib: _range(lib, 3).shuffle(-3),
    "shuffle of a text": lambda lib: _range(lib, 3).shuffle("a"),
    "repeat of a text": lambda lib: _range(lib, 3).repeat("a"),
    "take of a text": lambda lib: _range(lib, 3).take("a"),
    "skip of a fraction": lambda lib: _range(lib, 3).skip(1.5),
    "shard 0 0": lambda lib: _range(lib, 3).shard(0, 0),
    "shard 2 2": lambda lib: _range(lib, 3).shard(2, 2),
    "shard 2 -1": lambda lib: _range(lib, 3).shard(2, -1),
    "concatenate another type": lambda lib: _range(lib, 2).concatenate(_slices(lib, [1.0])),
    "concatenate another structure": lambda lib: _range(lib, 2).concatenate(_pairs(lib)),
    "enumerate from a text": lambda lib: _range(lib, 2).enumerate("a"),
    "prefetch(-3)": lambda lib: _range(lib, 2).prefetch(-3),
    "window(0)": lambda lib: _range(lib, 3).window(0),
    "window with a shift of 0": lambda lib: _range(lib, 3).window(2, shift=0),
    "window with a stride of 0": lambda lib: _range(lib, 3).window(2, stride=0),
    "zip of no arguments": lambda lib: _zip(lib),
    "zip of a number": lambda lib: _zip(lib, 3),
    "zip of a list": lambda lib: _zip(lib, [_range(lib, 2), _range(lib, 2)]),
    "zip of numbers": lambda lib: _zip(lib, (1, 2)),
    "generator without a spec": lambda lib: _generator(lib, [1]),
    "generator with two specs": lambda lib: _generator(
        lib, [1], ([], "int32"), output_types=np.int32
    ),
    "generator that is not callable": lambda lib: lib.data.Dataset.from_generator(
        [1, 2], output_signature=lib.TensorSpec([], "int32")
    ),
}

# Where the kind of the error tells more of TensorFlow's inside than of the mistake.
REFUSED_SOMEHOW: dict[str, Make] = {
    "slices of nothing at all": lambda lib: _slices(lib, None),
    "padded_batch with another type": lambda lib: _lists(lib).padded_batch(2, padding_values="a"),
    "generator of another shape": lambda lib: _generator(lib, [[1, 2, 3]], ([2], "int32")),
    "rebatch([])": lambda lib: _range(lib, 3).batch(2).rebatch([]),
    "map without a function": lambda lib: _range(lib, 3).map(None),
    "map that fails": lambda lib: _range(lib, 3).map(_fail),
    "filter with a number": lambda lib: _range(lib, 3).filter(lambda x: x),
    "filter with a vector": lambda lib: _range(lib, 3).batch(2).filter(lambda x: x > 0),
    "filter with a tuple": lambda lib: _range(lib, 3).filter(lambda x: (x > 0, x > 1)),
    "flat_map to a number": lambda lib: _range(lib, 3).flat_map(lambda x: x),
    "interleave to a number": lambda lib: _range(lib, 3).interleave(lambda x: x, cycle_length=2),
    "concatenate a list": lambda lib: _range(lib, 2).concatenate([1, 2]),
    "generator of another type": lambda lib: _generator(lib, ["a"], ([], "int32")),
    "generator of another structure": lambda lib: _generator(
        lib, [1, 2], ([], "int32"), ([], "int32")
    ),
    "generator that fails": lambda lib: lib.data.Dataset.from_generator(
        _failing, output_signature=lib.TensorSpec([], "int32")
    ),
    "generator that gives no iterator": lambda lib: lib.data.Dataset.from_generator(
        lambda: 3, output_signature=lib.TensorSpec([], "int32")
    ),
    "options that are none": lambda lib: _range(lib, 2).with_options(3),
}


@scenario(case=tuple(REFUSED), eager_only=HOST_ONLY)
@ours("no batch is empty", raises("ValueError"), case="rebatch(0)")
@ours("the first item tells", [{"int32": 1}], case="generator without a spec")
def refused(lib: Library, case: str) -> Any:
    return elements(lib, lambda: REFUSED[case](lib))


@scenario(case=tuple(REFUSED_SOMEHOW), eager_only=HOST_ONLY)
def refused_somehow(lib: Library, case: str) -> Any:
    return lib.refuses(lambda: list(REFUSED_SOMEHOW[case](lib)))


@scenario(eager_only=HOST_ONLY)
def map_to_nothing(lib: Library) -> Any:
    return lib.refuses(lambda: list(_range(lib, 2).map(lambda x: None)))
