"""Metrics keep sums and counts on each replica; ratios are taken after adding them up."""

from __future__ import annotations

from typing import Any

from .._library import Library, nothing
from .._registry import scenario

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "mirrored4", "central2")

LABELS = [0, 1, 2, 1]
SCORES = [[0.9, 0.05, 0.05], [0.1, 0.2, 0.7], [0.0, 0.1, 0.9], [0.3, 0.6, 0.1]]
ONE_HOT = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]

UPDATES = {
    "Mean": lambda lib: (lib.constant([1.0, 2.0, 6.0]) * lib.replica_number(),),
    "Sum": lambda lib: (lib.constant([1.0, 2.0, 6.0]) * lib.replica_number(),),
    "Accuracy": lambda lib: (
        lib.constant(LABELS, "int32"),
        lib.constant([0, 0, 2, 1], "int32") + lib.replica_id(),
    ),
    "SparseCategoricalAccuracy": lambda lib: (
        lib.constant(LABELS, "int32") - lib.replica_id(),
        lib.constant(SCORES),
    ),
    "CategoricalAccuracy": lambda lib: (lib.constant(ONE_HOT), lib.constant(SCORES)),
    "BinaryAccuracy": lambda lib: (
        lib.constant([1.0, 0.0, 1.0, 0.0]),
        lib.constant([0.2, 0.3, 0.6, 0.1]) * lib.replica_number(),
    ),
    "MeanSquaredError": lambda lib: (
        lib.constant([1.0, 2.0, 3.0, 4.0]),
        lib.constant([1.0, 1.0, 2.0, 4.0]) * lib.replica_number(),
    ),
    "MeanAbsoluteError": lambda lib: (
        lib.constant([1.0, 2.0, 3.0, 4.0]),
        lib.constant([1.0, 1.0, 2.0, 4.0]) * lib.replica_number(),
    ),
}


@scenario("default", "mirrored2", "mirrored3", metric=tuple(UPDATES))
def update_in_replicas(lib: Library, strategy: Any, metric: str) -> Any:
    with strategy.scope():
        made = getattr(lib.metrics, metric)()

    def replica_fn() -> None:
        made.update_state(*UPDATES[metric](lib))

    lib.run(strategy, replica_fn)
    first = lib.observe(made.result())
    lib.run(strategy, replica_fn)
    second = lib.observe(made.result())
    made.reset_state()
    return {"first": first, "second": second, "reset": made.result()}


@scenario("mirrored2", "one_device", metric=("Mean", "Sum", "SparseCategoricalAccuracy"))
def update_with_sample_weights(lib: Library, strategy: Any, metric: str) -> Any:
    with strategy.scope():
        made = getattr(lib.metrics, metric)()
    weights = [0.5, 1.0, 2.0] if metric in ("Mean", "Sum") else [0.5, 1.0, 2.0, 0.0]

    def replica_fn() -> None:
        sample_weight = lib.constant(weights) * lib.replica_number()
        made.update_state(*UPDATES[metric](lib), sample_weight=sample_weight)

    lib.run(strategy, replica_fn)
    return made.result()


@scenario("mirrored2", "mirrored3", eager_only="compiled replicas have one shape")
def mean_over_uneven_replicas(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        made = lib.metrics.Mean()
    value = lib.per_replica(strategy, [[1.0, 2.0, 3.0], [10.0], []])
    lib.run(strategy, lambda x: nothing(made.update_state(x)), args=(value,))
    return made.result()


@scenario("mirrored2", "one_device")
def result_inside_a_replica_is_local(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        made = lib.metrics.Mean()

    def replica_fn() -> Any:
        made.update_state(lib.replica_number())
        return made.result()

    return {"inside": lib.run(strategy, replica_fn), "outside": made.result()}


@scenario("default", "mirrored2", metric=("Mean", "Sum", "Accuracy"))
def result_before_any_update(lib: Library, strategy: Any, metric: str) -> Any:
    with strategy.scope():
        return getattr(lib.metrics, metric)().result()


@scenario("default", "mirrored2")
def mean_of_scalars(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        made = lib.metrics.Mean(name="loss")
    for _ in range(3):
        lib.run(strategy, lambda: nothing(made.update_state(lib.replica_number())))
    return {"result": made.result(), "name": made.name}


@scenario("mirrored2", metric=("Mean", "Sum"))
def update_in_cross_replica_context(lib: Library, strategy: Any, metric: str) -> Any:
    with strategy.scope():
        made = getattr(lib.metrics, metric)()
        outcome = lib.outcome(lambda: nothing(made.update_state(lib.constant([1.0, 2.0]))))
        return {"outcome": outcome, "result": made.result()}


@scenario("mirrored2")
def made_outside_the_scope(lib: Library, strategy: Any) -> Any:
    made = lib.metrics.Mean()
    lib.run(strategy, lambda: nothing(made.update_state(lib.replica_number())))
    return made.result()
