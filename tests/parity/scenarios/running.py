"""`Strategy.run`: arguments in, results out, errors."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from .._library import Library
from .._registry import scenario

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "mirrored4", "central2")


@scenario(*KINDS)
def replica_ids(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lib.replica_id)


@scenario(*KINDS)
def array_argument(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lambda x: x * 2.0, args=(lib.constant([3.0, 4.0]),))


@scenario("one_device", "mirrored1", "mirrored2", "mirrored4", "central2")
def per_replica_argument(lib: Library, strategy: Any) -> Any:
    value = lib.per_replica(strategy, [1.0, 2.0, 3.0, 4.0])
    return lib.run(strategy, lambda x: x * 10.0, args=(value,))


@scenario("mirrored2", "mirrored3")
def nested_arguments(lib: Library, strategy: Any) -> Any:
    value = lib.per_replica(strategy, [1.0, 2.0, 3.0])
    shared = lib.constant(100.0)

    def replica_fn(pair: Any, *, options: Any) -> Any:
        return {"first": pair[0] + pair[1]["deep"], "second": options["scale"] * pair[0]}

    return lib.run(
        strategy,
        replica_fn,
        args=((value, {"deep": shared}),),
        kwargs={"options": {"scale": value}},
    )


@scenario("mirrored2", "one_device")
def keyword_arguments(lib: Library, strategy: Any) -> Any:
    value = lib.per_replica(strategy, [1.0, 2.0])
    return lib.run(strategy, lambda x, y: x - y, kwargs={"x": value, "y": lib.constant(1.0)})


@scenario("mirrored2", "one_device", kind=("int", "float", "numpy", "list"))
def python_argument(lib: Library, strategy: Any, kind: str) -> Any:
    argument = {"int": 3, "float": 3.0, "numpy": np.array([1, 2], np.float32), "list": [1.0, 2.0]}[
        kind
    ]

    def replica_fn(x: Any) -> Any:
        number = sum(x) if kind == "list" else x
        return lib.cast(number, "float32") * lib.replica_number()

    return lib.run(strategy, replica_fn, args=(argument,))


@scenario("mirrored2", "one_device", "default", eager_only="compiled results are arrays")
def argument_comes_back_untouched(lib: Library, strategy: Any) -> Any:
    items = (3, 2.5, "text", None, np.array([1, 2], np.float32), True)
    return [lib.run(strategy, lambda x: x, args=(item,)) for item in items]


@scenario("mirrored2", "mirrored1", "one_device")
def variable_argument_arrives_whole(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0, aggregation="SUM")
    arrived = []

    def replica_fn(v: Any) -> Any:
        arrived.append(v is variable)
        v.assign_add(lib.replica_number())
        return v.read_value()

    result = lib.run(strategy, replica_fn, args=(variable,))
    return {"is_the_variable": arrived[0], "result": result, "variable": variable}


@scenario("mirrored2", "mirrored3", "one_device", eager_only="a compiled step is traced once")
def replicas_run_in_order(lib: Library, strategy: Any) -> Any:
    order: list[str] = []

    def replica_fn() -> Any:
        replica = int(lib.replica_id())
        order.append(f"{replica} before")
        lib.distribute.get_replica_context().merge_call(lambda _: order.append("merge"))
        order.append(f"{replica} after")
        return lib.replica_id()

    lib.run(strategy, replica_fn)
    return order


@scenario("mirrored2", "one_device")
def returns_nothing(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(0.0, aggregation="SUM")

    def replica_fn() -> None:
        variable.assign_add(lib.replica_number())

    return {"result": lib.run(strategy, replica_fn), "variable": variable}


@scenario("mirrored2", "mirrored4")
def results_feed_the_next_run(lib: Library, strategy: Any) -> Any:
    first = lib.run(strategy, lib.replica_number)
    second = lib.run(strategy, lambda x: x * x, args=(first,))
    return lib.run(strategy, lambda x, y: x + y, args=(first, second))


@scenario("mirrored2", "mirrored3", eager_only="compiled replicas have one shape")
def results_of_different_shapes(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lambda: lib.constant(np.ones(int(lib.replica_id()) + 1)))


@scenario(
    "mirrored2",
    "one_device",
    error=("ValueError", "KeyError", "ZeroDivisionError", "NotImplementedError"),
)
def error_of_the_function_surfaces(lib: Library, strategy: Any, error: str) -> Any:
    def replica_fn() -> None:
        raise getattr(builtins, error)("on purpose")

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario("mirrored2", "mirrored4", eager_only="needs Python branches on the replica")
def error_in_one_replica_surfaces(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        if int(lib.replica_id()) == 1:
            raise LookupError("only in replica 1")
        return lib.replica_id()

    return {
        "outcome": lib.outcome(lambda: lib.run(strategy, replica_fn)),
        "next_run": lib.run(strategy, lib.replica_id),
    }


@scenario("mirrored2", eager_only="needs Python branches on the replica")
def error_in_one_replica_while_others_merge(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        if int(lib.replica_id()) == 1:
            raise LookupError("only in replica 1")
        return lib.distribute.get_replica_context().merge_call(lambda _: None)

    return {
        "outcome": lib.outcome(lambda: lib.run(strategy, replica_fn)),
        "next_run": lib.run(strategy, lib.replica_id),
    }


@scenario("mirrored2", "one_device")
def function_is_not_callable(lib: Library, strategy: Any) -> Any:
    return lib.outcome(lambda: lib.run(strategy, 3))  # type: ignore[arg-type]


@scenario("mirrored2", "one_device")
def wrong_number_of_arguments(lib: Library, strategy: Any) -> Any:
    return lib.outcome(lambda: lib.run(strategy, lambda x: x))


@scenario("mirrored3")
def value_of_a_smaller_strategy(lib: Library, strategy: Any) -> Any:
    value = lib.per_replica(lib.strategy("mirrored2"), [1.0, 2.0])
    return lib.refuses(lambda: lib.run(strategy, lambda x: x, args=(value,)))


@scenario("mirrored2", "one_device")
def run_options(lib: Library, strategy: Any) -> Any:
    options = lib.distribute.RunOptions()
    return strategy.run(lib.replica_number, options=options)


@scenario("mirrored2", "one_device")
def run_inside_and_outside_scope_agree(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        inside = lib.run(strategy, lib.replica_number)
    return {"inside": inside, "outside": lib.run(strategy, lib.replica_number)}
