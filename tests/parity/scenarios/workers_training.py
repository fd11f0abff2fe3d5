"""Training: gradients are summed over the replicas of all workers; metrics over all they saw."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._layout import LAYOUTS
from .._library import nothing
from .._registry import scenario
from .._worker import InJob

OPTIMIZERS = {
    "sgd": lambda lib: lib.sgd(0.1),
    "momentum": lambda lib: lib.sgd(0.1, momentum=0.9),
    "adam": lambda lib: lib.adam(0.1),
}


@scenario(*LAYOUTS, optimizer=tuple(OPTIMIZERS))
def steps(lib: InJob, strategy: Any, optimizer: str) -> Any:
    with strategy.scope():
        weights = [lib.Variable([10.0 + lib.worker, -20.0]), lib.Variable(5.0)]
        made = OPTIMIZERS[optimizer](lib)

    def replica_fn() -> Any:
        def loss() -> Any:
            products = weights[0] * weights[0] * lib.replica_number() + weights[1]
            return lib.reduce_sum(products) * 0.05

        value, gradients = lib.value_and_grad(loss, weights)
        made.apply_gradients(zip(gradients, weights, strict=True))
        return value

    losses = [lib.local(lib.run(strategy, replica_fn)) for _ in range(4)]
    return {
        "losses": losses,
        "weights": weights,
        "iterations": int(lib.to_numpy(made.iterations)),
    }


@scenario(*LAYOUTS, optimizer=("sgd", "adam"))
def linear_regression(lib: InJob, strategy: Any, optimizer: str) -> Any:
    """Twelve examples a step over all workers, with a last batch that does not divide."""
    examples = np.array([[i % 3, i % 5, 1] for i in range(17)], np.float32)
    targets = examples @ np.array([[2], [-1], [0.5]], np.float32)
    dataset = lib.data.Dataset.from_tensor_slices((examples, targets)).batch(12)
    distributed = strategy.experimental_distribute_dataset(dataset)
    with strategy.scope():
        weights = lib.Variable(np.full((3, 1), float(lib.worker), np.float32))
        made = OPTIMIZERS[optimizer](lib)

    def replica_fn(x: Any, y: Any) -> Any:
        def loss() -> Any:
            errors = lib.matmul(x, weights) - y
            per_example = lib.reduce_sum(errors * errors, axis=1)
            return lib.nn.compute_average_loss(per_example, global_batch_size=12)

        value, gradients = lib.value_and_grad(loss, [weights])
        made.apply_gradients(zip(gradients, [weights], strict=True))
        return value

    losses = []
    for _ in range(3):
        for x, y in distributed:
            losses.append(strategy.reduce("SUM", lib.run(strategy, replica_fn, (x, y)), axis=None))
    return {"losses": losses, "weights": weights}


@scenario(*LAYOUTS)
def twenty_steps(lib: InJob, strategy: Any) -> Any:
    """Two layers, Adam, and a last batch that leaves the last of four replicas without a row."""
    random = np.random.default_rng(0)
    examples = random.normal(size=(157, 4)).astype(np.float32)
    targets = np.sin(examples.sum(axis=1, keepdims=True))
    starts = [random.normal(size=shape).astype(np.float32) * 0.3 for shape in ((4, 8), (8, 1))]
    dataset = lib.data.Dataset.from_tensor_slices((examples, targets)).batch(8)
    with strategy.scope():
        weights = [lib.Variable(start) for start in starts]
        made = lib.adam(0.05)

    def replica_fn(x: Any, y: Any) -> Any:
        def loss() -> Any:
            hidden = lib.matmul(x, weights[0])
            errors = lib.matmul(hidden * hidden, weights[1]) - y
            per_example = lib.reduce_sum(errors * errors, axis=1)
            # Large, because TensorFlow's Adam adds its epsilon at another place.
            return lib.nn.compute_average_loss(per_example * 1e3, global_batch_size=8)

        value, gradients = lib.value_and_grad(loss, weights)
        made.apply_gradients(zip(gradients, weights, strict=True))
        return value

    losses = []
    for x, y in strategy.experimental_distribute_dataset(dataset):
        losses.append(strategy.reduce("SUM", lib.run(strategy, replica_fn, (x, y)), axis=None))
    return {
        "losses": [float(lib.to_numpy(each)) for each in losses],
        "weights": [lib.to_numpy(lib.copies(each)[0]).tolist() for each in weights],
    }


@scenario(*LAYOUTS)
def losses(lib: InJob, strategy: Any) -> Any:
    def replica_fn() -> Any:
        own = lib.constant([1.0, 2.0]) * lib.replica_number()
        return (
            lib.nn.compute_average_loss(own),
            lib.nn.compute_average_loss(own, global_batch_size=4),
            lib.nn.scale_regularization_loss(own),
        )

    return lib.local(lib.run(strategy, replica_fn))


METRICS = {
    "Mean": lambda lib: (lib.constant([1.0, 2.0, 6.0]) * lib.replica_number(),),
    "Sum": lambda lib: (lib.constant([1.0, 2.0, 6.0]) * lib.replica_number(),),
    "SparseCategoricalAccuracy": lambda lib: (
        lib.constant([0, 2, 2], "int32") - lib.cast(lib.replica_id() % 2, "int32"),
        lib.constant([[0.9, 0.05, 0.05], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1]]),
    ),
    "MeanSquaredError": lambda lib: (
        lib.constant([1.0, 2.0, 3.0]),
        lib.constant([1.0, 1.0, 2.0]) * lib.replica_number(),
    ),
}


@scenario(*LAYOUTS, metric=tuple(METRICS))
def metrics(lib: InJob, strategy: Any, metric: str) -> Any:
    with strategy.scope():
        made = getattr(lib.metrics, metric)()

    def replica_fn() -> None:
        made.update_state(*METRICS[metric](lib))

    lib.run(strategy, replica_fn)
    first = lib.observe(made.result())
    lib.run(strategy, replica_fn)
    second = lib.observe(made.result())
    made.reset_state()
    return {"first": first, "second": second, "reset": made.result()}


@scenario(*LAYOUTS)
def metric_result_inside_a_replica_is_local(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        made = lib.metrics.Mean()

    def replica_fn() -> Any:
        made.update_state(lib.replica_number())
        return made.result()

    return {"inside": lib.local(lib.run(strategy, replica_fn)), "outside": made.result()}


@scenario(*LAYOUTS, eager_only="compiled replicas have one shape")
def metric_of_uneven_replicas(lib: InJob, strategy: Any) -> Any:
    with strategy.scope():
        made = lib.metrics.Mean()
    value = lib.by_replica([[1.0, 2.0, 3.0], [10.0], [], [4.0, 4.0]])
    lib.run(strategy, lambda x: nothing(made.update_state(x)), args=(value,))
    return made.result()
