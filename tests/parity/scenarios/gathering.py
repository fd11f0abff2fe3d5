"""`Strategy.gather` along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import array, raises
from .._library import Library
from .._registry import ours, scenario

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "mirrored4", "central2")


@scenario(*KINDS)
def gather(lib: Library, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: lib.constant([[1.0, 2.0], [3.0, 4.0]]) * lib.replica_number())
    return {
        f"axis {axis}": lib.outcome(lambda a=axis: strategy.gather(value, axis=a))
        for axis in (0, 1)
    }


@scenario("mirrored2", "one_device", "central2")
@ours("a negative axis counts from the end", array([[1.0, 1.0, 2.0, 2.0]]), strategy="mirrored2")
def gather_along_a_negative_axis(lib: Library, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: lib.constant([[1.0, 1.0]]) * lib.replica_number())
    return lib.outcome(lambda: strategy.gather(value, axis=-1))


@scenario("mirrored2", "mirrored3")
def gather_uneven(lib: Library, strategy: Any) -> Any:
    value = lib.per_replica(strategy, [np.full((rows, 2), rows) for rows in (3, 1, 2)])
    return strategy.gather(value, axis=0)


@scenario("mirrored2")
def gather_with_an_empty_replica(lib: Library, strategy: Any) -> Any:
    value = lib.per_replica(strategy, [np.ones((2, 2)), np.ones((0, 2))])
    return strategy.gather(value, axis=0)


@scenario("mirrored2", "one_device")
def gather_integers(lib: Library, strategy: Any) -> Any:
    value = lib.per_replica(strategy, [[1, 2], [3]], "int32")
    return strategy.gather(value, axis=0)


@scenario("mirrored2", "one_device")
@ours("each item of a structure is gathered", {"a": array([1.0, 2.0])}, strategy="mirrored2")
def gather_structure(lib: Library, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: {"a": lib.constant([1.0]) * lib.replica_number()})
    return strategy.gather(value, axis=0)


@scenario("mirrored2", "one_device", "default")
def gather_a_plain_array(lib: Library, strategy: Any) -> Any:
    return lib.outcome(lambda: strategy.gather(lib.constant([1.0, 2.0]), axis=0))


@scenario("mirrored2", "one_device")
@ours("one replica refuses what several refuse", raises("ValueError"), strategy="one_device")
def gather_a_scalar(lib: Library, strategy: Any) -> Any:
    value = lib.run(strategy, lib.replica_number)
    return lib.outcome(lambda: strategy.gather(value, axis=0))


@scenario("mirrored2", case=("other_dims", "ranks", "axis"))
def gather_refused(lib: Library, strategy: Any, case: str) -> Any:
    shapes = {"other_dims": [(1, 2), (1, 3)], "ranks": [(1, 2), (2,)], "axis": [(1, 2), (1, 2)]}
    value = lib.per_replica(strategy, [np.ones(shape) for shape in shapes[case]])
    return lib.outcome(lambda: strategy.gather(value, axis=5 if case == "axis" else 0))


@scenario("mirrored2")
def gather_a_variable(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable([1.0, 2.0])
    return lib.outcome(lambda: strategy.gather(variable, axis=0))
