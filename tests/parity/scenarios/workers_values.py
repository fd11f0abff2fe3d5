"""Values with a component for each replica: this worker has those of its own replicas."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from .._expected import array
from .._layout import LAYOUTS, Layout
from .._observation import Observation
from .._registry import ours, scenario
from .._worker import InJob

HOST = "nothing runs on replicas"
Point = collections.namedtuple("Point", ["x", "y"])


@scenario(*LAYOUTS, eager_only=HOST)
def value_contexts(lib: InJob, strategy: Any) -> Any:
    seen = []

    def value_fn(context: Any) -> Any:
        seen.append([context.replica_id_in_sync_group, context.num_replicas_in_sync])
        return lib.constant(0.0)

    strategy.experimental_distribute_values_from_function(value_fn)
    return seen


@scenario(*LAYOUTS, eager_only=HOST)
def values_from_function(lib: InJob, strategy: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: lib.constant([1.0, 2.0]) * float(context.replica_id_in_sync_group)
    )


@scenario(*LAYOUTS, eager_only=HOST)
def values_from_function_of_numpy(lib: InJob, strategy: Any) -> Any:
    array = np.arange(4, dtype=np.float32)
    value = strategy.experimental_distribute_values_from_function(
        lambda context: array[context.replica_id_in_sync_group]
    )
    return strategy.experimental_local_results(value)


@scenario(*LAYOUTS, eager_only=HOST)
def values_of_different_shapes(lib: InJob, strategy: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: lib.constant(np.ones(context.replica_id_in_sync_group))
    )


@scenario(*LAYOUTS, eager_only=HOST, structure=("tuple", "dict", "nested"))
def values_of_structures(lib: InJob, strategy: Any, structure: str) -> Any:
    def value_fn(context: Any) -> Any:
        x = lib.constant(float(context.replica_id_in_sync_group))
        return {"tuple": (x, x + 1.0), "dict": {"a": x}, "nested": {"a": (x, [x + 1.0])}}[structure]

    return lib.outcome(
        lambda: lib.local(strategy.experimental_distribute_values_from_function(value_fn))
    )


def _wrapped(layout: Layout, worker: int) -> Observation:
    numbers = [worker * layout.devices + index for index in range(layout.devices)]
    own = {"kind": "PerReplica", "values": [array(number + 1.0) for number in numbers]}
    ids = {"kind": "PerReplica", "values": [array(number, "int32") for number in numbers]}
    return {"own": own, "pair": {"tuple": [ids, None]}}


@scenario(*LAYOUTS)
@ours(
    "one of many replicas is still a value of replicas, though it can be used as its array",
    _wrapped,
    strategy=("2x1", "3x1", "4x1"),
)
def kind_of_results(lib: InJob, strategy: Any) -> Any:
    """One replica here or several: whether what `run` gives is wrapped."""
    return lib.run(
        strategy, lambda: {"own": lib.replica_number(), "pair": (lib.replica_id(), None)}
    )


@scenario(*LAYOUTS)
def kind_of_arguments(lib: InJob, strategy: Any) -> Any:
    value = lib.by_replica([1.0, 2.0, 3.0, 4.0])
    return lib.local(
        lib.run(
            strategy,
            lambda own, plain, named: own * 10.0 + plain + named["a"],
            args=(value, lib.constant(0.5)),
            kwargs={"named": {"a": value}},
        )
    )


@scenario(*LAYOUTS, eager_only=HOST)
def local_results_of_plain_values(lib: InJob, strategy: Any) -> Any:
    return {
        "array": strategy.experimental_local_results(lib.constant([1.0, 2.0])),
        "number": strategy.experimental_local_results(3),
        "none": strategy.experimental_local_results(None),
    }


@scenario(*LAYOUTS)
def local_results_of_structures(lib: InJob, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: {"a": lib.replica_number(), "b": (lib.replica_id(),)})
    return {"whole": lib.local(value), "part": lib.local(value["b"][0])}


@scenario(*LAYOUTS)
def local_results_of_named_tuples(lib: InJob, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: Point(lib.replica_number(), lib.replica_number() * 2.0))
    return {"class": type(value).__name__, "x": lib.local(value.x), "y": lib.local(value.y)}


@scenario(*LAYOUTS, eager_only=HOST)
def local_results_of_variables(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        mirrored = lib.variable([1.0, 2.0])
        on_read = lib.variable(3.0, "ON_READ", "SUM")
    return {
        "mirrored": [
            lib.to_numpy(v).tolist() for v in strategy.experimental_local_results(mirrored)
        ],
        "on_read": [lib.to_numpy(v).tolist() for v in strategy.experimental_local_results(on_read)],
    }


@scenario(*LAYOUTS, eager_only=HOST)
def mirrored_values(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        value = strategy.extended.broadcast_to(lib.constant([1.0, 2.0]), lib.variable(0.0))
    return lib.local(value)


@scenario(*LAYOUTS)
def shapes_and_types(lib: InJob, strategy: Any) -> Any:
    value = lib.run(strategy, lambda: lib.constant([[1, 2, 3]], "int32") * (lib.replica_id() + 1))
    return [
        [list(item.shape), lib.to_numpy(item).dtype.name]
        for item in strategy.experimental_local_results(value)
    ]


@scenario(*LAYOUTS, eager_only="compiled results are arrays")
@ours(
    "one of many replicas is still a value of replicas",
    {"text": "text", "number": {"kind": "PerReplica", "values": [3]}, "none": None},
    strategy=("2x1", "3x1", "4x1"),
)
def results_that_are_no_arrays(lib: InJob, strategy: Any) -> Any:
    return {
        "text": lib.run(strategy, lambda: "text"),
        "number": lib.run(strategy, lambda: 3),
        "none": lib.run(strategy, lambda: None),
    }


@scenario(*LAYOUTS)
def one_captured_array(lib: InJob, strategy: Any) -> Any:
    shared = lib.constant(3.0)
    return lib.same_everywhere(lib.run(strategy, lambda: shared))
