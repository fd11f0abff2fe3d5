"""How results of replicas become one value, and how a value comes apart again."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np

from .._expected import ON_READ_IN_CENTRAL_STORAGE, array, per_replica, sync_on_read_variable
from .._library import Library
from .._registry import ours, scenario

Point = collections.namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any


KINDS = ("one_device", "mirrored1", "mirrored2", "mirrored3", "central2")

STRUCTURES = {
    "tuple": lambda x: (x, x * 2.0),
    "list": lambda x: [x, x * 2.0],
    "dict": lambda x: {"b": x, "a": x * 2.0},
    "namedtuple": lambda x: Point(x, x * 2.0),
    "ordered_dict": lambda x: collections.OrderedDict(b=x, a=x * 2.0),
    "deep": lambda x: {"p": (x, [x + 1.0, {"q": x * 3.0}])},
    "empty_tuple": lambda x: (),
    "empty_dict": lambda x: {},
    "with_none": lambda x: (x, None),
}


@scenario("mirrored1", "mirrored2", structure=tuple(STRUCTURES))
def results_keep_their_structure(lib: Library, strategy: Any, structure: str) -> Any:
    return lib.run(strategy, lambda: STRUCTURES[structure](lib.replica_number()))


@scenario("mirrored2")
@ours(
    "dataclasses are structures, as named tuples are",
    {"type": "Pair", "left": per_replica(1.0, 2.0)},
)
def results_that_are_dataclasses(lib: Library, strategy: Any) -> Any:
    result = lib.run(strategy, lambda: Pair(lib.replica_number(), lib.replica_number() * 2.0))
    return {"type": type(result).__name__, "left": lib.outcome(lambda: result.left)}


@scenario(*KINDS)
def same_object_comes_back_itself(lib: Library, strategy: Any) -> Any:
    array = lib.constant([1.0, 2.0])
    result = lib.run(strategy, lambda: array)
    return {"result": result, "itself": result is array}


@scenario("mirrored2", "mirrored1")
def equal_arrays_are_not_the_same(lib: Library, strategy: Any) -> Any:
    return lib.run(strategy, lambda: lib.constant(7.0))


@scenario("mirrored2", "one_device", eager_only="compiled results are arrays")
def python_results(lib: Library, strategy: Any) -> Any:
    results = {
        "same_int": lambda: 3,
        "same_text": lambda: "text",
        "same_bool": lambda: True,
        "different_int": lambda: 1000 + int(lib.replica_id()),
        "different_text": lambda: f"replica {int(lib.replica_id())}",
        "numpy": lambda: np.array([int(lib.replica_id())], np.float32),
    }
    return {name: lib.run(strategy, fn) for name, fn in results.items()}


@scenario("mirrored2", eager_only="needs Python branches on the replica")
def none_from_one_replica(lib: Library, strategy: Any) -> Any:
    return lib.outcome(
        lambda: lib.run(strategy, lambda: None if int(lib.replica_id()) else lib.constant(1.0))
    )


@scenario("mirrored2", case=("tuple_lengths", "dict_keys", "kinds"), eager_only="needs branches")
def structures_that_disagree(lib: Library, strategy: Any, case: str) -> Any:
    def replica_fn() -> Any:
        x, first = lib.replica_number(), int(lib.replica_id()) == 0
        if case == "tuple_lengths":
            return (x,) if first else (x, x)
        if case == "dict_keys":
            return {"a": x} if first else {"b": x}
        return [x] if first else {"a": x}

    return lib.refuses(lambda: lib.run(strategy, replica_fn))


@scenario(*KINDS, eager_only="a compiled function returns values")
def variable_result(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
    result = lib.run(strategy, lambda: variable)
    return {"result": result, "itself": result is variable}


@scenario("mirrored2", "mirrored3", eager_only="copies are not handed out by a compiled step")
def copies_of_a_variable_become_the_variable(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0)
    result = lib.run(strategy, lambda: variable.values[int(lib.replica_id())])
    return {"result": result, "itself": result is variable}


@scenario(*KINDS, eager_only="a compiled function returns values")
@ours(
    ON_READ_IN_CENTRAL_STORAGE,
    {"result": sync_on_read_variable(1.0, 1.0), "itself": True},
    strategy="central2",
)
def sync_on_read_variable_result(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0, "ON_READ", "SUM")
    result = lib.run(strategy, lambda: variable)
    return {"result": result, "itself": result is variable}


@scenario(*KINDS)
def variable_read_in_replicas(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable([1.0, 2.0])
    return lib.run(strategy, lambda: variable + 0.0)


@scenario("default", "one_device", "mirrored1", "mirrored2", "mirrored4", "central2")
def local_results_of_a_result(lib: Library, strategy: Any) -> Any:
    return strategy.experimental_local_results(lib.run(strategy, lib.replica_number))


@scenario(
    "default", "one_device", "mirrored1", "mirrored2", "central2", kind=("array", "int", "none")
)
def local_results_of_a_plain_value(lib: Library, strategy: Any, kind: str) -> Any:
    value = {"array": lib.constant([1.0]), "int": 3, "none": None}[kind]
    return lib.outcome(lambda: strategy.experimental_local_results(value))


@scenario("one_device", "mirrored1", "mirrored2", "mirrored3", "central2", on_read=(False, True))
@ours(
    ON_READ_IN_CENTRAL_STORAGE,
    [{**array(2.0), "kind": "numpy"}] * 2,
    strategy="central2",
    on_read=True,
)
def local_results_of_a_variable(lib: Library, strategy: Any, on_read: bool) -> Any:
    with strategy.scope():
        variable = lib.variable(2.0, "ON_READ", "SUM") if on_read else lib.variable(2.0)
    return [lib.to_numpy(item) for item in strategy.experimental_local_results(variable)]


@scenario("mirrored1", "mirrored2", structure=tuple(STRUCTURES))
def local_results_of_a_structure(lib: Library, strategy: Any, structure: str) -> Any:
    value = lib.run(strategy, lambda: STRUCTURES[structure](lib.replica_number()))
    return lib.outcome(lambda: strategy.experimental_local_results(value))


@scenario("mirrored2")
def local_results_of_a_mixed_structure(lib: Library, strategy: Any) -> Any:
    shared = lib.constant(5.0)
    value = lib.run(strategy, lambda: {"own": lib.replica_number(), "shared": shared})
    return strategy.experimental_local_results(value)


@scenario("mirrored2")
def local_results_of_a_shared_array(lib: Library, strategy: Any) -> Any:
    array = lib.constant(1.0)
    return strategy.experimental_local_results(lib.run(strategy, lambda: array))


@scenario("mirrored2")
def local_results_in_a_merge(lib: Library, strategy: Any) -> Any:
    def merge_fn(merging: Any, value: Any) -> Any:
        return sum(merging.experimental_local_results(value))

    def replica_fn() -> Any:
        return lib.distribute.get_replica_context().merge_call(merge_fn, (lib.replica_number(),))

    return lib.run(strategy, replica_fn)


@scenario("mirrored2", "mirrored1")
def components(lib: Library, strategy: Any) -> Any:
    value = lib.per_replica(strategy, [1.0, 2.0])
    return {
        "values": value.values,
        "is_distributed": isinstance(value, lib.distribute.DistributedValues),
        "starts_with": repr(value).splitlines()[0],
        "lines": len(repr(value).splitlines()),
    }


@scenario("mirrored2")
def variable_is_a_distributed_value(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        mirrored = lib.variable(1.0)
        on_read = lib.variable(1.0, "ON_READ", "SUM")
    return {
        "mirrored": isinstance(mirrored, lib.distribute.DistributedValues),
        "mirrored_starts": repr(mirrored).splitlines()[0],
        "on_read": isinstance(on_read, lib.distribute.DistributedValues),
        "on_read_starts": repr(on_read).splitlines()[0],
    }


CARELESS_USES = {
    "float": lambda value: float(value),
    "add": lambda value: value + 1.0,
    "radd": lambda value: 1.0 + value,
    "numpy": lambda value: np.asarray(value).astype("float32"),
}


@scenario("mirrored2", use=tuple(CARELESS_USES))
def per_replica_used_as_an_array(lib: Library, strategy: Any, use: str) -> Any:
    value = lib.run(strategy, lib.replica_number)
    return lib.outcome(lambda: CARELESS_USES[use](value))
