"""Variables as values: attributes, operators, conversions, gradients, life outside the scope."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from .._expected import array
from .._library import Library, nothing
from .._registry import ours, scenario

KINDS = ("default", "one_device", "mirrored2", "central2")

OPERATORS = {
    "add": lambda v: v + 1.0,
    "radd": lambda v: 1.0 + v,
    "sub": lambda v: v - 1.0,
    "rsub": lambda v: 1.0 - v,
    "mul": lambda v: v * 2.0,
    "truediv": lambda v: v / 2.0,
    "rtruediv": lambda v: 12.0 / v,
    "floordiv": lambda v: v // 2.0,
    "mod": lambda v: v % 2.0,
    "pow": lambda v: v**2.0,
    "neg": lambda v: -v,
    "abs": lambda v: abs(v),
    "less": lambda v: v < 2.5,
    "greater_equal": lambda v: v >= 2.0,
    "index": lambda v: v[1],
    "slice": lambda v: v[1:],
    "two_variables": lambda v: v + v,
}


@scenario("mirrored2", "default", on_read=(False, True))
def operators(lib: Library, strategy: Any, on_read: bool) -> Any:
    with strategy.scope():
        variable = lib.variable([1.0, 2.0, 4.0], "ON_READ" if on_read else "AUTO", "SUM")

    def apply_all() -> Any:
        return {name: operator(variable) for name, operator in OPERATORS.items()}

    return {"cross_replica": apply_all(), "replica": lib.run(strategy, apply_all)}


@scenario(*KINDS, on_read=(False, True))
def attributes(lib: Library, strategy: Any, on_read: bool) -> Any:
    with strategy.scope():
        variable = lib.variable([[1.0, 2.0]], "ON_READ" if on_read else "AUTO", "SUM", name="w")
    return {
        "shape": [int(size) for size in variable.shape],
        "dtype": np.dtype(getattr(variable.dtype, "as_numpy_dtype", variable.dtype)).name,
        "name": variable.name.split(":")[0],
        "trainable": variable.trainable,
        "is_variable": isinstance(variable, lib.Variable),
    }


@scenario(*KINDS)
def conversions(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.Variable(2.5)
    return {
        "numpy": np.asarray(variable.numpy()),
        "float": float(variable.numpy()),
        "reduce_sum": lib.reduce_sum(variable),
        "cast": lib.cast(variable, "int32"),
    }


@scenario("mirrored2", "default")
def matrix_product(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        weights = lib.Variable([[1.0, 2.0], [3.0, 4.0]])

    def replica_fn() -> Any:
        return lib.matmul(lib.constant([[1.0, 1.0]]) * lib.replica_number(), weights)

    return lib.run(strategy, replica_fn)


@scenario("mirrored2", "one_device", "central2")
def used_after_the_scope(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(1.0, aggregation="SUM")
    variable.assign_add(2.0)
    first = lib.observe(variable)
    lib.run(strategy, lambda: nothing(variable.assign_add(lib.replica_number())))
    return {"outside": first, "after_run": variable}


@scenario("mirrored2", "mirrored3", "one_device")
def made_outside_and_read_inside(lib: Library, strategy: Any) -> Any:
    variable = lib.Variable([1.0, 2.0])
    return lib.run(strategy, lambda: variable * lib.replica_number())


@scenario("mirrored2", "one_device", eager_only="a compiled function returns values")
def made_outside_and_returned(lib: Library, strategy: Any) -> Any:
    variable = lib.Variable(1.0)
    result = lib.run(strategy, lambda: variable)
    return {"result": result, "itself": result is variable}


@scenario("mirrored2", "mirrored3", "one_device", "default", "central2")
def gradient_is_local(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        weights = [lib.Variable(2.0), lib.Variable([1.0, 3.0])]

    def replica_fn() -> Any:
        def loss() -> Any:
            return lib.reduce_sum(weights[0] * weights[1] * weights[1]) * lib.replica_number()

        return lib.value_and_grad(loss, weights)

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": value, "gradients": gradients}


@scenario("mirrored2", "default")
@ours(
    "a mirrored variable has one value, by which one can differentiate",
    {"tuple": [array(9.0), [array(6.0)]]},
    strategy="mirrored2",
)
def gradient_in_cross_replica_context(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        weight = lib.Variable(3.0)
        return lib.outcome(lambda: lib.value_and_grad(lambda: weight * weight, [weight]))


@scenario("mirrored2", "default")
def gradient_of_an_unused_variable(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        used, unused = lib.Variable(3.0), lib.Variable(4.0)
    _, gradients = lib.run(
        strategy, lambda: lib.value_and_grad(lambda: used * used, [used, unused])
    )
    return gradients[0]


@scenario("mirrored2")
def gradient_by_a_variable_made_outside(lib: Library, strategy: Any) -> Any:
    weight = lib.Variable(3.0)
    _, gradients = lib.run(
        strategy, lambda: lib.value_and_grad(lambda: weight * lib.replica_number(), [weight])
    )
    return gradients


@scenario("default", "mirrored2")
def deep_copy(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.Variable([1.0, 2.0])
        outcome = lib.outcome(lambda: copy.deepcopy(variable))
        variable.assign([5.0, 6.0])
    return outcome


@scenario("default", "mirrored2", "one_device")
def read_value_is_a_snapshot(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.Variable([1.0, 2.0])
        kept = variable.read_value()
        variable.assign([5.0, 6.0])
    return {"kept": kept, "variable": variable}


@scenario("default", "mirrored2", keyword=("use_locking", "name", "read_value"))
def assign_keywords(lib: Library, strategy: Any, keyword: str) -> Any:
    with strategy.scope():
        variable = lib.Variable(1.0)
        value = {"use_locking": False, "name": "update", "read_value": False}[keyword]
        refused = lib.refuses(lambda: variable.assign(2.0, **{keyword: value}))
    return {"refused": refused, "variable": variable}


@scenario("mirrored2", eager_only="copies are not handed out by a compiled step")
def copies_live_on_their_devices(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.Variable(1.0)
    seen = []
    with strategy.scope():
        strategy.extended.update(
            variable, lambda item: seen.append(lib.device(item.read_value())), group=False
        )
    return seen
