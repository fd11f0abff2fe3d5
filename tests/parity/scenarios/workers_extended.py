"""`StrategyExtended`: what library authors use, over many workers."""

from __future__ import annotations

from typing import Any

from .._expected import raises
from .._layout import LAYOUTS
from .._library import nothing
from .._registry import ours, scenario
from .._worker import InJob

HOST = "nothing runs on replicas"
OPS = ("SUM", "MEAN")


def _value(lib: InJob) -> Any:
    return lib.by_replica([[1.0, 2.0], [3.0, 6.0], [5.0, 9.0], [7.0, 11.0]])


@scenario(*LAYOUTS, eager_only=HOST, op=OPS, destination=("variable", "value"))
def reduce_to(lib: InJob, strategy: Any, op: str, destination: str) -> Any:
    with strategy.scope():
        value = _value(lib)
        to = lib.variable(0.0) if destination == "variable" else value
        return lib.local(strategy.extended.reduce_to(lib.distribute.ReduceOp[op], value, to))


@scenario(*LAYOUTS, eager_only=HOST, op=OPS)
def batch_reduce_to(lib: InJob, strategy: Any, op: str) -> Any:
    with strategy.scope():
        pairs = [
            (lib.by_replica([1.0, 2.0, 6.0, 8.0]), lib.variable(0.0)),
            (_value(lib), lib.variable([0.0, 0.0])),
        ]
        reduced = strategy.extended.batch_reduce_to(lib.distribute.ReduceOp[op], pairs)
    return [lib.local(value) for value in reduced]


@scenario(*LAYOUTS, eager_only=HOST)
def broadcast_to(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        return lib.local(strategy.extended.broadcast_to(lib.constant(4.0), lib.variable(0.0)))


@scenario(*LAYOUTS, eager_only=HOST, group=(True, False))
def update(lib: InJob, strategy: Any, group: bool) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        returned = strategy.extended.update(
            variable,
            lambda copy, delta: copy.assign_add(delta).read_value(),
            args=(lib.constant(2.0),),
            group=group,
        )
    return {"returned": None if group else lib.local(returned), "variable": variable}


@scenario(*LAYOUTS, eager_only=HOST)
def update_with_a_reduced_value(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable([1.0, 2.0])
        reduced = strategy.extended.reduce_to(lib.distribute.ReduceOp.SUM, _value(lib), variable)
        strategy.extended.update(
            variable, lambda copy, x: nothing(copy.assign_sub(x)), args=(reduced,)
        )
    return variable


@scenario(*LAYOUTS, eager_only=HOST)
@ours(
    "the arguments of update may not be per-replica values",
    lambda layout, **_: {
        "returned": raises("ValueError"),
        "variable": {
            "kind": "MirroredVariable",
            "copies": [{"dtype": "float32", "value": [0.0, 0.0]}] * layout.devices,
        },
    },
)
def update_with_a_per_replica_value(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable([0.0, 0.0])
        returned = lib.outcome(
            lambda: nothing(
                strategy.extended.update(
                    variable, lambda copy, x: nothing(copy.assign(x)), args=(_value(lib),)
                )
            )
        )
    return {"returned": returned, "variable": variable}


@scenario(*LAYOUTS, eager_only=HOST)
def update_function_fails(lib: InJob, strategy: Any) -> Any:
    def fail(copy: Any) -> None:
        raise LookupError(f"on purpose: {copy.dtype}")

    with strategy.scope():
        variable = lib.variable(1.0)
        return lib.outcome(lambda: strategy.extended.update(variable, fail))


@scenario(*LAYOUTS)
def call_for_each_replica(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        value = strategy.extended.call_for_each_replica(
            lambda x: x + lib.replica_number(), args=(lib.constant(3.0),)
        )
    return lib.local(value)


@scenario(*LAYOUTS, eager_only=HOST, aggregation=("SUM", "MEAN", "ONLY_FIRST_REPLICA"))
def read_var(lib: InJob, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        mirrored = lib.variable(2.0, aggregation=aggregation)
        on_read = lib.variable(2.0, "ON_READ", aggregation)
    strategy.run(lambda: nothing(on_read.assign(lib.replica_number())))
    with strategy.scope():
        return {
            "mirrored": lib.outcome(lambda: strategy.extended.read_var(mirrored) + 0.0),
            "on_read": lib.outcome(lambda: strategy.extended.read_var(on_read) + 0.0),
        }


@scenario(*LAYOUTS, eager_only=HOST)
def value_containers(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
    copies = strategy.experimental_local_results(variable)
    return {
        "copies": [strategy.extended.value_container(copy) is variable for copy in copies],
        "itself": strategy.extended.value_container(variable) is variable,
    }


@scenario(*LAYOUTS, eager_only=HOST)
def non_slot_devices(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        devices = strategy.extended.non_slot_devices([lib.variable(1.0)])
    return len(devices) if isinstance(devices, tuple | list) else 1
