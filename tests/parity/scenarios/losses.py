"""`compute_average_loss` and `scale_regularization_loss`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._library import Library
from .._registry import scenario

KINDS = ("default", "one_device", "mirrored1", "mirrored2", "mirrored3", "mirrored4", "central2")

LOSSES = {
    "plain": {},
    "global_batch": {"global_batch_size": 10},
    "weights": {"sample_weight": [1.0, 0.5, 2.0]},
    "weights_and_batch": {"sample_weight": [1.0, 0.0, 2.0], "global_batch_size": 6},
}


@scenario("default", "mirrored1", "mirrored2", "mirrored4", case=tuple(LOSSES))
def compute_average_loss(lib: Library, strategy: Any, case: str) -> Any:
    def replica_fn() -> Any:
        losses = lib.constant([1.0, 2.0, 6.0]) * lib.replica_number()
        return lib.nn.compute_average_loss(losses, **LOSSES[case])

    per_replica = lib.run(strategy, replica_fn)
    return {"loss": per_replica, "total": strategy.reduce("SUM", per_replica, axis=None)}


SHAPES = {
    "matrix": np.array([[1, 2], [3, 6]], np.float32),
    "empty": np.zeros((0,), np.float32),
    "integers": np.array([1, 2, 5], np.int32),
    "list": [1.0, 2.0],
    "scalar": np.float32(3),
}


@scenario("mirrored2", "default", shape=tuple(SHAPES))
def average_of_other_shapes(lib: Library, strategy: Any, shape: str) -> Any:
    return lib.outcome(
        lambda: lib.run(
            strategy, lambda: lib.nn.compute_average_loss(SHAPES[shape], global_batch_size=4)
        )
    )


@scenario("mirrored2", shape=("matrix", "empty", "integers", "list", "scalar"))
def average_without_a_batch_size(lib: Library, strategy: Any, shape: str) -> Any:
    return lib.outcome(
        lambda: lib.run(strategy, lambda: lib.nn.compute_average_loss(SHAPES[shape]))
    )


BATCH_SIZES = {"zero": 0, "negative": -3, "float": 4.0, "text": "4", "array": np.int32(4)}


@scenario("mirrored2", "default", size=tuple(BATCH_SIZES))
def average_with_other_batch_sizes(lib: Library, strategy: Any, size: str) -> Any:
    losses = np.array([1, 2], np.float32)
    return lib.outcome(
        lambda: lib.run(
            strategy,
            lambda: lib.nn.compute_average_loss(losses, global_batch_size=BATCH_SIZES[size]),
        )
    )


@scenario("mirrored2")
def average_with_weights_of_another_shape(lib: Library, strategy: Any) -> Any:
    losses, weights = np.array([1, 2, 3], np.float32), np.array([1, 2], np.float32)
    return lib.outcome(
        lambda: lib.run(
            strategy, lambda: lib.nn.compute_average_loss(losses, sample_weight=weights)
        )
    )


@scenario("mirrored2", "one_device", "default", function=("average", "regularization"))
def losses_in_cross_replica_context(lib: Library, strategy: Any, function: str) -> Any:
    losses = lib.constant([1.0, 2.0])

    def call() -> Any:
        if function == "average":
            return lib.nn.compute_average_loss(losses, global_batch_size=4)
        return lib.nn.scale_regularization_loss(losses)

    with strategy.scope():
        return lib.outcome(call)


@scenario(function=("average", "regularization"))
def losses_outside_any_strategy(lib: Library, function: str) -> Any:
    losses = lib.constant([1.0, 2.0])
    if function == "average":
        return lib.nn.compute_average_loss(losses)
    return lib.nn.scale_regularization_loss(losses)


@scenario(*KINDS, shape=("scalar", "vector"))
def scale_regularization_loss(lib: Library, strategy: Any, shape: str) -> Any:
    loss = lib.constant(6.0 if shape == "scalar" else [6.0, 12.0])
    return lib.run(strategy, lambda: lib.nn.scale_regularization_loss(loss))


@scenario("mirrored2", "mirrored4")
def gradients_add_up_to_one_big_batch(lib: Library, strategy: Any) -> Any:
    """Divided by the global batch size, the replicas' gradients sum to that of the whole batch."""
    with strategy.scope():
        weight = lib.Variable([2.0, 1.0])

    def replica_fn() -> Any:
        batch = lib.constant([[1.0, 2.0], [3.0, 4.0]]) * lib.replica_number()

        def loss() -> Any:
            per_example = lib.reduce_sum(batch * weight * weight, axis=1)
            return lib.nn.compute_average_loss(per_example)

        return lib.value_and_grad(loss, [weight])[1][0]

    return strategy.reduce("SUM", lib.run(strategy, replica_fn), axis=None)
