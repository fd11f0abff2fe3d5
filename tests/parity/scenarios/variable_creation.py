"""Where and how variables are made, and what they then are."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import ON_READ_IN_CENTRAL_STORAGE, mirrored_variable, sync_on_read_variable
from .._library import AGGREGATIONS, Library
from .._registry import ours, scenario

KINDS = ("default", "one_device", "mirrored2", "central2")


@scenario(
    *KINDS,
    synchronization=("AUTO", "NONE", "ON_WRITE", "ON_READ"),
    aggregation=AGGREGATIONS,
)
@ours(
    ON_READ_IN_CENTRAL_STORAGE,
    lambda aggregation, **_: {
        "variable": sync_on_read_variable(1.5, 1.5),
        "synchronization": "ON_READ",
        "aggregation": aggregation,
        "trainable": False,
    },
    strategy="central2",
    synchronization="ON_READ",
)
@ours(
    "AUTO means ON_WRITE under every strategy with several replicas",
    lambda aggregation, **_: {
        "variable": {**mirrored_variable(1.5, 1), "kind": "AggregatingVariable"},
        "synchronization": "ON_WRITE",
        "aggregation": aggregation,
        "trainable": True,
    },
    strategy="central2",
    synchronization="AUTO",
)
def made_in_scope(lib: Library, strategy: Any, synchronization: str, aggregation: str) -> Any:
    def make() -> Any:
        with strategy.scope():
            variable = lib.variable(1.5, synchronization, aggregation)
        return {
            "variable": variable,
            "synchronization": variable.synchronization.name,
            "aggregation": variable.aggregation.name,
            "trainable": variable.trainable,
        }

    return lib.outcome(make)


@scenario(synchronization=("AUTO", "NONE", "ON_WRITE", "ON_READ"), aggregation=AGGREGATIONS)
def made_outside_any_scope(lib: Library, synchronization: str, aggregation: str) -> Any:
    def make() -> Any:
        variable = lib.variable(1.5, synchronization, aggregation)
        return {
            "variable": variable,
            "synchronization": variable.synchronization.name,
            "aggregation": variable.aggregation.name,
            "trainable": variable.trainable,
        }

    return lib.outcome(make)


@scenario(
    "mirrored2",
    "one_device",
    "default",
    synchronization=("AUTO", "ON_READ"),
    trainable=(True, False),
)
def made_trainable(lib: Library, strategy: Any, synchronization: str, trainable: bool) -> Any:
    def make() -> Any:
        with strategy.scope():
            return lib.variable(1.0, synchronization, "SUM", trainable=trainable).trainable

    return lib.outcome(make)


INITIAL_VALUES = {
    "float": 2.5,
    "int": 3,
    "bool": True,
    "list": [1.0, 2.0],
    "nested_list": [[1, 2], [3, 4]],
    "numpy": np.array([[1, 2], [3, 4]], np.float32),
    "numpy_int": np.array([1, 2], np.int32),
    "empty": np.zeros((0, 3), np.float32),
    "callable": lambda: np.array([7, 8], np.float32),
}


@scenario("default", "mirrored2", initial=tuple(INITIAL_VALUES))
def initial_value(lib: Library, strategy: Any, initial: str) -> Any:
    with strategy.scope():
        variable = lib.Variable(INITIAL_VALUES[initial])
    return {"variable": variable, "shape": [int(size) for size in variable.shape]}


@scenario("default", "mirrored2", kind=("array", "variable"))
def initial_value_from(lib: Library, strategy: Any, kind: str) -> Any:
    with strategy.scope():
        source = lib.constant([1.0, 2.0]) if kind == "array" else lib.variable([1.0, 2.0])
        variable = lib.Variable(source)
        variable.assign_add([1.0, 1.0])
    return {"variable": variable, "source": source}


@scenario("default", "mirrored2", kind=("none", "missing", "text"))
def initial_value_refused(lib: Library, strategy: Any, kind: str) -> Any:
    with strategy.scope():
        if kind == "missing":
            return lib.outcome(lambda: lib.Variable())
        if kind == "none":
            return lib.outcome(lambda: lib.Variable(None))
        return lib.outcome(lambda: lib.Variable("text", dtype="float32"))


@scenario("mirrored2", "one_device", "default", dtype=("float32", "float16", "int32", "uint8"))
def made_with_a_dtype(lib: Library, strategy: Any, dtype: str) -> Any:
    with strategy.scope():
        return lib.Variable(1, dtype=dtype)


@scenario("mirrored2", "one_device", "default")
def made_with_a_name(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        return lib.Variable(1.0, name="weights").name.split(":")[0]


@scenario("mirrored2", "mirrored3", eager_only="a compiled step calls it once")
def initial_callable_is_called(lib: Library, strategy: Any) -> Any:
    calls = []

    def initial() -> Any:
        calls.append(1)
        return lib.constant(float(len(calls)))

    with strategy.scope():
        variable = lib.Variable(initial)
    return {"calls": len(calls), "variable": variable}


def _make_once(lib: Library, **options: Any) -> Any:
    """Returns a replica function that makes a variable in its first call and keeps it."""
    made: dict[str, Any] = {}

    def replica_fn() -> Any:
        if "variable" not in made:
            made["variable"] = lib.variable(lib.replica_number(), **options)
        return made["variable"]

    return replica_fn, made


@scenario("one_device", "mirrored1", "mirrored2", "mirrored3", "central2", "default")
def made_inside_run(lib: Library, strategy: Any) -> Any:
    made = []

    def replica_fn() -> Any:
        variable = lib.variable(lib.replica_number(), aggregation="SUM")
        made.append(variable)
        return variable + 0.0

    result = lib.run(strategy, replica_fn)
    return {"result": result, "variable": made[0], "one": all(v is made[0] for v in made)}


@scenario("mirrored2", "mirrored3", "one_device", aggregation=("SUM", "MEAN"))
def made_inside_run_and_updated(lib: Library, strategy: Any, aggregation: str) -> Any:
    made = []

    def replica_fn() -> Any:
        variable = lib.variable(10.0, aggregation=aggregation)
        made.append(variable)
        variable.assign_add(lib.replica_number())
        return variable * 1.0

    return {"result": lib.run(strategy, replica_fn), "variable": made[0]}


@scenario("mirrored2", "one_device")
def made_inside_run_on_read(lib: Library, strategy: Any) -> Any:
    made = []

    def replica_fn() -> None:
        variable = lib.variable(lib.replica_number(), "ON_READ", "SUM")
        made.append(variable)
        variable.assign_add(lib.replica_number() * 10.0)

    lib.run(strategy, replica_fn)
    return {"variable": made[0], "read": made[0].read_value()}


@scenario("mirrored2", "one_device", eager_only="a compiled function returns values")
def made_inside_run_and_returned(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lambda: lib.variable(lib.replica_number()))


@scenario("mirrored2", "one_device", eager_only="a compiled function returns values")
def made_inside_run_with_a_callable(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lambda: lib.Variable(lambda: lib.constant([1.0, 2.0])))


@scenario("mirrored2", "one_device", "central2", eager_only="needs Python branches on the replica")
def made_inside_run_in_a_shared_list(lib: Library, strategy: Any) -> Any:
    """The usual lazy creation: all replicas share what the first one made."""
    replica_fn, made = _make_once(lib, aggregation="SUM")
    outcome = lib.outcome(lambda: lib.run(strategy, replica_fn))
    return {"outcome": outcome, "variable": made.get("variable")}


@scenario("mirrored2", eager_only="needs Python branches on the replica")
def made_in_one_replica_only(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        if int(lib.replica_id()) == 0:
            return lib.variable(1.0) + 0.0
        return lib.constant(1.0)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario("mirrored2", "one_device")
def creator_scope_sees_each_variable(lib: Library, strategy: Any) -> Any:
    seen = []

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        seen.append(kwargs.get("trainable"))
        return next_creator(**{**kwargs, "trainable": False})

    with strategy.scope(), lib.variable_creator_scope(creator):
        variable = lib.Variable(1.0, trainable=True)
    return {"seen": seen, "trainable": variable.trainable, "variable": variable}


@scenario()
def creator_scopes_nest(lib: Library) -> Any:
    seen = []

    def creator(label: str) -> Any:
        def create(next_creator: Any, **kwargs: Any) -> Any:
            seen.append(label)
            return next_creator(**kwargs)

        return create

    with lib.variable_creator_scope(creator("outer")), lib.variable_creator_scope(creator("inner")):
        lib.Variable(1.0)
    return seen
