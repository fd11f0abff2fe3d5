"""Which context one is in, how one gets there, and what is refused where."""

from __future__ import annotations

import threading
from typing import Any

from .._library import Library, nothing
from .._registry import scenario

EVERY_KIND = ("default", "one_device", "mirrored1", "mirrored2", "mirrored4", "central2")


def _whereabouts(lib: Library, strategy: Any) -> dict[str, Any]:
    distribute = lib.distribute
    return {
        "has_strategy": distribute.has_strategy(),
        "is_current": distribute.get_strategy() is strategy,
        "replicas": distribute.get_strategy().num_replicas_in_sync,
        "cross_replica": distribute.in_cross_replica_context(),
        "replica_context": distribute.get_replica_context() is not None,
    }


@scenario(*EVERY_KIND)
def outside(lib: Library, strategy: Any) -> Any:
    return _whereabouts(lib, strategy)


@scenario(*EVERY_KIND)
def in_scope(lib: Library, strategy: Any) -> Any:
    with strategy.scope() as entered:
        inside = _whereabouts(lib, strategy)
    return {
        "inside": inside,
        "scope_gives_the_strategy": entered is strategy,
        "after": _whereabouts(lib, strategy),
    }


@scenario(*EVERY_KIND)
def in_run(lib: Library, strategy: Any) -> Any:
    seen = []

    def replica_fn() -> Any:
        seen.append(_whereabouts(lib, strategy))
        return lib.replica_id()

    lib.run(strategy, replica_fn)
    return {"inside": seen[0], "after": _whereabouts(lib, strategy)}


@scenario(*EVERY_KIND)
def in_merge_call(lib: Library, strategy: Any) -> Any:
    seen = []

    def merge_fn(merging: Any, value: Any) -> Any:
        seen.append({**_whereabouts(lib, strategy), "is_passed": merging is strategy})
        return value

    def replica_fn() -> Any:
        context = lib.distribute.get_replica_context()
        context.merge_call(merge_fn, args=(lib.replica_id(),))
        seen.append(_whereabouts(lib, strategy))
        return lib.replica_id()

    lib.run(strategy, replica_fn)
    return {"merging": seen[0], "back_in_replica": seen[1]}


@scenario(*EVERY_KIND)
def in_update(lib: Library, strategy: Any) -> Any:
    seen = []
    with strategy.scope():
        variable = lib.variable(1.0)

        def update(copy: Any) -> Any:
            seen.append(_whereabouts(lib, strategy))
            return copy.assign_add(1.0)

        refused = lib.refuses(lambda: strategy.extended.update(variable, update, group=False))
    return {"refused": refused, "seen": seen[:1]}


@scenario("one_device", "mirrored1", "mirrored2", "mirrored3", "central2", "default")
def replica_context(lib: Library, strategy: Any) -> Any:
    seen = []

    def replica_fn() -> Any:
        context = lib.distribute.get_replica_context()
        seen.append(
            {
                "num_replicas_in_sync": context.num_replicas_in_sync,
                "strategy": context.strategy is strategy,
                "is_replica_context": isinstance(context, lib.distribute.ReplicaContext),
            }
        )
        return lib.cast(context.replica_id_in_sync_group, "int32")

    ids = lib.run(strategy, replica_fn)
    return {"context": seen[0], "ids": ids}


@scenario(
    "one_device", "mirrored2", "central2", eager_only="a compiled step has no device per replica"
)
def replica_context_devices(lib: Library, strategy: Any) -> Any:
    devices = []

    def replica_fn() -> None:
        context = lib.distribute.get_replica_context()
        devices.append([lib.device_name(device) for device in context.devices])

    lib.run(strategy, replica_fn)
    return devices


@scenario()
def default_replica_context(lib: Library) -> Any:
    context = lib.distribute.get_replica_context()
    value = lib.constant(3.0)
    return {
        "replica_id": lib.cast(context.replica_id_in_sync_group, "int32"),
        "replicas": context.num_replicas_in_sync,
        "merge_call": context.merge_call(lambda strategy, item: item + 1.0, args=(value,)),
        "all_reduce": context.all_reduce(lib.distribute.ReduceOp.SUM, value),
        "all_reduce_mean": context.all_reduce("MEAN", value),
    }


@scenario(*EVERY_KIND)
def attributes(lib: Library, strategy: Any) -> Any:
    return {
        "num_replicas_in_sync": strategy.num_replicas_in_sync,
        "cluster_resolver": strategy.cluster_resolver,
        "is_strategy": isinstance(strategy, lib.distribute.Strategy),
        "extended": isinstance(strategy.extended, lib.distribute.StrategyExtended),
    }


