"""Every synchronization and aggregation, in every context, for every way to read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._expected import (
    ON_READ_IN_CENTRAL_STORAGE,
    array,
    mirrored_variable,
    raises,
    sync_on_read_variable,
)
from .._layout import LAYOUTS
from .._library import AGGREGATIONS, Library, nothing
from .._registry import ours, scenario

SYNCHRONIZATIONS = ("AUTO", "ON_WRITE", "ON_READ")
WRITES = ("assign", "assign_add", "assign_sub")
READS: dict[str, Callable[[Any], Any]] = {
    "read_value": lambda v: v.read_value(),
    "value": lambda v: v.value(),
    "operator": lambda v: v + 1.0,
}

ASSIGNING_IS_NOT_READING = "only reading needs an aggregation, assigning does not"
NEEDS_AGGREGATION = "updating a mirrored variable in replica context needs an aggregation"


# Of a variable that was 8.0: after one update by 2.0, and by 2.0 from each of two replicas.
_AFTER_WRITE = {"assign": 2.0, "assign_add": 10.0, "assign_sub": 6.0}
_AFTER_LITERAL = {"assign": 4.0, "assign_add": 12.0, "assign_sub": 4.0}


def _state(lib: Library, variable: Any, outcome: Any = None) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "variable": lib.observe(variable),
        "read": lib.outcome(variable.read_value),
    }


def _write(
    lib: Library, strategy: Any, variable: Any, context: str, method: str, operand: Any = None
) -> None:
    def in_replica() -> None:
        getattr(variable, method)(lib.replica_number() if operand is None else operand)

    def in_update(copy: Any, delta: Any) -> Any:
        return getattr(copy, method)(delta)

    delta = lib.constant(2.0) if operand is None else operand
    match context:
        case "cross":
            with strategy.scope():
                getattr(variable, method)(delta)
        case "outside":
            getattr(variable, method)(delta)
        case "replica":
            lib.run(strategy, in_replica)
        case "update":
            with strategy.scope():
                strategy.extended.update(variable, in_update, args=(delta,), group=False)


@scenario(
    "mirrored2",
    synchronization=SYNCHRONIZATIONS,
    aggregation=AGGREGATIONS,
    context=("cross", "replica", "update"),
    method=WRITES,
)
@ours(
    ASSIGNING_IS_NOT_READING,
    lambda method, **_: {
        "outcome": None,
        "variable": sync_on_read_variable(*[_AFTER_WRITE[method]] * 2),
        "read": raises("ValueError"),
    },
    synchronization="ON_READ",
    aggregation="NONE",
    context="cross",
)
@ours(
    NEEDS_AGGREGATION,
    {"outcome": raises("ValueError"), "variable": mirrored_variable(8.0), "read": array(8.0)},
    synchronization=("AUTO", "ON_WRITE"),
    aggregation="NONE",
    context="replica",
)
def write(
    lib: Library, strategy: Any, synchronization: str, aggregation: str, context: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, synchronization, aggregation)
    outcome = lib.outcome(lambda: _write(lib, strategy, variable, context, method))
    return _state(lib, variable, outcome)


@scenario(
    "mirrored2",
    synchronization=SYNCHRONIZATIONS,
    aggregation=AGGREGATIONS,
    context=("outside", "cross", "replica"),
)
def read(lib: Library, strategy: Any, synchronization: str, aggregation: str, context: str) -> Any:
    with strategy.scope():
        variable = lib.variable(3.0, synchronization, aggregation)

    def reading(action: Callable[[Any], Any]) -> Any:
        match context:
            case "outside":
                return action(variable)
            case "cross":
                with strategy.scope():
                    return action(variable)
            case _:
                return lib.run(strategy, lambda: action(variable) * lib.replica_number())

    return {name: lib.outcome(lambda a=action: reading(a)) for name, action in READS.items()}


def _central_on_read(aggregation: str, context: str) -> dict[str, Any]:
    """What `write_elsewhere` below expects of a sync-on-read variable under central storage."""
    refused = aggregation == "SUM" and context == "cross"
    copies = [9.0, 10.0] if context == "replica" else [8.0, 8.0] if refused else [10.0, 10.0]
    read = {
        "NONE": raises("ValueError"),
        "SUM": array(sum(copies)),
        "MEAN": array(sum(copies) / 2),
        "ONLY_FIRST_REPLICA": array(copies[0]),
    }
    return {
        "outcome": raises("ValueError") if refused else None,
        "variable": sync_on_read_variable(*copies),
        "read": read[aggregation],
    }


@scenario(
    "default",
    "one_device",
    "mirrored3",
    "central2",
    synchronization=("AUTO", "ON_READ"),
    aggregation=AGGREGATIONS,
    context=("cross", "replica"),
    method=("assign_add",),
)
@ours(
    NEEDS_AGGREGATION,
    {"outcome": raises("ValueError"), "variable": mirrored_variable(8.0, 3), "read": array(8.0)},
    strategy="mirrored3",
    synchronization="AUTO",
    aggregation="NONE",
    context="replica",
)
@ours(
    ASSIGNING_IS_NOT_READING,
    {
        "outcome": None,
        "variable": sync_on_read_variable(10.0, 10.0, 10.0),
        "read": raises("ValueError"),
    },
    strategy="mirrored3",
    synchronization="ON_READ",
    aggregation="NONE",
    context="cross",
)
@ours(
    ON_READ_IN_CENTRAL_STORAGE,
    lambda aggregation, context, **_: _central_on_read(aggregation, context),
    strategy="central2",
    synchronization="ON_READ",
)
def write_elsewhere(
    lib: Library, strategy: Any, synchronization: str, aggregation: str, context: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, synchronization, aggregation)
    outcome = lib.outcome(lambda: _write(lib, strategy, variable, context, method))
    return _state(lib, variable, outcome)


@scenario("mirrored2", aggregation=("SUM", "MEAN", "ONLY_FIRST_REPLICA"), method=WRITES)
@ours(
    "a Python number counts once for each replica, as a constant does",
    lambda method, **_: {
        "outcome": None,
        "variable": mirrored_variable(_AFTER_LITERAL[method]),
        "read": array(_AFTER_LITERAL[method]),
    },
    aggregation="SUM",
)
def write_a_python_number_in_replicas(
    lib: Library, strategy: Any, aggregation: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, aggregation=aggregation)
    outcome = lib.outcome(lambda: _write(lib, strategy, variable, "replica", method, 2.0))
    return _state(lib, variable, outcome)


@scenario("mirrored2", "one_device", synchronization=("AUTO", "ON_READ"), method=WRITES)
def write_a_python_number_cross_replica(
    lib: Library, strategy: Any, synchronization: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, synchronization, "MEAN")
    outcome = lib.outcome(lambda: _write(lib, strategy, variable, "cross", method, 2.0))
    return _state(lib, variable, outcome)


@scenario("mirrored2", "one_device", synchronization=("AUTO", "ON_READ"))
def mean_of_integers_is_refused(lib: Library, strategy: Any, synchronization: str) -> Any:
    with strategy.scope():
        return lib.outcome(lambda: lib.variable(3, synchronization, "MEAN"))


@scenario(
    "mirrored3",
    synchronization=("AUTO", "ON_READ"),
    aggregation=("SUM", "ONLY_FIRST_REPLICA"),
    context=("cross", "replica"),
    method=WRITES,
)
def write_integers(
    lib: Library, strategy: Any, synchronization: str, aggregation: str, context: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(3, synchronization, aggregation)

    def in_replica() -> None:
        getattr(variable, method)(lib.replica_id() + 7)

    def action() -> Any:
        if context == "replica":
            return lib.run(strategy, in_replica)
        return _write(lib, strategy, variable, context, method, lib.constant(10, "int32"))

    return _state(lib, variable, lib.outcome(action))


@scenario(
    "mirrored2", "mirrored3", synchronization=("AUTO", "ON_READ"), method=("assign", "assign_add")
)
@ours(
    "the copies of a mirrored variable never drift apart",
    lambda strategy, **_: {
        "refused": True,
        "variable": mirrored_variable(8.0, int(strategy[-1])),
    },
    synchronization="AUTO",
)
def write_a_per_replica_value_cross_replica(
    lib: Library, strategy: Any, synchronization: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, synchronization, "MEAN")
        value = lib.per_replica(strategy, [1.0, 2.0, 6.0])
        refused = lib.refuses(lambda: getattr(variable, method)(value))
    return {"refused": refused, "variable": variable}


@scenario(
    "mirrored2",
    "one_device",
    "default",
    context=("cross", "replica"),
    synchronization=("AUTO", "ON_READ"),
)
def write_the_wrong_shape(lib: Library, strategy: Any, context: str, synchronization: str) -> Any:
    with strategy.scope():
        variable = lib.variable([1.0, 2.0], synchronization, "MEAN")
    value = lib.constant([1.0, 2.0, 3.0])
    outcome = lib.outcome(lambda: _write(lib, strategy, variable, context, "assign", value))
    return _state(lib, variable, outcome)


@scenario(
    "mirrored2", "one_device", "default", kind=("text", "float_into_int", "int_into_float", "none")
)
@ours(
    "numbers are promoted as JAX promotes them",
    lambda strategy, **_: {
        "refused": False,
        "variable": mirrored_variable(2.0)
        if strategy == "mirrored2"
        else {**array(2.0), "kind": "Variable"},
    },
    kind="int_into_float",
)
def write_the_wrong_type(lib: Library, strategy: Any, kind: str) -> Any:
    with strategy.scope():
        variable = lib.variable(1 if kind == "float_into_int" else 1.0)
    values = {
        "text": "text",
        "float_into_int": lib.constant(2.5),
        "int_into_float": lib.constant(2, "int32"),
        "none": None,
    }
    refused = lib.refuses(lambda: variable.assign(values[kind]))
    return {"refused": refused, "variable": variable}


@scenario("mirrored2", "mirrored3", aggregation=("SUM", "MEAN", "ONLY_FIRST_REPLICA"))
def write_then_read_in_one_step(lib: Library, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable([0.0, 1.0], aggregation=aggregation)

    def replica_fn() -> Any:
        variable.assign_add(lib.constant([1.0, 10.0]) * lib.replica_number())
        first = variable * 1.0
        variable.assign_sub(lib.constant([1.0, 1.0]) * lib.replica_number())
        return first, variable * 1.0

    return {"seen": lib.run(strategy, replica_fn), "variable": variable}


@scenario("mirrored2", "mirrored3", "one_device", aggregation=("SUM", "MEAN", "ONLY_FIRST_REPLICA"))
def accumulate_on_read(lib: Library, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable(0.0, "ON_READ", aggregation)

    def replica_fn() -> Any:
        variable.assign_add(lib.replica_number())
        variable.assign(variable * 2.0)
        return variable + 0.0

    lib.run(strategy, replica_fn)
    seen = lib.run(strategy, replica_fn)
    with strategy.scope():
        cross_replica = variable.read_value()
    return {"seen": seen, "cross_replica": cross_replica, "variable": variable}


@scenario(
    *LAYOUTS,
    eager_only="nothing runs on replicas",
    aggregation=("SUM", "MEAN", "ONLY_FIRST_REPLICA"),
)
@scenario("mirrored2", "mirrored3", aggregation=("SUM", "MEAN", "ONLY_FIRST_REPLICA"))
def reset_on_read(lib: Library, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable(5.0, "ON_READ", aggregation)
    before = lib.observe(variable.read_value())
    variable.assign(0.0)
    zero = lib.observe(variable)
    variable.assign(6.0)
    return {
        "before": before,
        "zero": zero,
        "six": lib.observe(variable),
        "read": variable.read_value(),
    }


@scenario("mirrored2", "mirrored3")
def save_and_restore_an_on_read_sum(lib: Library, strategy: Any) -> Any:
    """What is read and assigned back reads the same again."""
    with strategy.scope():
        variable = lib.variable(0.0, "ON_READ", "SUM")
    lib.run(strategy, lambda: nothing(variable.assign_add(lib.replica_number())))
    variable.assign(variable.read_value())
    return {"variable": variable, "read": variable.read_value()}


@scenario("mirrored2", "one_device", "default", "central2", method=WRITES)
def write_outside_any_scope(lib: Library, strategy: Any, method: str) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, aggregation="SUM")
    outcome = lib.outcome(lambda: _write(lib, strategy, variable, "outside", method))
    return _state(lib, variable, outcome)


@scenario("mirrored2", "mirrored3", "one_device", method=WRITES)
def write_a_variable_made_outside(lib: Library, strategy: Any, method: str) -> Any:
    variable = lib.variable(8.0)

    def replica_fn() -> None:
        getattr(variable, method)(lib.replica_number())

    outcome = lib.outcome(lambda: lib.run(strategy, replica_fn))
    return {"outcome": outcome, "variable": variable}


@scenario("mirrored2", "one_device")
def write_a_variable_made_outside_with_aggregation(lib: Library, strategy: Any) -> Any:
    variable = lib.variable(8.0, aggregation="SUM")

    def replica_fn() -> None:
        variable.assign_add(lib.replica_number())

    outcome = lib.outcome(lambda: lib.run(strategy, replica_fn))
    return {"outcome": outcome, "variable": variable}


@scenario("mirrored2")
def write_a_variable_of_another_strategy(lib: Library, strategy: Any) -> Any:
    with lib.strategy("mirrored3").scope():
        variable = lib.variable(1.0, aggregation="SUM")

    def cross() -> Any:
        with strategy.scope():
            return nothing(variable.assign(2.0))

    return {
        "cross": lib.refuses(cross),
        "replica": lib.refuses(
            lambda: lib.run(strategy, lambda: nothing(variable.assign_add(lib.replica_number())))
        ),
    }


@scenario("mirrored2", case=("assign", "assign_add"))
def write_from_another_variable(lib: Library, strategy: Any, case: str) -> Any:
    with strategy.scope():
        target = lib.variable(1.0, aggregation="MEAN")
        source = lib.variable(4.0)
    lib.run(strategy, lambda: nothing(getattr(target, case)(source * lib.replica_number())))
    getattr(target, case)(source)
    return target
