"""`Strategy.experimental_distribute_values_from_function`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import per_replica
from .._library import Library
from .._registry import ours, scenario

ALWAYS_WRAPPED = "the result is a distributed value for any number of replicas"

PYTHON_VALUES = {
    "int": 3,
    "float": 2.5,
    "numpy": np.array([1, 2], np.float32),
    "scalar": np.float32(4),
    "text": "text",
    "none": None,
}

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "mirrored4", "central2")


@scenario(*KINDS)
@ours(ALWAYS_WRAPPED, per_replica(0.0), strategy=("default", "one_device"))
def from_the_replica_id(lib: Library, strategy: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: lib.constant(context.replica_id_in_sync_group * 10.0)
    )


@scenario(*KINDS)
def value_context(lib: Library, strategy: Any) -> Any:
    seen = []

    def value_fn(context: Any) -> Any:
        seen.append(
            {
                "replica": context.replica_id_in_sync_group,
                "replicas": context.num_replicas_in_sync,
                "class": isinstance(context, lib.experimental.ValueContext),
            }
        )
        return lib.constant(1.0)

    strategy.experimental_distribute_values_from_function(value_fn)
    return seen


@scenario("mirrored2", "mirrored1", kind=tuple(PYTHON_VALUES))
def of_python_values(lib: Library, strategy: Any, kind: str) -> Any:
    value = PYTHON_VALUES[kind]
    return lib.outcome(
        lambda: strategy.experimental_distribute_values_from_function(lambda _: value)
    )


@scenario("mirrored2", "mirrored1")
def of_one_shared_array(lib: Library, strategy: Any) -> Any:
    shared = lib.constant([1.0, 2.0])
    return strategy.experimental_distribute_values_from_function(lambda _: shared)


@scenario("mirrored2", structure=("tuple", "list", "dict"))
def of_structures(lib: Library, strategy: Any, structure: str) -> Any:
    def value_fn(context: Any) -> Any:
        x = lib.constant(float(context.replica_id_in_sync_group))
        return {"tuple": (x, x + 1.0), "list": [x, x + 1.0], "dict": {"a": x}}[structure]

    return lib.outcome(lambda: strategy.experimental_distribute_values_from_function(value_fn))


@scenario("mirrored2", "mirrored3")
def of_different_shapes(lib: Library, strategy: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: lib.constant(np.ones(context.replica_id_in_sync_group))
    )


@scenario("mirrored2", "one_device", "mirrored1")
def local_results(lib: Library, strategy: Any) -> Any:
    array = np.array([3, 2, 1], np.float32)
    value = strategy.experimental_distribute_values_from_function(
        lambda context: array[context.replica_id_in_sync_group]
    )
    return strategy.experimental_local_results(value)


@scenario("mirrored1", "mirrored2", "mirrored3", "one_device")
def through_run_and_reduce(lib: Library, strategy: Any) -> Any:
    value = strategy.experimental_distribute_values_from_function(
        lambda context: lib.constant([1.0, 2.0]) * (context.replica_id_in_sync_group + 1.0)
    )
    doubled = lib.run(strategy, lambda x: x * 2.0, args=(value,))
    return {"run": doubled, "reduced": strategy.reduce("SUM", value, axis=0)}


@scenario("mirrored2")
def function_that_fails(lib: Library, strategy: Any) -> Any:
    def value_fn(context: Any) -> Any:
        raise LookupError(f"on purpose in replica {context.replica_id_in_sync_group}")

    return lib.outcome(lambda: strategy.experimental_distribute_values_from_function(value_fn))


@scenario()
def value_context_made_by_hand(lib: Library) -> Any:
    plain = lib.experimental.ValueContext()
    context = lib.experimental.ValueContext(1, 4)
    return {
        "defaults": [plain.replica_id_in_sync_group, plain.num_replicas_in_sync],
        "given": [context.replica_id_in_sync_group, context.num_replicas_in_sync],
    }


@scenario("mirrored2", "one_device")
def context_during_the_function(lib: Library, strategy: Any) -> Any:
    seen = []

    def value_fn(_: Any) -> Any:
        seen.append([lib.distribute.has_strategy(), lib.distribute.in_cross_replica_context()])
        return lib.constant(1.0)

    strategy.experimental_distribute_values_from_function(value_fn)
    return seen
