"""Cross-device operations: the ones that ship, a user's own, and their options."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import array, mirrored, mirrored_variable, per_replica, raises
from .._library import Library, nothing
from .._registry import ours, scenario

SHIPPED = {
    "none": lambda lib: None,
    "nccl": lambda lib: lib.distribute.NcclAllReduce(),
    "nccl_two_packs": lambda lib: lib.distribute.NcclAllReduce(num_packs=2),
    "hierarchical": lambda lib: lib.distribute.HierarchicalCopyAllReduce(),
    "hierarchical_two_packs": lambda lib: lib.distribute.HierarchicalCopyAllReduce(num_packs=2),
    "one_device": lambda lib: lib.distribute.ReductionToOneDevice(),
    "one_named_device": lambda lib: lib.distribute.ReductionToOneDevice(reduce_to_device="CPU:1"),
}


def _strategy(lib: Library, ops: str, replicas: int) -> Any:
    devices = [f"CPU:{index}" for index in range(replicas)]
    return lib.mirrored(devices, cross_device_ops=SHIPPED[ops](lib))


def _all_reduced(replicas: int, **_: Any) -> dict[str, Any]:
    """What `all_reduce` below is to give, whatever the operations."""
    total = replicas * (replicas + 1) / 2

    def scaled(values: list[Any], by: float) -> Any:
        return per_replica(*[(np.array(values, np.float32) * np.float32(by)).tolist()] * replicas)

    return {
        op: [scaled([1, 2, 3], by), scaled([[5], [7]], by)]
        for op, by in {"SUM": total, "MEAN": total / replicas}.items()
    }


@scenario(ops=tuple(SHIPPED), replicas=(2, 3))
@ours("runs on any device", _all_reduced, ops=("nccl", "nccl_two_packs"))
@ours(
    "sums over an odd number of replicas too",
    _all_reduced,
    ops=("hierarchical", "hierarchical_two_packs"),
    replicas=3,
)
def all_reduce(lib: Library, ops: str, replicas: int) -> Any:
    strategy = _strategy(lib, ops, replicas)

    def replica_fn() -> Any:
        x = lib.constant([1.0, 2.0, 3.0]) * lib.replica_number()
        y = lib.constant([[5.0], [7.0]]) * lib.replica_number()
        context = lib.distribute.get_replica_context()
        return {op: context.all_reduce(op, [x, y]) for op in ("SUM", "MEAN")}

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario(ops=tuple(SHIPPED), replicas=(1, 2))
def reduce_and_gather(lib: Library, ops: str, replicas: int) -> Any:
    strategy = _strategy(lib, ops, replicas)
    value = lib.per_replica(strategy, [[1.0, 2.0], [3.0, 4.0]])
    return {
        "reduce": lib.outcome(lambda: strategy.reduce("SUM", value, axis=None)),
        "gather": lib.outcome(lambda: strategy.gather(value, axis=0)),
    }


@scenario(ops=tuple(SHIPPED))
def variable_update(lib: Library, ops: str) -> Any:
    strategy = _strategy(lib, ops, 2)
    with strategy.scope():
        variable = lib.variable([1.0, 2.0], aggregation="SUM")

    def replica_fn() -> None:
        variable.assign_add(lib.constant([1.0, 1.0]) * lib.replica_number())

    outcome = lib.outcome(lambda: lib.run(strategy, replica_fn))
    return {"outcome": outcome, "variable": variable}


@scenario(
    ops=("nccl", "hierarchical", "one_device"), method=("reduce", "batch_reduce", "broadcast")
)
@ours("runs on any device", [mirrored(2.0), mirrored(2.0)], ops="nccl", method="batch_reduce")
def called_directly(lib: Library, ops: str, method: str) -> Any:
    strategy = lib.strategy("mirrored2")
    cross = SHIPPED[ops](lib)
    value = lib.per_replica(strategy, [1.0, 3.0])
    mean = lib.distribute.ReduceOp.MEAN

    def call() -> Any:
        if method == "reduce":
            return cross.reduce(mean, value, value)
        if method == "batch_reduce":
            return cross.batch_reduce(mean, [(value, value), (value, value)])
        return cross.broadcast(lib.constant(4.0), value)

    return lib.outcome(call)


@scenario(kind=("nccl", "hierarchical"))
def negative_packs(lib: Library, kind: str) -> Any:
    made = {
        "nccl": lib.distribute.NcclAllReduce,
        "hierarchical": lib.distribute.HierarchicalCopyAllReduce,
    }
    return lib.outcome(lambda: nothing(made[kind](num_packs=-1)))


@scenario(replicas=(2, 3))
@ours(
    "the function that was given is used in every reduction",
    lambda replicas: {"reduced": array({2: 300.0, 3: 600.0}[replicas]), "used": True},
)
def accumulation_function(lib: Library, replicas: int) -> Any:
    """`ReductionToOneDevice` accumulates with the function that it was given."""
    calls = []

    def accumulate(items: Any) -> Any:
        calls.append(len(items))
        return sum(items[1:], items[0]) * 100.0

    strategy = lib.mirrored(
        [f"CPU:{index}" for index in range(replicas)],
        cross_device_ops=lib.distribute.ReductionToOneDevice(accumulation_fn=accumulate),
    )
    value = lib.per_replica(strategy, [1.0, 2.0, 3.0])
    return {"reduced": strategy.reduce("SUM", value, axis=None), "used": bool(calls)}


def _halving_ops(lib: Library, calls: list[str]) -> Any:
    class Halving(lib.distribute.CrossDeviceOps):
        """Reduces by the parent's rule, then halves, so that its work can be told apart."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = lib.distribute.ReductionToOneDevice()

        def reduce_implementation(
            self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
        ) -> Any:
            calls.append("reduce")
            value = type(per_replica_value)([item / 2.0 for item in per_replica_value.values])
            return self.inner.reduce(reduce_op, value, destinations, options)

        def batch_reduce_implementation(
            self, reduce_op: Any, value_destination_pairs: Any, options: Any
        ) -> Any:
            calls.append("batch_reduce")
            return [
                self.reduce_implementation(reduce_op, value, destinations, options)
                for value, destinations in value_destination_pairs
            ]

        def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
            calls.append("broadcast")
            return self.inner.broadcast(tensor, destinations)

    return Halving()


