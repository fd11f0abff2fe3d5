"""Gradients through collectives."""

from __future__ import annotations

from typing import Any

from .._layout import LAYOUTS
from .._registry import scenario
from .._worker import InJob


@scenario(*LAYOUTS, op=("SUM", "MEAN"))
def all_reduce_by_a_variable(lib: InJob, strategy: Any, op: str) -> Any:
    with strategy.scope():
        variable = lib.variable(2.0)

    def replica_fn() -> Any:
        return lib.value_and_grad(
            lambda: lib.context().all_reduce(op, variable * lib.replica_number()), [variable]
        )

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": lib.local(value), "gradient": lib.local(gradients[0])}


@scenario(*LAYOUTS, op=("SUM", "MEAN"))
def all_reduce_by_its_input(lib: InJob, strategy: Any, op: str) -> Any:
    def replica_fn() -> Any:
        def loss(x: Any) -> Any:
            reduced = lib.context().all_reduce(op, x * x)
            return lib.reduce_sum(reduced) * lib.replica_number()

        return lib.grad(loss, lib.constant([1.0, 2.0]) * lib.replica_number())

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS)
def all_reduce_of_a_structure(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        variables = [lib.variable(2.0), lib.variable([1.0, 3.0])]

    def replica_fn() -> Any:
        def loss() -> Any:
            scaled = [v * lib.replica_number() for v in variables]
            first, second = lib.context().all_reduce("SUM", scaled)
            return first * lib.reduce_sum(second)

        return lib.value_and_grad(loss, variables)

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": lib.local(value), "gradients": [lib.local(g) for g in gradients]}


@scenario(*LAYOUTS)
def synchronised_batch_norm(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        scale = lib.variable(1.5)

    def replica_fn() -> Any:
        batch = lib.constant([1.0, 2.0, 4.0]) * lib.replica_number()

        def loss() -> Any:
            x = batch * scale
            mean = lib.context().all_reduce("MEAN", lib.reduce_mean(x))
            variance = lib.context().all_reduce("MEAN", lib.reduce_mean((x - mean) * (x - mean)))
            return lib.reduce_sum((x - mean) * (x - mean) * x) / variance

        return lib.value_and_grad(loss, [scale])

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": lib.local(value), "gradient": lib.local(gradients[0])}


@scenario(*LAYOUTS, axis=(0, 1))
def all_gather_by_its_input(lib: InJob, strategy: Any, axis: int) -> Any:
    def replica_fn() -> Any:
        x = lib.constant([[1.0, 2.0]]) * lib.replica_number()

        def loss(inputs: Any) -> Any:
            gathered = lib.context().all_gather(inputs, axis=axis)
            return lib.reduce_sum(gathered * gathered) * lib.replica_number()

        return lib.grad(loss, x)

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS)
def all_gather_by_a_variable(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable([[1.0, 2.0]])

    def replica_fn() -> Any:
        def loss() -> Any:
            gathered = lib.context().all_gather(variable * lib.replica_number(), axis=0)
            return lib.reduce_sum(gathered * gathered)

        return lib.value_and_grad(loss, [variable])

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": lib.local(value), "gradient": lib.local(gradients[0])}
