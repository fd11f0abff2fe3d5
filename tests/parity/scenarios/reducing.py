"""`Strategy.reduce` over replicas and axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import array, raises
from .._layout import LAYOUTS
from .._library import Library
from .._registry import ours, scenario

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "mirrored4", "central2")
SHARED_KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "central2")


def _matrices(lib: Library, dtype: str = "float32") -> Any:
    return lib.cast(
        lib.constant([[1, 2, 3], [4, 5, 7]], dtype) * lib.cast(lib.replica_number(), dtype), dtype
    )


@scenario(*KINDS, op=("SUM", "MEAN"))
def reduce_matrices(lib: Library, strategy: Any, op: str) -> Any:
    value = lib.run(strategy, lambda: _matrices(lib))
    return {
        f"axis {axis}": strategy.reduce(lib.distribute.ReduceOp[op], value, axis=axis)
        for axis in (None, 0, 1, -1)
    }


@scenario("mirrored2", "mirrored1", op=("SUM", "MEAN"), axis=((0, 1), (0,), (-1,), (-2, -1)))
def reduce_over_a_tuple_of_axes(lib: Library, strategy: Any, op: str, axis: tuple[int, ...]) -> Any:
    value = lib.run(strategy, lambda: _matrices(lib))
    return lib.outcome(lambda: strategy.reduce(op, value, axis=axis))


@scenario("mirrored2", "mirrored3", op=("SUM", "MEAN"), axis=(None, 0))
def reduce_integers(lib: Library, strategy: Any, op: str, axis: int | None) -> Any:
    value = lib.run(strategy, lambda: _matrices(lib, "int32"))
    return strategy.reduce(op, value, axis=axis)


SMALL = {"int8": [100, 27], "uint8": [200, 55], "int16": [32000, 767], "uint16": [65000, 535]}


@scenario("default", "one_device", "mirrored2", "mirrored3", dtype=tuple(SMALL), axis=(None, 0))
def sum_small_integers(lib: Library, strategy: Any, dtype: str, axis: int | None) -> Any:
    value = lib.run(strategy, lambda: lib.constant(SMALL[dtype], dtype))
    return strategy.reduce("SUM", value, axis=axis)


@scenario("mirrored2", dtype=tuple(SMALL), axis=(None, 0))
@ours(
    "a mean of small integers is their mean, also where their sum does not fit",
    lambda dtype, axis, **_: array(np.asarray(SMALL[dtype], np.float32).mean(axis).tolist()),
    axis=0,
)
@ours(
    "a mean of small integers is their mean, also where their sum does not fit",
    lambda dtype, **_: array([float(number) for number in SMALL[dtype]]),
    axis=None,
)
def mean_of_small_integers(lib: Library, strategy: Any, dtype: str, axis: int | None) -> Any:
    value = lib.run(strategy, lambda: lib.constant(SMALL[dtype], dtype))
    return strategy.reduce("MEAN", value, axis=axis)


@scenario("mirrored2", op=("sum", "Sum", "mean", "MEAN", "MAX", "nonsense", 3))
@ours("what is neither an op nor a text is of the wrong type", raises("TypeError"), op=3)
def reduce_op_as_text(lib: Library, strategy: Any, op: Any) -> Any:
    value = lib.run(strategy, lib.replica_number)
    return lib.outcome(lambda: strategy.reduce(op, value, axis=None))


def _uneven(lib: Library, strategy: Any, rows: tuple[int, ...], columns: int = 2) -> Any:
    arrays = [np.arange(count * columns).reshape(count, columns) + count for count in rows]
    return lib.per_replica(strategy, arrays)


@scenario("mirrored2", "mirrored3", op=("SUM", "MEAN"), axis=(0, -2, (0, 1)))
def reduce_an_uneven_last_batch(lib: Library, strategy: Any, op: str, axis: Any) -> Any:
    return lib.outcome(lambda: strategy.reduce(op, _uneven(lib, strategy, (4, 3, 1)), axis=axis))


@scenario("mirrored2", "mirrored3", op=("SUM", "MEAN"))
def reduce_with_an_empty_replica(lib: Library, strategy: Any, op: str) -> Any:
    return strategy.reduce(op, _uneven(lib, strategy, (3, 0, 0)), axis=0)


@scenario("mirrored2", op=("SUM", "MEAN"))
def reduce_when_all_are_empty(lib: Library, strategy: Any, op: str) -> Any:
    return strategy.reduce(op, _uneven(lib, strategy, (0, 0)), axis=0)


@scenario("mirrored2", axis=(None, 1))
def reduce_uneven_without_its_axis(lib: Library, strategy: Any, axis: int | None) -> Any:
    return lib.outcome(lambda: strategy.reduce("SUM", _uneven(lib, strategy, (2, 1)), axis=axis))


@scenario("mirrored2", "one_device", axis=(2, -3))
def reduce_over_an_axis_that_is_not_there(lib: Library, strategy: Any, axis: int) -> Any:
    value = lib.run(strategy, lambda: _matrices(lib))
    return lib.outcome(lambda: strategy.reduce("SUM", value, axis=axis))


@scenario("mirrored2", "one_device")
def reduce_a_scalar_over_an_axis(lib: Library, strategy: Any) -> Any:
    value = lib.run(strategy, lib.replica_number)
    return lib.outcome(lambda: strategy.reduce("SUM", value, axis=0))


@scenario(*LAYOUTS, op=("SUM", "MEAN"), axis=(None, 0))
@ours(
    "a plain array is no sum: it would count once for each worker, not for each replica",
    raises("ValueError"),
    strategy="2x2",
    op="SUM",
    axis=None,
)
@scenario(*SHARED_KINDS, op=("SUM", "MEAN"), axis=(None, 0))
def reduce_a_plain_array(lib: Library, strategy: Any, op: str, axis: int | None) -> Any:
    value = lib.constant([1.0, 2.0, 6.0])
    return lib.outcome(lambda: strategy.reduce(op, value, axis=axis))


@scenario("default", "one_device", "mirrored2", op=("SUM", "MEAN"))
def reduce_a_python_number(lib: Library, strategy: Any, op: str) -> Any:
    return lib.outcome(lambda: lib.cast(strategy.reduce(op, 3.0, axis=None), "float32"))


@scenario("mirrored2", "one_device", op=("SUM", "MEAN"), synchronization=("AUTO", "ON_READ"))
def reduce_a_variable(lib: Library, strategy: Any, op: str, synchronization: str) -> Any:
    with strategy.scope():
        variable = lib.variable(3.0, synchronization, "SUM")
    return lib.outcome(lambda: strategy.reduce(op, variable, axis=None) + 0.0)


@scenario("mirrored2", "mirrored3", op=("SUM", "MEAN"))
def reduce_a_mirrored_value(lib: Library, strategy: Any, op: str) -> Any:
    with strategy.scope():
        value = strategy.extended.reduce_to(
            lib.distribute.ReduceOp.SUM,
            lib.per_replica(strategy, [1.0, 2.0, 3.0]),
            lib.variable(0.0),
        )
    return {"value": value, "reduced": lib.outcome(lambda: strategy.reduce(op, value, axis=None))}


@scenario("mirrored2", "one_device", axis=(None, 0))
@ours(
    "each item of a structure is reduced, along an axis too",
    {"a": array([15.0, 21.0, 30.0]), "b": {"tuple": [array([30.0, 42.0, 60.0])]}},
    strategy="mirrored2",
    axis=0,
)
@ours(
    "each item of a structure is reduced, along an axis too",
    {"a": array([5.0, 7.0, 10.0]), "b": {"tuple": [array([10.0, 14.0, 20.0])]}},
    strategy="one_device",
    axis=0,
)
def reduce_a_structure(lib: Library, strategy: Any, axis: int | None) -> Any:
    value = lib.run(strategy, lambda: {"a": _matrices(lib), "b": (_matrices(lib) * 2.0,)})
    return lib.outcome(lambda: strategy.reduce("SUM", value, axis=axis))


@scenario("mirrored2", op=("SUM", "MEAN"))
@ours(
    "Python numbers are taken as arrays",
    lambda op, **_: array(3.0 if op == "SUM" else 1.5),
)
def reduce_per_replica_python_numbers(lib: Library, strategy: Any, op: str) -> Any:
    value = strategy.experimental_distribute_values_from_function(
        lambda context: float(context.replica_id_in_sync_group + 1)
    )
    return lib.outcome(lambda: strategy.reduce(op, value, axis=None))


@scenario("mirrored2", op=("SUM", "MEAN"), axis=(None, 0))
def reduce_per_replica_numpy_arrays(lib: Library, strategy: Any, op: str, axis: int | None) -> Any:
    value = strategy.experimental_distribute_values_from_function(
        lambda context: np.array([1, 2, 3], np.float32) * (context.replica_id_in_sync_group + 1)
    )
    return lib.outcome(lambda: strategy.reduce(op, value, axis=axis))


@scenario("mirrored2", op=("SUM", "MEAN"), axis=(None, 0))
def reduce_booleans(lib: Library, strategy: Any, op: str, axis: int | None) -> Any:
    value = lib.run(strategy, lambda: lib.constant([True, False], "bool"))
    return lib.refuses(lambda: strategy.reduce(op, value, axis=axis))


@scenario("mirrored2", "one_device", "default", inside=(True, False))
def reduce_inside_and_outside_scope(lib: Library, strategy: Any, inside: bool) -> Any:
    value = lib.run(strategy, lib.replica_number)
    if not inside:
        return strategy.reduce("SUM", value, axis=None)
    with strategy.scope():
        return strategy.reduce("SUM", value, axis=None)


@scenario("mirrored2", "mirrored4", *LAYOUTS)
def reduce_an_epoch(lib: Library, strategy: Any) -> Any:
    total = lib.constant(0.0)
    for step in range(3):
        losses = lib.run(strategy, lambda scale=step: lib.replica_number() * float(scale))
        total += strategy.reduce("SUM", losses, axis=None)
    return total


@scenario("mirrored2")
def reduce_without_an_axis_argument(lib: Library, strategy: Any) -> Any:
    value = lib.run(strategy, lib.replica_number)
    return lib.outcome(lambda: strategy.reduce("SUM", value))
