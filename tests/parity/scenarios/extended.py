"""`StrategyExtended`: the methods for library authors."""

from __future__ import annotations

from typing import Any

from .._expected import ON_READ_IN_CENTRAL_STORAGE, array, mirrored, mirrored_variable, raises
from .._library import Library, nothing
from .._registry import ours, scenario

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "central2")


def _destination(lib: Library, kind: str, value: Any) -> Any:
    match kind:
        case "variable":
            return lib.variable(0.0)
        case "value":
            return value
        case "device":
            return "CPU:1"
        case "on_read_variable":
            return lib.variable(0.0, "ON_READ", "SUM")
    raise ValueError(kind)


DESTINATIONS = ("variable", "value", "device", "on_read_variable")


@scenario("mirrored1", "mirrored2", op=("SUM", "MEAN"), destination=DESTINATIONS)
def reduce_to(lib: Library, strategy: Any, op: str, destination: str) -> Any:
    with strategy.scope():
        value = lib.per_replica(strategy, [[1.0, 2.0], [3.0, 6.0]])
        to = _destination(lib, destination, value)
        return lib.outcome(
            lambda: strategy.extended.reduce_to(lib.distribute.ReduceOp[op], value, to)
        )


@scenario("mirrored2", "mirrored3", op=("SUM", "MEAN"))
@ours(
    "destinations may be a list of devices",
    lambda strategy, op: mirrored(
        {"SUM": 3.0, "MEAN": 1.5}[op] if strategy == "mirrored2" else {"SUM": 9.0, "MEAN": 3.0}[op]
    ),
)
def reduce_to_a_list_of_devices(lib: Library, strategy: Any, op: str) -> Any:
    with strategy.scope():
        value = lib.per_replica(strategy, [1.0, 2.0, 6.0])
        return lib.outcome(
            lambda: strategy.extended.reduce_to(
                lib.distribute.ReduceOp[op], value, ["CPU:0", "CPU:1"]
            )
        )


@scenario("one_device", "central2", "mirrored3", "mirrored4", op=("SUM", "MEAN"))
def reduce_to_a_variable(lib: Library, strategy: Any, op: str) -> Any:
    with strategy.scope():
        variable = lib.variable(0.0)
        value = lib.per_replica(strategy, [1.0, 2.0, 6.0, 7.0])
        return strategy.extended.reduce_to(lib.distribute.ReduceOp[op], value, variable)


@scenario("mirrored2", op=("sum", "MEAN", "nonsense"))
def reduce_to_with_a_text_op(lib: Library, strategy: Any, op: str) -> Any:
    with strategy.scope():
        value = lib.per_replica(strategy, [1.0, 2.0])
        return lib.outcome(lambda: strategy.extended.reduce_to(op, value, value))


@scenario("mirrored2", "mirrored1", op=("SUM", "MEAN"))
@ours(
    "the result is mirrored to its destinations",
    mirrored([1.0, 2.0]),
    strategy="mirrored2",
    op="MEAN",
)
def reduce_to_of_a_plain_array(lib: Library, strategy: Any, op: str) -> Any:
    value = lib.constant([1.0, 2.0])
    with strategy.scope():
        variable = lib.variable(0.0)
        return lib.outcome(
            lambda: strategy.extended.reduce_to(lib.distribute.ReduceOp[op], value, variable)
        )


@scenario("mirrored2", op=("SUM", "MEAN"))
def reduce_to_of_a_mirrored_value(lib: Library, strategy: Any, op: str) -> Any:
    with strategy.scope():
        variable = lib.variable(0.0)
        value = strategy.extended.broadcast_to(lib.constant(3.0), variable)
        return lib.outcome(
            lambda: strategy.extended.reduce_to(lib.distribute.ReduceOp[op], value, variable)
        )


