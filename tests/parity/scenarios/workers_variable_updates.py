"""Every synchronization and aggregation, in every context, over the replicas of all workers."""

from __future__ import annotations

from typing import Any

from .._expected import array, raises
from .._layout import LAYOUTS, Layout
from .._library import AGGREGATIONS, nothing
from .._registry import ours, scenario
from .._worker import InJob

WRITES = ("assign", "assign_add", "assign_sub")
REDUCED = ("SUM", "MEAN", "ONLY_FIRST_REPLICA")
NEEDS_AGGREGATION = "updating a mirrored variable in replica context needs an aggregation"
ASSIGNING_IS_NOT_READING = "only reading needs an aggregation, assigning does not"


def _state(lib: InJob, variable: Any, outcome: Any = None) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "variable": lib.observe(variable),
        "read": lib.outcome(variable.read_value),
    }


def _copies(kind: str, layout: Layout, value: Any) -> dict[str, Any]:
    return {"kind": kind, "copies": [{"dtype": "float32", "value": value}] * layout.devices}


_AFTER_WRITE = {"assign": 2.0, "assign_add": 10.0, "assign_sub": 6.0}

# TensorFlow's workers take each their own first replica: their mirrored variables drift apart.
FIRST_OF_ALL = "the first replica of all workers counts, so that all have the same"


# What becomes of 8.0 when the first replica writes its number, which is 1.0.
_AFTER_FIRST = {"assign": 1.0, "assign_add": 9.0, "assign_sub": 7.0}


@scenario(*LAYOUTS, synchronization=("AUTO", "ON_READ"), aggregation=AGGREGATIONS, method=WRITES)
@ours(
    NEEDS_AGGREGATION,
    lambda layout, **_: {
        "outcome": raises("ValueError"),
        "variable": _copies("MirroredVariable", layout, 8.0),
        "read": array(8.0),
    },
    synchronization="AUTO",
    aggregation="NONE",
)
@ours(
    FIRST_OF_ALL,
    lambda layout, method, **_: {
        "outcome": None,
        "variable": _copies("MirroredVariable", layout, _AFTER_FIRST[method]),
        "read": array(_AFTER_FIRST[method]),
    },
    synchronization="AUTO",
    aggregation="ONLY_FIRST_REPLICA",
)
def write_in_replicas(
    lib: InJob, strategy: Any, synchronization: str, aggregation: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, synchronization, aggregation)

    def replica_fn() -> None:
        getattr(variable, method)(lib.replica_number())

    outcome = lib.outcome(lambda: nothing(lib.run(strategy, replica_fn)))
    return _state(lib, variable, outcome)


@scenario(
    *LAYOUTS,
    eager_only="nothing runs on replicas",
    synchronization=("AUTO", "ON_READ"),
    aggregation=AGGREGATIONS,
    method=WRITES,
)
@ours(
    ASSIGNING_IS_NOT_READING,
    lambda layout, method, **_: {
        "outcome": None,
        "variable": _copies("SyncOnReadVariable", layout, _AFTER_WRITE[method]),
        "read": raises("ValueError"),
    },
    synchronization="ON_READ",
    aggregation="NONE",
)
def write_cross_replica(
    lib: InJob, strategy: Any, synchronization: str, aggregation: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, synchronization, aggregation)
        outcome = lib.outcome(lambda: nothing(getattr(variable, method)(lib.constant(2.0))))
        return _state(lib, variable, outcome)


@scenario(*LAYOUTS, eager_only="nothing runs on replicas", method=WRITES)
def write_outside_the_scope(lib: InJob, strategy: Any, method: str) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, aggregation="SUM")
    getattr(variable, method)(lib.constant(2.0))
    return _state(lib, variable)


@scenario(*LAYOUTS, eager_only="nothing runs on replicas", method=WRITES)
def write_in_update(lib: InJob, strategy: Any, method: str) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0)
        strategy.extended.update(
            variable,
            lambda copy, delta: nothing(getattr(copy, method)(delta)),
            args=(lib.constant(2.0),),
        )
    return _state(lib, variable)


