"""`run`, and what replicas do together inside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._layout import LAYOUTS
from .._library import nothing
from .._registry import scenario
from .._worker import InJob


@scenario(*LAYOUTS)
def worker_data(lib: InJob, strategy: Any) -> Any:
    """What only this worker knows reaches its own replicas, and all through a reduction."""
    own = lib.constant(float(10 * (lib.worker + 1)))
    value = lib.run(strategy, lambda x: x + lib.replica_number(), args=(own,))
    return {"local": lib.local(value), "sum": strategy.reduce("SUM", value, axis=None)}


@scenario(*LAYOUTS)
def one_run_after_another(lib: InJob, strategy: Any) -> Any:
    value = lib.by_replica([1.0, 2.0, 3.0, 4.0])
    for _ in range(3):
        value = lib.run(strategy, lambda x: lib.context().all_reduce("SUM", x) + x, args=(value,))
    return lib.local(value)


@scenario(*LAYOUTS, eager_only="compiled replicas have one shape")
def uneven_arguments(lib: InJob, strategy: Any) -> Any:
    value = lib.by_replica([np.arange(float(rows)) for rows in (3, 1, 0, 2)])
    return lib.local(lib.run(strategy, lambda x: x * 2.0, args=(value,)))


@scenario(*LAYOUTS)
def uneven_arguments_to_sums(lib: InJob, strategy: Any) -> Any:
    value = lib.by_replica([np.arange(float(rows)) for rows in (3, 1, 0, 2)])
    sums = lib.run(strategy, lambda x: lib.reduce_sum(x) + 1.0, args=(value,))
    return {"local": lib.local(sums), "total": strategy.reduce("SUM", sums, axis=None)}


@scenario(*LAYOUTS, eager_only="looks at values inside the function")
def merge_arguments(lib: InJob, strategy: Any) -> Any:
    seen = []
    shared = lib.constant(9.0)

    def merge_fn(_: Any, own: Any, same: Any, *, nested: Any) -> None:
        seen.append({"own": lib.local(own), "same": lib.same_everywhere(same)})
        seen.append(lib.local(nested["twice"][0]))

    def replica_fn() -> Any:
        own = lib.replica_number()
        lib.context().merge_call(merge_fn, args=(own, shared), kwargs={"nested": {"twice": (own,)}})
        return own

    lib.run(strategy, replica_fn)
    return seen


@scenario(*LAYOUTS)
def merge_and_reduce(lib: InJob, strategy: Any) -> Any:
    def total(merging: Any, value: Any) -> Any:
        return merging.reduce("SUM", value, axis=None)

    def replica_fn() -> Any:
        first = lib.context().merge_call(total, args=(lib.replica_number(),))
        second = lib.context().merge_call(total, args=(first * lib.replica_number(),))
        return first + second

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS)
def merge_a_value_through(lib: InJob, strategy: Any) -> Any:
    def replica_fn() -> Any:
        back = lib.context().merge_call(lambda _, value: value, args=(lib.replica_number(),))
        return back * 10.0

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS)
def merge_counts_the_replicas_of_this_worker(lib: InJob, strategy: Any) -> Any:
    seen = []

    def merge_fn(merging: Any, value: Any) -> Any:
        seen.append(len(merging.experimental_local_results(value)))
        return sum(merging.experimental_local_results(value))

    value = lib.run(
        strategy, lambda: lib.context().merge_call(merge_fn, args=(lib.replica_number(),)) + 0.0
    )
    return {"count": seen[0], "value": lib.local(value)}


@scenario(*LAYOUTS)
def merge_and_update(lib: InJob, strategy: Any) -> Any:
    """The four steps of an optimizer that is written by hand."""
    with strategy.scope():
        variable = lib.variable([1.0, 2.0])

    def merge_fn(merging: Any, update: Any, v: Any) -> None:
        extended = merging.extended
        reduced = extended.reduce_to(lib.distribute.ReduceOp.SUM, update, destinations=v)
        extended.update(v, lambda copy, delta: copy.assign_sub(delta), args=(reduced,))

    def replica_fn() -> Any:
        update = lib.constant([1.0, 1.0]) * lib.replica_number()
        lib.context().merge_call(merge_fn, args=(update, variable))
        return variable + 0.0

    return {"read": lib.local(lib.run(strategy, replica_fn)), "variable": variable}


@scenario(*LAYOUTS)
def merge_and_assign(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)

    def merge_fn(merging: Any, value: Any) -> None:
        variable.assign(merging.reduce("MEAN", value, axis=None))

    def replica_fn() -> Any:
        lib.context().merge_call(merge_fn, args=(lib.replica_number(),))
        return variable + 0.0

    return {"read": lib.local(lib.run(strategy, replica_fn)), "variable": variable}


@scenario(*LAYOUTS)
def merge_function_fails(lib: InJob, strategy: Any) -> Any:
    """On all workers alike; the next run works."""

    def merge_fn(_: Any) -> None:
        raise LookupError("on purpose")

    def replica_fn() -> Any:
        return lib.context().merge_call(merge_fn)

    return {
        "outcome": lib.outcome(lambda: lib.run(strategy, replica_fn)),
        "next": lib.local(lib.run(strategy, lib.replica_id)),
    }


@scenario(*LAYOUTS)
def replica_function_fails(lib: InJob, strategy: Any) -> Any:
    """On all workers alike, before they meet; the next run works."""

    def replica_fn() -> Any:
        raise LookupError("on purpose")

    return {
        "outcome": lib.outcome(lambda: lib.run(strategy, replica_fn)),
        "next": lib.local(lib.run(strategy, lib.replica_id)),
    }


@scenario(*LAYOUTS, eager_only="one call, two ways")
def whole_step_in_a_function(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        total = lib.variable(0.0, aggregation="SUM")

    @lib.function
    def step(x: Any) -> Any:
        def replica_fn(own: Any) -> Any:
            total.assign_add(own)
            return own * 2.0

        return strategy.reduce("SUM", strategy.run(replica_fn, args=(x,)), axis=None)

    value = lib.by_replica([1.0, 2.0, 3.0, 4.0])
    sums = [step(value) for _ in range(3)]
    return {"sums": sums, "total": total}


@scenario(*LAYOUTS, eager_only="one call, two ways")
def loop_in_a_function(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        total = lib.variable(0.0, aggregation="MEAN")

    @lib.function
    def steps() -> Any:
        for _ in range(3):
            strategy.run(lambda: nothing(total.assign_add(lib.replica_number())))
        return total.read_value()

    return {"read": steps(), "total": total}
