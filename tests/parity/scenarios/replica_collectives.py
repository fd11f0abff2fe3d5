"""`ReplicaContext.all_reduce` and `all_gather`, and gradients through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import per_replica
from .._library import Library
from .._registry import ours, scenario

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "mirrored4", "central2")


def _context(lib: Library) -> Any:
    return lib.distribute.get_replica_context()


@scenario(*KINDS, op=("SUM", "MEAN"))
def all_reduce(lib: Library, strategy: Any, op: str) -> Any:
    def replica_fn() -> Any:
        value = lib.constant([1.0, 10.0]) * lib.replica_number()
        return _context(lib).all_reduce(lib.distribute.ReduceOp[op], value)

    return lib.run(strategy, replica_fn)


@scenario("mirrored2", op=("SUM", "sum", "Mean", "mean", "MAX", "nonsense"))
def all_reduce_op_as_text(lib: Library, strategy: Any, op: str) -> Any:
    return lib.outcome(
        lambda: lib.run(strategy, lambda: _context(lib).all_reduce(op, lib.replica_number()))
    )


@scenario("mirrored2", "mirrored3", "one_device", op=("SUM", "MEAN"))
def all_reduce_structure(lib: Library, strategy: Any, op: str) -> Any:
    def replica_fn() -> Any:
        x = lib.replica_number()
        return _context(lib).all_reduce(
            op, {"a": x, "b": (x * 2.0, [x * lib.constant([3.0, 4.0])])}
        )

    return lib.run(strategy, replica_fn)


@scenario("mirrored2", "mirrored3", op=("SUM", "MEAN"))
def all_reduce_integers(lib: Library, strategy: Any, op: str) -> Any:
    return lib.outcome(
        lambda: lib.run(strategy, lambda: _context(lib).all_reduce(op, lib.replica_id() + 3))
    )


@scenario("mirrored2", "mirrored3", op=("SUM", "MEAN"))
@ours(
    "each replica contributes, even where all pass one array",
    lambda strategy, op: per_replica(*[3.0 * int(strategy[-1])] * int(strategy[-1])),
    op="SUM",
)
def all_reduce_of_one_shared_array(lib: Library, strategy: Any, op: str) -> Any:
    shared = lib.constant(3.0)
    return lib.run(strategy, lambda: _context(lib).all_reduce(op, shared) + 0.0)


_PYTHON_VALUES = {"float": 3.0, "numpy": np.array([1, 2], np.float32)}


@scenario("mirrored2", "one_device", value=tuple(_PYTHON_VALUES), op=("SUM", "MEAN"))
@ours(
    "Python and NumPy values are taken as arrays, one from each replica",
    lambda value, op, **_: per_replica(
        *[(_PYTHON_VALUES[value] * np.float32(2 if op == "SUM" else 1)).tolist()] * 2
    ),
    strategy="mirrored2",
)
def all_reduce_of_python_values(lib: Library, strategy: Any, value: str, op: str) -> Any:
    return lib.outcome(
        lambda: lib.run(strategy, lambda: _context(lib).all_reduce(op, _PYTHON_VALUES[value]))
    )


@scenario("mirrored2")
def all_reduce_with_options(lib: Library, strategy: Any) -> Any:
    options = lib.experimental.CommunicationOptions(bytes_per_pack=1)
    return lib.run(strategy, lambda: _context(lib).all_reduce("SUM", lib.replica_number(), options))


@scenario("mirrored2", eager_only="compiled replicas have one shape")
def all_reduce_of_different_shapes(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        value = lib.constant(np.ones(int(lib.replica_id()) + 2))
        return _context(lib).all_reduce("SUM", value)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario("mirrored2", "mirrored3")
def all_reduce_of_a_variable(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(2.0)
    return lib.run(
        strategy, lambda: _context(lib).all_reduce("SUM", variable + lib.replica_number())
    )


@scenario("mirrored2", "mirrored3")
def all_reduce_into_a_variable(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(2.0, aggregation="MEAN")

    def replica_fn() -> None:
        variable.assign(_context(lib).all_reduce("SUM", lib.replica_number()))

    lib.run(strategy, replica_fn)
    return variable


@scenario(*KINDS)
def all_gather(lib: Library, strategy: Any) -> Any:
    def replica_fn(axis: int) -> Any:
        value = lib.constant([[1.0, 2.0]]) * lib.replica_number()
        return _context(lib).all_gather(value, axis=axis)

    return {
        f"axis {axis}": lib.outcome(lambda a=axis: lib.run(strategy, lambda: replica_fn(a)))
        for axis in (0, 1)
    }


@scenario("mirrored2", "one_device", "central2")
@ours(
    "a negative axis counts from the end",
    per_replica([[1.0, 2.0, 2.0, 4.0]], [[1.0, 2.0, 2.0, 4.0]]),
    strategy="mirrored2",
)
def all_gather_along_a_negative_axis(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        return _context(lib).all_gather(lib.constant([[1.0, 2.0]]) * lib.replica_number(), axis=-1)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario("mirrored2", "mirrored3", eager_only="compiled replicas have one shape")
def all_gather_uneven(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        rows = int(lib.replica_id()) + 1
        return _context(lib).all_gather(lib.constant(np.full((rows, 2), rows)), axis=0)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario("mirrored2", eager_only="compiled replicas have one shape")
def all_gather_with_an_empty_replica(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        rows = int(lib.replica_id())
        return _context(lib).all_gather(lib.constant(np.ones((rows, 2))), axis=0)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario("mirrored2", "one_device")
def all_gather_structure(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        x = lib.constant([1.0]) * lib.replica_number()
        return _context(lib).all_gather({"a": x, "b": (x * 2.0,)}, axis=0)

    return lib.run(strategy, replica_fn)


@scenario("mirrored2")
def all_gather_integers(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        return _context(lib).all_gather(lib.constant([1], "int32") + lib.replica_id(), axis=0)

    return lib.run(strategy, replica_fn)


@scenario("mirrored2", case=("scalar", "axis_too_large"))
def all_gather_refused(lib: Library, strategy: Any, case: str) -> Any:
    def replica_fn() -> Any:
        if case == "scalar":
            return _context(lib).all_gather(lib.replica_number(), axis=0)
        return _context(lib).all_gather(lib.constant([1.0]), axis=3)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario("mirrored2", eager_only="needs Python branches on the replica")
def all_gather_refuses_other_sizes(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        columns = 2 + int(lib.distribute.get_replica_context().replica_id_in_sync_group)
        return _context(lib).all_gather(lib.constant(np.ones((1, columns))), axis=0)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))


@scenario(*KINDS, op=("SUM", "MEAN"))
def gradient_of_all_reduce_by_a_variable(lib: Library, strategy: Any, op: str) -> Any:
    with strategy.scope():
        variable = lib.variable(2.0)

    def replica_fn() -> Any:
        return lib.value_and_grad(
            lambda: _context(lib).all_reduce(op, variable * lib.replica_number()), [variable]
        )

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": value, "gradient": gradients[0]}


@scenario("mirrored2", "mirrored3", op=("SUM", "MEAN"))
def gradient_of_all_reduce_by_its_input(lib: Library, strategy: Any, op: str) -> Any:
    def replica_fn() -> Any:
        def loss(x: Any) -> Any:
            reduced = _context(lib).all_reduce(op, x * x)
            return lib.reduce_sum(reduced) * lib.replica_number()

        return lib.grad(loss, lib.constant([1.0, 2.0]) * lib.replica_number())

    return lib.run(strategy, replica_fn)


@scenario("mirrored2")
def gradient_of_all_reduce_of_a_structure(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variables = [lib.variable(2.0), lib.variable([1.0, 3.0])]

    def replica_fn() -> Any:
        def loss() -> Any:
            scaled = [v * lib.replica_number() for v in variables]
            first, second = _context(lib).all_reduce("SUM", scaled)
            return first * lib.reduce_sum(second)

        return lib.value_and_grad(loss, variables)

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": value, "gradients": gradients}


@scenario("mirrored2", "mirrored3", "one_device")
def gradient_of_two_all_reduces(lib: Library, strategy: Any) -> Any:
    """The statistics of a batch norm that is synchronised over replicas."""
    with strategy.scope():
        scale = lib.variable(1.5)

    def replica_fn() -> Any:
        batch = lib.constant([1.0, 2.0, 4.0]) * lib.replica_number()

        def loss() -> Any:
            x = batch * scale
            mean = _context(lib).all_reduce("MEAN", lib.reduce_mean(x))
            variance = _context(lib).all_reduce("MEAN", lib.reduce_mean((x - mean) * (x - mean)))
            return lib.reduce_sum((x - mean) * (x - mean) * x) / variance

        return lib.value_and_grad(loss, [scale])

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": value, "gradient": gradients[0]}


@scenario("mirrored2", "mirrored3", "one_device", axis=(0, 1))
def gradient_of_all_gather(lib: Library, strategy: Any, axis: int) -> Any:
    def replica_fn() -> Any:
        x = lib.constant([[1.0, 2.0]]) * lib.replica_number()

        def loss(inputs: Any) -> Any:
            gathered = _context(lib).all_gather(inputs, axis=axis)
            return lib.reduce_sum(gathered * gathered) * lib.replica_number()

        return lib.grad(loss, x)

    return lib.run(strategy, replica_fn)


@scenario("mirrored2", "mirrored3")
def gradient_of_all_gather_by_a_variable(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable([[1.0, 2.0]])

    def replica_fn() -> Any:
        def loss() -> Any:
            gathered = _context(lib).all_gather(variable * lib.replica_number(), axis=0)
            return lib.reduce_sum(gathered * gathered)

        return lib.value_and_grad(loss, [variable])

    value, gradients = lib.run(strategy, replica_fn)
    return {"value": value, "gradient": gradients[0]}


@scenario("mirrored2", eager_only="compiled replicas have one shape")
def gradient_of_an_uneven_all_gather(lib: Library, strategy: Any) -> Any:
    def replica_fn() -> Any:
        x = lib.constant(np.full((int(lib.replica_id()) + 1, 2), 3.0))

        def loss(inputs: Any) -> Any:
            gathered = _context(lib).all_gather(inputs, axis=0)
            return lib.reduce_sum(gathered * gathered)

        return lib.grad(loss, x)

    return lib.outcome(lambda: lib.run(strategy, replica_fn))