@scenario("one_device", "mirrored2", "central2", "default")
def scope_of_the_same_strategy_nests(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        with strategy.scope():
            innermost = _whereabouts(lib, strategy)
        return {"innermost": innermost, "outer": _whereabouts(lib, strategy)}


@scenario("one_device", "mirrored2", "central2", other=("mirrored3", "one_device", "default"))
def scope_of_another_strategy(lib: Library, strategy: Any, other: str) -> Any:
    another = lib.strategy(other)

    def enter() -> Any:
        with another.scope():
            return _whereabouts(lib, another)

    with strategy.scope():
        return {"entering": lib.outcome(enter), "after": _whereabouts(lib, strategy)}


@scenario("mirrored2", "one_device")
def scope_leaves_on_error(lib: Library, strategy: Any) -> Any:
    def fail() -> None:
        with strategy.scope():
            raise KeyError("on purpose")

    return {"raised": lib.outcome(fail), "after": _whereabouts(lib, strategy)}


@scenario("mirrored2", "one_device")
def scope_enters_again(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        first = _whereabouts(lib, strategy)
    with strategy.scope():
        second = _whereabouts(lib, strategy)
    return {"first": first, "second": second, "after": _whereabouts(lib, strategy)}


@scenario("mirrored2", "one_device")
def scope_is_per_thread(lib: Library, strategy: Any) -> Any:
    seen = []
    with strategy.scope():
        thread = threading.Thread(target=lambda: seen.append(_whereabouts(lib, strategy)))
        thread.start()
        thread.join()
    return seen


@scenario("mirrored2", "mirrored1", "one_device", "central2")
def experimental_set_strategy(lib: Library, strategy: Any) -> Any:
    lib.distribute.experimental_set_strategy(strategy)
    try:
        variable = lib.variable(1.0)
        during = _whereabouts(lib, strategy)
    finally:
        lib.distribute.experimental_set_strategy(None)
    return {"during": during, "variable": variable, "after": _whereabouts(lib, strategy)}


@scenario("mirrored2")
def experimental_set_strategy_in_a_scope(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        return lib.outcome(lambda: lib.distribute.experimental_set_strategy(strategy))


@scenario("mirrored2", "mirrored3")
def experimental_set_strategy_then_scope(lib: Library, strategy: Any) -> Any:
    lib.distribute.experimental_set_strategy(strategy)
    try:

        def enter(entered: Any) -> Any:
            with entered.scope():
                return _whereabouts(lib, entered)

        return {
            "same": lib.outcome(lambda: enter(strategy)),
            "another": lib.outcome(lambda: enter(lib.strategy("mirrored4"))),
        }
    finally:
        lib.distribute.experimental_set_strategy(None)


CROSS_REPLICA_ONLY = {
    "reduce": lambda lib, strategy: strategy.reduce("SUM", lib.constant(1.0), axis=None),
    "gather": lambda lib, strategy: strategy.gather(lib.constant([1.0]), axis=0),
    "reduce_to": lambda lib, strategy: strategy.extended.reduce_to(
        lib.distribute.ReduceOp.SUM, lib.constant(1.0), "CPU:0"
    ),
    "batch_reduce_to": lambda lib, strategy: strategy.extended.batch_reduce_to(
        lib.distribute.ReduceOp.SUM, [(lib.constant(1.0), "CPU:0")]
    ),
    "broadcast_to": lambda lib, strategy: strategy.extended.broadcast_to(
        lib.constant(1.0), "CPU:0"
    ),
    "call_for_each_replica": lambda lib, strategy: strategy.extended.call_for_each_replica(
        lambda: lib.constant(1.0)
    ),
    "update_non_slot": lambda lib, strategy: strategy.extended.update_non_slot(
        ["CPU:0"], lambda: lib.constant(1.0)
    ),
    "scope": lambda lib, strategy: strategy.scope().__enter__(),
    "run": lambda lib, strategy: strategy.run(lambda: lib.constant(1.0)),
}


@scenario("mirrored2", "one_device", method=tuple(CROSS_REPLICA_ONLY))
def cross_replica_method_in_replica_context(lib: Library, strategy: Any, method: str) -> Any:
    return lib.outcome(lambda: lib.run(strategy, lambda: CROSS_REPLICA_ONLY[method](lib, strategy)))


@scenario("mirrored2", "one_device", "central2", method=("update", "colocate_vars_with"))
def variable_method_in_replica_context(lib: Library, strategy: Any, method: str) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)

    def replica_fn() -> Any:
        if method == "update":
            return nothing(strategy.extended.update(variable, lambda copy: copy.assign(2.0)))
        with strategy.extended.colocate_vars_with(variable):
            return lib.variable(3.0) + 0.0

    outcome = lib.outcome(lambda: lib.run(strategy, replica_fn))
    return {"outcome": outcome, "variable": variable}


@scenario("mirrored2", "one_device", method=("merge_call", "all_reduce", "all_gather"))
def replica_method_in_cross_replica_context(lib: Library, strategy: Any, method: str) -> Any:
    contexts = []

    def keep() -> Any:
        contexts.append(lib.distribute.get_replica_context())
        return lib.replica_id()

    lib.run(strategy, keep)

    def call() -> Any:
        context, value = contexts[0], lib.constant([1.0])
        if method == "merge_call":
            return context.merge_call(lambda _, item: item, args=(value,))
        if method == "all_reduce":
            return context.all_reduce("SUM", value)
        return context.all_gather(value, axis=0)

    with strategy.scope():
        return lib.outcome(call)


@scenario("mirrored2")
def run_of_another_strategy_inside_run(lib: Library, strategy: Any) -> Any:
    another = lib.strategy("one_device")
    return lib.outcome(lambda: lib.run(strategy, lambda: another.run(lib.replica_id)))


@scenario("mirrored2")
def run_of_another_strategy_inside_scope(lib: Library, strategy: Any) -> Any:
    another = lib.strategy("mirrored3")
    with strategy.scope():
        return lib.outcome(lambda: lib.run(another, lib.replica_id))


@scenario("mirrored2", "one_device", "default")
def run_inside_merge_call(lib: Library, strategy: Any) -> Any:
    def merge_fn(merging: Any) -> Any:
        return merging.run(lib.replica_number)

    def replica_fn() -> Any:
        return lib.distribute.get_replica_context().merge_call(merge_fn)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))