@scenario("mirrored2", "one_device", "central2")
def reduce_to_with_hints(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        value = lib.per_replica(strategy, [1.0, 2.0])
        return strategy.extended.reduce_to(
            lib.distribute.ReduceOp.SUM,
            value,
            lib.variable(0.0),
            lib.experimental.CommunicationOptions(bytes_per_pack=1024),
        )


@scenario("mirrored2")
def reduce_to_a_wrong_destination(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        value = lib.per_replica(strategy, [1.0, 2.0])
        return lib.refuses(
            lambda: strategy.extended.reduce_to(lib.distribute.ReduceOp.SUM, value, 3)
        )


@scenario("one_device", "mirrored1", "mirrored2", "mirrored3", "central2", op=("SUM", "MEAN"))
def batch_reduce_to(lib: Library, strategy: Any, op: str) -> Any:
    with strategy.scope():
        variables = [lib.variable(0.0), lib.variable([0.0, 0.0])]
        values = [
            lib.per_replica(strategy, [1.0, 2.0, 6.0]),
            lib.per_replica(strategy, [[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]]),
        ]
        return strategy.extended.batch_reduce_to(
            lib.distribute.ReduceOp[op], list(zip(values, variables, strict=True))
        )


@scenario("mirrored2")
@ours(
    "each value goes to its own destinations",
    [mirrored(3.0), array(3, "int32"), array([3.0])],
)
def batch_reduce_to_mixed_types(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        pairs = [
            (lib.per_replica(strategy, [1.0, 2.0]), lib.variable(0.0)),
            (lib.per_replica(strategy, [1, 2], "int32"), "CPU:0"),
            (lib.per_replica(strategy, [[1.0], [2.0]]), "CPU:1"),
        ]
        return lib.outcome(
            lambda: strategy.extended.batch_reduce_to(lib.distribute.ReduceOp.SUM, pairs)
        )


@scenario("mirrored2", "one_device")
@ours("nothing to reduce gives nothing", [], strategy="mirrored2")
def batch_reduce_to_of_nothing(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        return lib.outcome(
            lambda: strategy.extended.batch_reduce_to(lib.distribute.ReduceOp.SUM, [])
        )


@scenario("mirrored2")
@ours("destinations may be a list of devices", mirrored(1.0))
def broadcast_to_a_list_of_devices(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        return lib.outcome(
            lambda: strategy.extended.broadcast_to(lib.constant(1.0), ["CPU:0", "CPU:1"])
        )


@scenario(
    "mirrored1", "mirrored2", "mirrored3", "one_device", destination=("variable", "device", "value")
)
def broadcast_to(lib: Library, strategy: Any, destination: str) -> Any:
    value = lib.constant([1.0, 2.0])
    with strategy.scope():
        per_replica = lib.per_replica(strategy, [1.0, 2.0, 3.0])
        to = _destination(lib, destination, per_replica)
        return lib.outcome(lambda: strategy.extended.broadcast_to(value, to))


@scenario("mirrored2", "mirrored3", "one_device")
def call_for_each_replica(lib: Library, strategy: Any) -> Any:
    def merge_fn(distribution: Any, value: Any) -> Any:
        return sum(distribution.experimental_local_results(value))

    def replica_fn(three: Any) -> Any:
        context = lib.distribute.get_replica_context()
        value = three + lib.replica_number()
        return context.merge_call(merge_fn, args=(value,)) + value

    with strategy.scope():
        return strategy.extended.call_for_each_replica(replica_fn, args=[lib.constant(3.0)])


@scenario("mirrored2", "one_device")
def call_for_each_replica_outside_scope(lib: Library, strategy: Any) -> Any:
    return lib.outcome(lambda: strategy.extended.call_for_each_replica(lib.replica_number))


RESULTS = {
    "array": lambda copy, delta: copy.read_value() + delta,
    "assigned": lambda copy, delta: copy.assign_add(delta).read_value(),
    "nothing": lambda copy, delta: nothing(copy.assign_add(delta)),
    "tuple": lambda copy, delta: (copy.read_value(), delta),
}


@scenario(
    "one_device", "mirrored1", "mirrored2", "central2", group=(True, False), result=tuple(RESULTS)
)
def update(lib: Library, strategy: Any, group: bool, result: str) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        returned = lib.outcome(
            lambda: strategy.extended.update(
                variable, RESULTS[result], args=(lib.constant(2.0),), group=group
            )
        )
    return {"returned": returned, "variable": variable}


@scenario("mirrored2", "one_device", "central2")
def update_with_keywords(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        strategy.extended.update(
            variable,
            lambda copy, *, delta: copy.assign_add(delta),
            kwargs={"delta": lib.constant(2.0)},
        )
    return variable


@scenario("mirrored2", "mirrored3", "one_device", "central2")
def update_with_a_reduced_value(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        value = lib.per_replica(strategy, [1.0, 2.0, 3.0])
        reduced = strategy.extended.reduce_to(lib.distribute.ReduceOp.SUM, value, variable)
        strategy.extended.update(variable, lambda copy, x: copy.assign_sub(x), args=(reduced,))
    return variable


@scenario("mirrored2", "one_device")
def update_with_another_variable(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        with strategy.extended.colocate_vars_with(variable):
            slot = lib.variable(5.0)

        def fn(copy: Any, slot_copy: Any) -> None:
            slot_copy.assign_add(1.0)
            copy.assign(slot_copy.read_value())

        strategy.extended.update(variable, fn, args=(slot,))
    return {"variable": variable, "slot": slot}


@scenario("mirrored2")
@ours(
    "the arguments of update may not be per-replica values",
    {"returned": raises("ValueError"), "variable": mirrored_variable(1.0)},
)
def update_with_a_per_replica_value(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        value = lib.per_replica(strategy, [1.0, 2.0])
        returned = lib.outcome(
            lambda: nothing(
                strategy.extended.update(
                    variable, lambda copy, x: copy.assign(x), args=(value,), group=False
                )
            )
        )
    return {"returned": returned, "variable": variable}


@scenario("mirrored2", "one_device", aggregation=("SUM", "MEAN"))
def update_an_on_read_variable(lib: Library, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0, "ON_READ", aggregation)
        outcome = lib.outcome(
            lambda: nothing(
                strategy.extended.update(variable, lambda copy: copy.assign_add(2.0), group=False)
            )
        )
    return {"outcome": outcome, "variable": variable}


@scenario("mirrored2", "one_device", "default")
@ours(
    "the documentation allows variables that are not mirrored",
    {"refused": False, "variable": {**array(3.0), "kind": "Variable"}},
    strategy="mirrored2",
)
def update_a_variable_made_outside(lib: Library, strategy: Any) -> Any:
    variable = lib.variable(1.0)
    with strategy.scope():
        refused = lib.refuses(
            lambda: strategy.extended.update(variable, lambda v: v.assign_add(2.0))
        )
    return {"refused": refused, "variable": variable}


@scenario("mirrored2", "one_device")
def update_outside_scope(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
    outcome = lib.outcome(
        lambda: nothing(strategy.extended.update(variable, lambda v: v.assign_add(2.0)))
    )
    return {"outcome": outcome, "variable": variable}


@scenario("mirrored2", "one_device", "central2")
def update_function_fails(lib: Library, strategy: Any) -> Any:
    def fail(copy: Any) -> None:
        raise LookupError(f"on purpose: {copy.dtype}")

    with strategy.scope():
        variable = lib.variable(1.0)
        outcome = lib.outcome(lambda: strategy.extended.update(variable, fail))
        cross_replica = lib.distribute.in_cross_replica_context()
    return {"outcome": outcome, "cross_replica": cross_replica}


@scenario("mirrored2", "one_device", "central2")
def update_inside_update(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        other = lib.variable(1.0)

        def fn(copy: Any) -> None:
            strategy.extended.update(other, lambda item: item.assign(3.0))
            copy.assign(2.0)

        return lib.outcome(lambda: nothing(strategy.extended.update(variable, fn, group=False)))


@scenario("mirrored2", "mirrored3", "one_device", "central2", group=(True, False))
def update_non_slot(lib: Library, strategy: Any, group: bool) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        devices = strategy.extended.non_slot_devices([variable])
        with strategy.extended.colocate_vars_with(variable):
            count = lib.variable(0.0)
        returned = lib.outcome(
            lambda: strategy.extended.update_non_slot(
                devices,
                lambda v, x: v.assign_add(x).read_value(),
                args=(count, lib.constant(2.0)),
                group=group,
            )
        )
    return {"returned": returned, "count": count}


@scenario("mirrored1", "mirrored2", "one_device")
def non_slot_devices(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
        devices = strategy.extended.non_slot_devices([variable])
    names = devices if isinstance(devices, tuple | list) else [devices]
    return [lib.device_name(device) for device in names]


@scenario("mirrored2", "mirrored3", "one_device", "central2")
def colocate_vars_with(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        first = lib.variable(1.0)
        with strategy.extended.colocate_vars_with(first):
            second = lib.variable(2.0)
        copies = [strategy.experimental_local_results(v) for v in (first, second)]
    return {
        "second": second,
        "devices": [[lib.device(copy) for copy in group] for group in copies],
    }


@scenario("mirrored2", "mirrored3")
@ours(
    "the documentation passes the result of non_slot_devices",
    lambda strategy: mirrored_variable(2.0, int(strategy[-1])),
)
def colocate_vars_with_non_slot_devices(lib: Library, strategy: Any) -> Any:
    def make() -> Any:
        devices = strategy.extended.non_slot_devices([lib.variable(1.0)])
        with strategy.extended.colocate_vars_with(devices):
            return lib.variable(2.0)

    with strategy.scope():
        return lib.outcome(make)


@scenario("mirrored2", "one_device", "central2", kind=("array", "number", "outsider"))
def colocate_vars_with_refused(lib: Library, strategy: Any, kind: str) -> Any:
    target = {"array": lib.constant(1.0), "number": 3, "outsider": lib.variable(1.0)}[kind]

    def make() -> Any:
        with strategy.extended.colocate_vars_with(target):
            return lib.variable(1.0)

    with strategy.scope():
        return lib.outcome(make)


@scenario("mirrored1", "mirrored2", "mirrored3", "one_device", "central2")
def value_container_of_a_copy(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
    copies = strategy.experimental_local_results(variable)
    return {
        "copies": [strategy.extended.value_container(copy) is variable for copy in copies],
        "itself": strategy.extended.value_container(variable) is variable,
    }


@scenario("mirrored2", "one_device")
def value_container_of_an_on_read_copy(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0, "ON_READ", "SUM")
    copies = strategy.experimental_local_results(variable)
    return [strategy.extended.value_container(copy) is variable for copy in copies]


@scenario("mirrored2", "one_device")
def value_container_of_other_values(lib: Library, strategy: Any) -> Any:
    array = lib.constant(1.0)
    value = lib.run(strategy, lib.replica_number)
    component = strategy.experimental_local_results(value)[0]
    return {
        "array": strategy.extended.value_container(array) is array,
        "value": strategy.extended.value_container(value) is value,
        "component": strategy.extended.value_container(component) is component,
    }


@scenario(*KINDS)
def variable_created_in_scope(lib: Library, strategy: Any) -> Any:
    outsider = lib.variable(1.0)
    with strategy.scope():
        own = lib.variable(1.0)
        on_read = lib.variable(1.0, "ON_READ", "SUM")
    with lib.strategy("mirrored2").scope():
        other = lib.variable(1.0)
    created = strategy.extended.variable_created_in_scope
    return {
        "own": created(own),
        "on_read": created(on_read),
        "outsider": created(outsider),
        "other": created(other),
    }


@scenario(
    "mirrored2",
    "mirrored3",
    "one_device",
    "central2",
    aggregation=("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"),
)
@ours(
    ON_READ_IN_CENTRAL_STORAGE,
    {"written": None, "mirrored": array(2.0), "on_read": raises("ValueError")},
    strategy="central2",
    aggregation="NONE",
)
def read_var(lib: Library, strategy: Any, aggregation: str) -> Any:
    with strategy.scope():
        mirrored = lib.variable(2.0, aggregation=aggregation)
        on_read = lib.variable(2.0, "ON_READ", aggregation)
    written = lib.outcome(
        lambda: lib.run(strategy, lambda: nothing(on_read.assign(lib.replica_number())))
    )
    with strategy.scope():
        return {
            "written": written,
            "mirrored": lib.outcome(lambda: strategy.extended.read_var(mirrored) + 0.0),
            "on_read": lib.outcome(lambda: strategy.extended.read_var(on_read) + 0.0),
        }


@scenario("one_device", "mirrored1", "mirrored2")
def properties(lib: Library, strategy: Any) -> Any:
    extended = strategy.extended
    return {
        "between_graph": lib.outcome(lambda: extended.experimental_between_graph),
        "require_static_shapes": lib.outcome(lambda: extended.experimental_require_static_shapes),
        "should_init": lib.outcome(lambda: extended.experimental_should_init),
        "should_checkpoint": lib.outcome(lambda: extended.should_checkpoint),
        "should_save_summary": lib.outcome(lambda: extended.should_save_summary),
    }


@scenario("one_device", "mirrored1", "mirrored2", "mirrored3", "central2")
def device_properties(lib: Library, strategy: Any) -> Any:
    def names(devices: Any) -> Any:
        return tuple(lib.device_name(device) for device in devices)

    return {
        "worker_devices": lib.outcome(lambda: names(strategy.extended.worker_devices)),
        "parameter_devices": lib.outcome(lambda: names(strategy.extended.parameter_devices)),
    }