@scenario(*LAYOUTS, synchronization=("AUTO", "ON_READ"), aggregation=AGGREGATIONS)
def read(lib: InJob, strategy: Any, synchronization: str, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable(3.0, synchronization, aggregation)

    def in_scope() -> Any:
        with strategy.scope():
            return variable.read_value()

    return {
        "outside": lib.outcome(variable.read_value),
        "cross": lib.outcome(in_scope),
        "operator": lib.outcome(lambda: variable + 1.0),
        "replica": lib.local(lib.run(strategy, lambda: variable * lib.replica_number())),
    }


@scenario(*LAYOUTS, aggregation=REDUCED)
@ours(
    FIRST_OF_ALL,
    lambda layout, **_: {
        "seen": [{"tuple": [array([1.0, 11.0]), array([0.0, 10.0])]}] * layout.devices,
        "variable": _copies("MirroredVariable", layout, [0.0, 10.0]),
    },
    aggregation="ONLY_FIRST_REPLICA",
)
def write_then_read_in_one_step(lib: InJob, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable([0.0, 1.0], aggregation=aggregation)

    def replica_fn() -> Any:
        variable.assign_add(lib.constant([1.0, 10.0]) * lib.replica_number())
        first = variable * 1.0
        variable.assign_sub(lib.constant([1.0, 1.0]) * lib.replica_number())
        return first, variable * 1.0

    return {"seen": lib.local(lib.run(strategy, replica_fn)), "variable": variable}


@scenario(*LAYOUTS, aggregation=REDUCED)
def accumulate_on_read(lib: InJob, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable(0.0, "ON_READ", aggregation)

    def replica_fn() -> Any:
        variable.assign_add(lib.replica_number())
        variable.assign(variable * 2.0)
        return variable + 0.0

    lib.run(strategy, replica_fn)
    seen = lib.local(lib.run(strategy, replica_fn))
    with strategy.scope():
        cross_replica = variable.read_value()
    return {"seen": seen, "cross_replica": cross_replica, "variable": variable}


@scenario(*LAYOUTS)
def save_and_restore_an_on_read_sum(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(0.0, "ON_READ", "SUM")
    lib.run(strategy, lambda: nothing(variable.assign_add(lib.replica_number())))
    variable.assign(variable.read_value())
    return {"variable": variable, "read": variable.read_value()}


@scenario(
    *LAYOUTS,
    eager_only="as with other numbers",
    synchronization=("AUTO", "ON_READ"),
    context=("cross", "replica"),
    method=WRITES,
)
def write_integers(
    lib: InJob, strategy: Any, synchronization: str, context: str, method: str
) -> Any:
    with strategy.scope():
        variable = lib.variable(3, synchronization, "SUM")

    def replica_fn() -> None:
        getattr(variable, method)(lib.replica_id() + 7)

    def action() -> Any:
        if context == "replica":
            return nothing(lib.run(strategy, replica_fn))
        with strategy.scope():
            return nothing(getattr(variable, method)(lib.constant(10, "int32")))

    return _state(lib, variable, lib.outcome(action))


@scenario(*LAYOUTS, aggregation=("MEAN", "ONLY_FIRST_REPLICA"))
def write_a_python_number_in_replicas(lib: InJob, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, aggregation=aggregation)
    lib.run(strategy, lambda: nothing(variable.assign_sub(2.0)))
    return _state(lib, variable)


@scenario(*LAYOUTS, aggregation=REDUCED)
@ours(
    FIRST_OF_ALL,
    lambda layout, **_: {
        "outcome": None,
        "variable": _copies("MirroredVariable", layout, 2.0),
        "read": array(2.0),
    },
    aggregation="ONLY_FIRST_REPLICA",
)
@ours(
    "each replica contributes, even where all of a worker pass one array",
    lambda layout, **_: {
        "outcome": None,
        "variable": _copies("MirroredVariable", layout, 23.0),
        "read": array(23.0),
    },
    strategy="2x2",
    aggregation="SUM",
)
def write_what_differs_between_workers(lib: InJob, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0, aggregation=aggregation)
    own = lib.constant(float(10**lib.worker))
    lib.run(strategy, lambda x: nothing(variable.assign_add(x)), args=(own,))
    return _state(lib, variable)


@scenario(*LAYOUTS, eager_only="nothing runs on replicas", synchronization=("AUTO", "ON_READ"))
@ours(
    "the copies of a mirrored variable never drift apart",
    lambda layout, **_: {
        "refused": True,
        "variable": _copies("MirroredVariable", layout, 8.0),
    },
    synchronization="AUTO",
)
def write_a_per_replica_value_cross_replica(lib: InJob, strategy: Any, synchronization: str) -> Any:
    with strategy.scope():
        variable = lib.variable(8.0, synchronization, "MEAN")
        value = lib.by_replica([1.0, 2.0, 6.0, 7.0])
        refused = lib.refuses(lambda: variable.assign_add(value))
    return {"refused": refused, "variable": variable}


@scenario(*LAYOUTS, eager_only="nothing runs on replicas")
def write_a_variable_made_outside(lib: InJob, strategy: Any) -> Any:
    variable = lib.variable(8.0)
    outcome = lib.outcome(
        lambda: nothing(strategy.run(lambda: nothing(variable.assign_add(lib.replica_number()))))
    )
    return {"outcome": outcome, "variable": variable}


@scenario(*LAYOUTS, eager_only="nothing runs on replicas", context=("cross", "replica"))
def write_the_wrong_shape(lib: InJob, strategy: Any, context: str) -> Any:
    with strategy.scope():
        variable = lib.variable([1.0, 2.0], aggregation="MEAN")
    value = lib.constant([1.0, 2.0, 3.0])

    def action() -> Any:
        if context == "cross":
            return nothing(variable.assign(value))
        return nothing(strategy.run(lambda: nothing(variable.assign(value))))

    return {"outcome": lib.outcome(action), "variable": variable}


@scenario(*LAYOUTS)
def write_from_another_variable(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        target = lib.variable(1.0, aggregation="MEAN")
        source = lib.variable(4.0)
    lib.run(strategy, lambda: nothing(target.assign_add(source * lib.replica_number())))
    target.assign_add(source)
    return target


@scenario(*LAYOUTS)
def many_steps(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        total = lib.variable(0.0, aggregation="SUM")
        count = lib.variable(0, "ON_READ", "SUM")

    def replica_fn(x: Any) -> Any:
        total.assign_add(x * lib.replica_number())
        count.assign_add(1)
        return total + 0.0

    seen = [
        lib.same_everywhere(lib.run(strategy, replica_fn, args=(lib.constant(float(step)),)))
        for step in range(4)
    ]
    return {"seen": seen, "total": total, "count": count, "read": count.read_value()}
