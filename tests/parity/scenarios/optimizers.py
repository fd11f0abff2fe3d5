"""Training steps: gradients are summed over replicas and applied once to each variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._expected import array, mirrored_variable
from .._layout import LAYOUTS
from .._library import Library, nothing
from .._registry import ours, scenario

KINDS = ("default", "one_device", "mirrored2", "mirrored4", "central2")

OPTIMIZERS = {
    "sgd": lambda lib: lib.sgd(0.1),
    "momentum": lambda lib: lib.sgd(0.1, momentum=0.9),
    "adam": lambda lib: lib.adam(0.1),
}


def _count(lib: Library, optimizer: Any) -> int:
    return int(lib.to_numpy(optimizer.iterations))


@scenario(*KINDS, optimizer=tuple(OPTIMIZERS))
def steps_in_replica_context(lib: Library, strategy: Any, optimizer: str) -> Any:
    with strategy.scope():
        weights = [lib.Variable([10.0, -20.0]), lib.Variable(5.0)]
        made = OPTIMIZERS[optimizer](lib)

    def replica_fn() -> Any:
        def loss() -> Any:
            products = weights[0] * weights[0] * lib.replica_number() + weights[1]
            return lib.reduce_sum(products) * 0.05

        value, gradients = lib.value_and_grad(loss, weights)
        made.apply_gradients(zip(gradients, weights, strict=True))
        return value

    losses = [lib.run(strategy, replica_fn) for _ in range(4)]
    return {"losses": losses, "weights": weights, "iterations": _count(lib, made)}


@scenario("mirrored2", "one_device", optimizer=tuple(OPTIMIZERS))
def built_beforehand(lib: Library, strategy: Any, optimizer: str) -> Any:
    with strategy.scope():
        weight = lib.Variable([10.0, -20.0])
        made = OPTIMIZERS[optimizer](lib)
        made.build([weight])

    def replica_fn() -> None:
        gradient = lib.constant([1.0, 2.0]) * lib.replica_number()
        made.apply_gradients([(gradient, weight)])

    for _ in range(3):
        lib.run(strategy, replica_fn)
    return {"weight": weight, "iterations": _count(lib, made)}


_AFTER_TWO_STEPS = {"sgd": [9.8, -20.4], "momentum": [9.71, -20.58], "adam": [9.8, -20.2]}


@scenario("mirrored2", "one_device", "default", optimizer=tuple(OPTIMIZERS))
@ours(
    "gradients may be applied in cross-replica context, once",
    lambda optimizer, **_: {
        "outcomes": [None, None],
        "weight": mirrored_variable(_AFTER_TWO_STEPS[optimizer]),
    },
    strategy="mirrored2",
)
@ours(
    "gradients may be applied in cross-replica context, once",
    lambda optimizer, **_: {
        "outcomes": [None, None],
        "weight": {**array(_AFTER_TWO_STEPS[optimizer]), "kind": "Variable"},
    },
    strategy="one_device",
)
def steps_in_cross_replica_context(lib: Library, strategy: Any, optimizer: str) -> Any:
    with strategy.scope():
        weight = lib.Variable([10.0, -20.0])
        made = OPTIMIZERS[optimizer](lib)

        def step() -> None:
            made.apply_gradients([(lib.constant([1.0, 2.0]), weight)])

        outcomes = [lib.outcome(step) for _ in range(2)]
    return {"outcomes": outcomes, "weight": weight}


@scenario("mirrored2", "mirrored3", *LAYOUTS)
def replicas_with_the_same_gradient(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        weight = lib.Variable(10.0)
        made = lib.sgd(0.5)
    lib.run(strategy, lambda: nothing(made.apply_gradients([(lib.constant(1.0), weight)])))
    return weight


@scenario("mirrored2", "default")
def one_gradient_is_missing(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        weights = [lib.Variable(10.0), lib.Variable(20.0)]
        made = lib.sgd(0.5)

    def replica_fn() -> None:
        made.apply_gradients([(lib.replica_number(), weights[0]), (None, weights[1])])

    outcome = lib.outcome(lambda: lib.run(strategy, replica_fn))
    return {"outcome": outcome, "weights": weights}


@scenario("mirrored2", "default", case=("empty", "all_none"))
@ours("an empty list is nothing to do, as with TensorFlow's older optimizers", None, case="empty")
def no_gradients_at_all(lib: Library, strategy: Any, case: str) -> Any:
    with strategy.scope():
        weight = lib.Variable(10.0)
        made = lib.sgd(0.5)
    pairs = [] if case == "empty" else [(None, weight)]
    return lib.outcome(lambda: lib.run(strategy, lambda: nothing(made.apply_gradients(pairs))))


@scenario("mirrored2", "mirrored4", "one_device")
def linear_regression(lib: Library, strategy: Any) -> Any:
    """A whole small training loop: the replicas together see one batch of eight examples."""
    replicas = strategy.num_replicas_in_sync
    examples = np.array([[i % 3, i % 5, 1] for i in range(8)], np.float32)
    targets = examples @ np.array([[2], [-1], [0.5]], np.float32)
    with strategy.scope():
        weights = lib.Variable(np.zeros((3, 1), np.float32))
        made = lib.sgd(0.1)
    inputs = lib.per_replica(strategy, np.split(examples, replicas))
    outputs = lib.per_replica(strategy, np.split(targets, replicas))

    def replica_fn(x: Any, y: Any) -> Any:
        def loss() -> Any:
            errors = lib.matmul(x, weights) - y
            per_example = lib.reduce_sum(errors * errors, axis=1)
            return lib.nn.compute_average_loss(per_example, global_batch_size=8)

        value, gradients = lib.value_and_grad(loss, [weights])
        made.apply_gradients(zip(gradients, [weights], strict=True))
        return value

    losses = []
    for _ in range(5):
        per_replica = lib.run(strategy, replica_fn, args=(inputs, outputs))
        losses.append(strategy.reduce("SUM", per_replica, axis=None))
    return {"losses": losses, "weights": weights}


@scenario("mirrored2")
def variables_of_an_optimizer_made_outside(lib: Library, strategy: Any) -> Any:
    made = lib.sgd(0.5)
    with strategy.scope():
        weight = lib.Variable(10.0)
    outcome = lib.outcome(
        lambda: lib.run(
            strategy, lambda: nothing(made.apply_gradients([(lib.replica_number(), weight)]))
        )
    )
    return {"outcome": outcome, "weight": weight}