@scenario(use=("reduce", "all_reduce", "reduce_to", "batch_reduce_to", "assign"))
@ours(
    "a user's own reduction is really used, in every reduction",
    lambda use: {
        "result": {
            "reduce": array(3.0),
            "reduce_to": mirrored(3.0),
            "assign": mirrored_variable(3.0),
        }[use],
        "used": True,
    },
    use=("reduce", "reduce_to", "assign"),
)
def own_cross_device_ops(lib: Library, use: str) -> Any:
    calls: list[str] = []
    strategy = lib.mirrored(["CPU:0", "CPU:1"], cross_device_ops=_halving_ops(lib, calls))
    value = lib.per_replica(strategy, [2.0, 4.0])
    total = lib.distribute.ReduceOp.SUM
    with strategy.scope():
        variable = lib.variable(1.0, aggregation="SUM")

    def call() -> Any:
        if use == "reduce":
            return strategy.reduce(total, value, axis=None)
        if use == "all_reduce":
            return lib.run(
                strategy,
                lambda x: lib.distribute.get_replica_context().all_reduce(total, x),
                (value,),
            )
        if use == "assign":
            lib.run(strategy, lambda x: nothing(variable.assign(x)), (value,))
            return variable
        with strategy.scope():
            if use == "reduce_to":
                return strategy.extended.reduce_to(total, value, value)
            return strategy.extended.batch_reduce_to(total, [(value, value)])

    return {"result": lib.outcome(call), "used": bool(calls)}


@scenario("mirrored2", kind=("text", "class"))
@ours(
    "what is not a CrossDeviceOps is refused where it is passed",
    raises("TypeError"),
)
def wrong_cross_device_ops(lib: Library, strategy: Any, kind: str) -> Any:
    value = {"text": "nccl", "class": lib.distribute.NcclAllReduce}[kind]
    del strategy

    def make() -> Any:
        made = lib.mirrored(["CPU:0", "CPU:1"], cross_device_ops=value)
        return made.num_replicas_in_sync

    return lib.outcome(make)


OPTIONS = {
    "defaults": {},
    "bytes": {"bytes_per_pack": 1024},
    "timeout": {"timeout_seconds": 5.0},
    "negative_bytes": {"bytes_per_pack": -1},
    "zero_timeout": {"timeout_seconds": 0.0},
    "negative_timeout": {"timeout_seconds": -1.0},
    "unknown": {"speed": 1},
}


@scenario(options=tuple(OPTIONS))
@ours(
    "options check themselves when they are made",
    raises("ValueError"),
    options=("zero_timeout", "negative_timeout"),
)
def communication_options(lib: Library, options: str) -> Any:
    def make() -> Any:
        made = lib.experimental.CommunicationOptions(**OPTIONS[options])
        return {
            "bytes_per_pack": made.bytes_per_pack,
            "timeout_seconds": made.timeout_seconds,
            "implementation": made.implementation.name,
        }

    return lib.outcome(make)


@scenario()
def enumerations(lib: Library) -> Any:
    return {
        "ReduceOp": sorted(item.name for item in lib.distribute.ReduceOp),
        "CommunicationImplementation": sorted(
            item.name for item in lib.experimental.CommunicationImplementation
        ),
        "VariableSynchronization": sorted(item.name for item in lib.VariableSynchronization),
        "VariableAggregation": sorted(
            item.name
            for item in lib.VariableAggregation
            if item.name in lib.VariableAggregation.__members__
        ),
    }
