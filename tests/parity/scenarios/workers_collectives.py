"""`ReplicaContext.all_reduce` and `all_gather` over the replicas of all workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import array
from .._layout import LAYOUTS
from .._registry import ours, scenario
from .._worker import InJob

ONE_SHAPE = "compiled replicas have one shape"


@scenario(*LAYOUTS, op=("SUM", "MEAN"))
def all_reduce(lib: InJob, strategy: Any, op: str) -> Any:
    def replica_fn() -> Any:
        value = lib.constant([1.0, 10.0]) * lib.replica_number()
        return lib.context().all_reduce(lib.distribute.ReduceOp[op], value)

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS, op=("SUM", "MEAN"))
def all_reduce_structure(lib: InJob, strategy: Any, op: str) -> Any:
    def replica_fn() -> Any:
        x = lib.replica_number()
        return lib.context().all_reduce(
            op, {"a": x, "b": (x * 2.0, [x * lib.constant([3.0, 4.0])])}
        )

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS, op=("SUM", "MEAN"))
def all_reduce_integers(lib: InJob, strategy: Any, op: str) -> Any:
    return lib.outcome(
        lambda: lib.local(
            lib.run(strategy, lambda: lib.context().all_reduce(op, lib.replica_id() + 3))
        )
    )


@scenario(*LAYOUTS)
def all_reduce_many_small_and_one_large(lib: InJob, strategy: Any) -> Any:
    """Fused or not, each comes back in its own shape."""
    shapes = [(), (1,), (2, 3), (0, 4), (129,)]

    def replica_fn() -> Any:
        values = [lib.constant(np.full(shape, 2.0)) * lib.replica_number() for shape in shapes]
        return tuple(lib.context().all_reduce("SUM", values))

    values = lib.run(strategy, replica_fn)
    return [[list(v.shape), lib.reduce_sum(v)] for v in (_first(lib, value) for value in values)]


def _first(lib: InJob, value: Any) -> Any:
    return lib.job_strategy.experimental_local_results(value)[0]


@scenario(*LAYOUTS)
def all_reduce_of_mixed_types(lib: InJob, strategy: Any) -> Any:
    def replica_fn() -> Any:
        return tuple(
            lib.context().all_reduce(
                "SUM", [lib.replica_number(), lib.replica_id(), lib.constant(1.0)]
            )
        )

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS)
def all_reduce_with_options(lib: InJob, strategy: Any) -> Any:
    options = lib.experimental.CommunicationOptions(bytes_per_pack=1, timeout_seconds=30.0)
    return lib.local(
        lib.run(strategy, lambda: lib.context().all_reduce("SUM", lib.replica_number(), options))
    )


@scenario(*LAYOUTS)
def all_reduce_twice_in_a_step(lib: InJob, strategy: Any) -> Any:
    def replica_fn() -> Any:
        mean = lib.context().all_reduce("MEAN", lib.replica_number())
        off = lib.replica_number() - mean
        return off, lib.context().all_reduce("MEAN", off * off)

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS)
def all_reduce_of_a_variable(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        variable = lib.variable(2.0)
    return lib.local(
        lib.run(strategy, lambda: lib.context().all_reduce("SUM", variable * lib.replica_number()))
    )


@scenario(*LAYOUTS, axis=(0, 1))
def all_gather(lib: InJob, strategy: Any, axis: int) -> Any:
    def replica_fn() -> Any:
        value = lib.constant([[1.0, 2.0], [3.0, 4.0]]) * lib.replica_number()
        return lib.context().all_gather(value, axis=axis)

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS, eager_only=ONE_SHAPE)
def all_gather_uneven(lib: InJob, strategy: Any) -> Any:
    value = lib.by_replica([np.full((rows, 2), rows) for rows in (3, 1, 2, 1)])
    return lib.local(
        lib.run(strategy, lambda x: lib.context().all_gather(x, axis=0), args=(value,))
    )


@scenario(*LAYOUTS, eager_only=ONE_SHAPE)
def all_gather_with_an_empty_replica(lib: InJob, strategy: Any) -> Any:
    value = lib.by_replica([np.full((rows, 2), rows + 1) for rows in (2, 0, 1, 0)])
    return lib.local(
        lib.run(strategy, lambda x: lib.context().all_gather(x, axis=0), args=(value,))
    )


@scenario(*LAYOUTS)
def all_gather_structure(lib: InJob, strategy: Any) -> Any:
    def replica_fn() -> Any:
        x = lib.constant([1.0]) * lib.replica_number()
        return lib.context().all_gather({"a": x, "b": [x * 2.0]}, axis=0)

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS)
def all_gather_integers(lib: InJob, strategy: Any) -> Any:
    def replica_fn() -> Any:
        own = lib.constant([1, 2], "int32") * (lib.replica_id() + 1)
        return lib.context().all_gather(own, axis=0)

    return lib.local(lib.run(strategy, replica_fn))


@scenario(*LAYOUTS)
def all_gather_of_a_scalar(lib: InJob, strategy: Any) -> Any:
    return lib.refuses(
        lambda: lib.run(strategy, lambda: lib.context().all_gather(lib.replica_number(), axis=0))
    )


@scenario(*LAYOUTS, op=("SUM", "MEAN"))
@ours(
    "each replica contributes, even where all of a worker pass one array",
    [array(12.0), array(12.0)],
    strategy="2x2",
    op="SUM",
)
def all_reduce_of_one_shared_array(lib: InJob, strategy: Any, op: str) -> Any:
    shared = lib.constant(3.0)
    return lib.local(lib.run(strategy, lambda: lib.context().all_reduce(op, shared) + 0.0))
