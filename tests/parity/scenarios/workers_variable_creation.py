"""Variables start from the first worker's value, wherever and however they are made."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._layout import LAYOUTS
from .._library import AGGREGATIONS
from .._registry import scenario
from .._worker import InJob

HOST = "nothing runs on replicas"


@scenario(*LAYOUTS, eager_only=HOST, synchronization=("AUTO", "ON_WRITE", "ON_READ"))
def other_values_on_other_workers(lib: InJob, strategy: Any, synchronization: str) -> Any:
    with strategy.scope():
        variable = lib.variable([lib.worker + 1.0, -1.0], synchronization, "SUM")
    return {"variable": variable, "read": variable.read_value()}


@scenario(*LAYOUTS, eager_only=HOST)
def random_values(lib: InJob, strategy: Any) -> Any:
    random = np.random.default_rng(lib.worker).normal(size=(2, 3)).astype(np.float32)
    with strategy.scope():
        return lib.variable(random)


@scenario(*LAYOUTS, eager_only=HOST)
def from_a_function(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        return lib.variable(lambda: lib.constant([lib.worker + 5.0]))


@scenario(*LAYOUTS, eager_only=HOST, dtype=("int32", "float32", "bool"))
def of_types(lib: InJob, strategy: Any, dtype: str) -> Any:
    with strategy.scope():
        variable = lib.Variable(lib.cast(lib.constant([lib.worker + 1, 0], "int32"), dtype))
    return {"variable": variable, "shape": list(variable.shape)}


@scenario(*LAYOUTS, eager_only=HOST)
def many(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        return [lib.variable(np.full(1 + index % 3, lib.worker + index)) for index in range(6)]


@scenario(*LAYOUTS, eager_only=HOST)
def from_another_variable(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        first = lib.variable(lib.worker + 1.0)
        second = lib.variable(first * 2.0)
    return [first, second]


@scenario(*LAYOUTS, eager_only=HOST)
def outside_the_scope(lib: InJob, strategy: Any) -> Any:
    """A plain variable of this worker alone."""
    return lib.variable(lib.worker + 1.0)


@scenario(*LAYOUTS, aggregation=("SUM", "MEAN", "ONLY_FIRST_REPLICA"))
def inside_run(lib: InJob, strategy: Any, aggregation: str) -> Any:
    made = []

    def replica_fn() -> Any:
        if not made:
            made.append(lib.variable(lib.worker + 10.0, aggregation=aggregation))
        return made[0] + lib.replica_number()

    value = strategy.run(replica_fn)
    return {"seen": lib.local(value), "variable": made[0]}


@scenario(*LAYOUTS, eager_only=HOST)
def in_a_creator_scope(lib: InJob, strategy: Any) -> Any:
    calls = []

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        calls.append(kwargs.get("trainable"))
        return next_creator(**kwargs)

    with strategy.scope(), lib.variable_creator_scope(creator):
        variable = lib.variable(lib.worker + 1.0)
    return {"variable": variable, "calls": len(calls)}


@scenario(*LAYOUTS, eager_only=HOST, synchronization=("AUTO", "ON_WRITE", "ON_READ"))
def properties(lib: InJob, strategy: Any, synchronization: str) -> Any:
    seen = {}
    with strategy.scope():
        for aggregation in AGGREGATIONS:
            variable = lib.variable(1.0, synchronization, aggregation)
            seen[aggregation] = [
                variable.synchronization.name,
                variable.aggregation.name,
                bool(variable.trainable),
                lib.kind(variable),
            ]
    return seen


@scenario(*LAYOUTS, eager_only=HOST, synchronization=("AUTO", "ON_READ"))
def mean_of_integers(lib: InJob, strategy: Any, synchronization: str) -> Any:
    with strategy.scope():
        return lib.outcome(lambda: lib.variable(3, synchronization, "MEAN"))


@scenario(*LAYOUTS, eager_only=HOST)
def colocated(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        first = lib.variable(1.0)
        with strategy.extended.colocate_vars_with(first):
            second = lib.variable(lib.worker + 2.0)
    return second


@scenario(*LAYOUTS, eager_only=HOST)
def made_in_scope(lib: InJob, strategy: Any) -> Any:
    outside = lib.variable(1.0)
    with strategy.scope():
        inside = lib.variable(1.0)
    created = strategy.extended.variable_created_in_scope
    return [created(inside), created(outside)]
