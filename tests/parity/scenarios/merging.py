"""`ReplicaContext.merge_call`: from replicas to one function and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._expected import raises
from .._library import Library
from .._registry import ours, scenario

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "central2")


def _merge(lib: Library, merge_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return lib.distribute.get_replica_context().merge_call(merge_fn, args=args, kwargs=kwargs)


@scenario(*KINDS, eager_only="looks at values inside the function")
def merge_arguments(lib: Library, strategy: Any) -> Any:
    seen = []
    shared = lib.constant(9.0)

    def merge_fn(_: Any, own: Any, same: Any, *, nested: Any) -> None:
        seen.append(lib.observe({"own": own, "same": same, "nested": nested}))

    def replica_fn() -> Any:
        own = lib.replica_number()
        _merge(lib, merge_fn, own, shared, nested={"twice": (own * 2.0,)})
        return own

    lib.run(strategy, replica_fn)
    return seen


@scenario(*KINDS)
def merged_array_reaches_all_replicas(lib: Library, strategy: Any) -> Any:
    return lib.run(
        strategy, lambda: _merge(lib, lambda _: lib.constant(5.0)) + lib.replica_number()
    )


@scenario("mirrored2", "one_device")
def merged_array_returned_untouched(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lambda: _merge(lib, lambda _: lib.constant(5.0)))


@scenario(*KINDS)
def merged_per_replica_value_comes_apart(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        back = _merge(lib, lambda _, value: value, lib.replica_number())
        return back * 10.0

    return lib.run(strategy, replica_fn)


@scenario("mirrored2", "mirrored3", "one_device")
def merged_structure(lib: Library, strategy: Any) -> Any:
    def merge_fn(merging: Any, value: Any) -> Any:
        return {"total": sum(merging.experimental_local_results(value)), "own": (value, None)}

    return lib.run(strategy, lambda: _merge(lib, merge_fn, lib.replica_number()))


@scenario("mirrored2", "one_device")
def merged_nothing(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lambda: _merge(lib, lambda _: None))


@scenario("mirrored2", "one_device", eager_only="compiled results are arrays")
def merged_python_value(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lambda: _merge(lib, lambda _: "text"))


@scenario(*KINDS)
def merge_twice(lib: Library, strategy: Any) -> Any:
    def total(merging: Any, value: Any) -> Any:
        return merging.reduce("SUM", value, axis=None)

    def replica_fn() -> Any:
        first = _merge(lib, total, lib.replica_number())
        second = _merge(lib, total, first * lib.replica_number())
        return first + second

    return lib.run(strategy, replica_fn)


@scenario("mirrored2", "mirrored3", "one_device", "central2")
def merge_and_assign(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)

    def merge_fn(merging: Any, value: Any) -> None:
        variable.assign(merging.reduce("SUM", value, axis=None))

    def replica_fn() -> Any:
        _merge(lib, merge_fn, lib.replica_number())
        return variable + 0.0

    return {"read": lib.run(strategy, replica_fn), "variable": variable}


@scenario("mirrored2", "one_device")
def merge_a_variable(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
    arrived = []

    def merge_fn(_: Any, v: Any) -> None:
        arrived.append(v is variable)

    lib.run(strategy, lambda: _merge(lib, merge_fn, variable))
    return arrived


@scenario("mirrored2", "one_device")
def merge_the_four_steps_of_an_update(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable([1.0, 2.0])

    def merge_fn(merging: Any, update: Any, v: Any) -> None:
        extended = merging.extended
        reduced = extended.reduce_to(lib.distribute.ReduceOp.SUM, update, destinations=v)
        extended.update(v, lambda copy, delta: copy.assign_sub(delta), args=(reduced,))

    def replica_fn() -> None:
        update = lib.constant([1.0, 1.0]) * lib.replica_number()
        _merge(lib, merge_fn, update, variable)

    lib.run(strategy, replica_fn)
    return variable


@scenario("mirrored2", "mirrored3", eager_only="needs Python branches on the replica")
def merge_in_some_replicas_only(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        if int(lib.replica_id()) == 0:
            _merge(lib, lambda _: None)
        return lib.replica_id()

    return {
        "outcome": lib.outcome(lambda: lib.run(strategy, replica_fn)),
        "next_run": lib.run(strategy, lib.replica_id),
    }


@scenario("mirrored2", eager_only="needs Python branches on the replica")
def merge_in_the_last_replica_only(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        if int(lib.replica_id()) == 1:
            _merge(lib, lambda _: None)
        return lib.replica_id()

    return {
        "outcome": lib.outcome(lambda: lib.run(strategy, replica_fn)),
        "next_run": lib.run(strategy, lib.replica_id),
    }


@scenario("mirrored2", eager_only="needs Python branches on the replica")
@ours("replicas that disagree get an error", raises("RuntimeError"))
def merge_with_different_functions(lib: Library, strategy: Any) -> Any:
    def first(_: Any) -> Any:
        return lib.constant(1.0)

    def second(_: Any) -> Any:
        return lib.constant(2.0)

    return lib.outcome(
        lambda: lib.run(strategy, lambda: _merge(lib, second if int(lib.replica_id()) else first))
    )


@scenario("mirrored2", "one_device", "default")
def merge_inside_merge(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        context = lib.distribute.get_replica_context()
        return context.merge_call(lambda _: context.merge_call(lambda _: lib.constant(1.0)))

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario("mirrored2", "mirrored3", "one_device", "default")
def merge_function_fails(lib: Library, strategy: Any) -> Any:
    def merge_fn(_: Any) -> None:
        raise LookupError("on purpose")

    return {
        "outcome": lib.outcome(lambda: lib.run(strategy, lambda: _merge(lib, merge_fn))),
        "next_run": lib.run(strategy, lib.replica_id),
    }


@scenario("mirrored2", "one_device")
def merge_variable_made_inside(lib: Library, strategy: Any) -> Any:
    made = []

    def merge_fn(_: Any) -> None:
        made.append(lib.variable(4.0))

    lib.run(strategy, lambda: _merge(lib, merge_fn))
    return made
