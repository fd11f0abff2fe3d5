"""A small model for the tests of estimators: a straight line through points, in the old shape."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx
from replicax.compat.v1 import estimator
from replicax.compat.v1.estimator import EstimatorSpec, ModeKeys
from tests.under_test import cpus

BATCH = 8  # rows of all replicas together
ROWS = 4 * BATCH
X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
Y = X @ np.array([1.0, -2.0, 3.0], np.float32) + 0.5
START = np.array([0.5, 1.0, -1.0], np.float32)  # of the weights; no random numbers to compile


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
    w = rx.Variable(START, name="line/w")
    b = rx.Variable(0.0, name="line/b")
    predicted = features["x"] @ w + b
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": predicted, "x": features["x"]})
    loss = jnp.mean((predicted - labels) ** 2)
    error = rx.metrics.MeanAbsoluteError()
    error.update_state(labels, predicted)
    return EstimatorSpec(
        mode,
        loss=loss,
        train_op=rx.Optimizer(optimizer_of(params["rate"])) if mode == ModeKeys.TRAIN else None,
        eval_metric_ops={"error": error},
    )


def optimizer_of(rate: float) -> optax.GradientTransformation:
    """One with a state, which compiles quickly."""
    return optax.sgd(rate, momentum=0.9)


def points(rows: int) -> Callable[..., rx.data.Dataset]:
    """An input_fn over the first `rows` points, in batches of a replica's size."""

    def input_fn(input_context: rx.distribute.InputContext) -> rx.data.Dataset:
        dataset = rx.data.Dataset.from_tensor_slices(({"x": X[:rows]}, Y[:rows]))
        return dataset.batch(input_context.get_per_replica_batch_size(BATCH))

    return input_fn


def fixed_batch() -> Any:
    """An input_fn of arrays: the same batch in every step."""
    return {"x": X[:BATCH]}, Y[:BATCH]


def mirrored(replicas: int) -> Any:
    """A strategy; None for 0: the estimator without one."""
    return rx.distribute.MirroredStrategy(cpus(replicas)) if replicas else None


def line(folder: Path, replicas: int = 0, rate: float = 0.1, **config: Any) -> estimator.Estimator:
    """An estimator of the model, which trains and evaluates on so many replicas."""
    strategy = mirrored(replicas)
    run_config = estimator.RunConfig(train_distribute=strategy, eval_distribute=strategy, **config)
    return estimator.Estimator(model_fn, folder, run_config, params={"rate": rate})


class Losses(estimator.SessionRunHook):
    """Keeps the steps and losses that it sees."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.losses: list[float] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.steps.append(run_values.results["global_step"])
        self.losses.append(float(run_values.results["loss"]))


def losses_of(model: estimator.Estimator, input_fn: Any, **limits: Any) -> list[float]:
    """Trains, and returns the losses of the steps."""
    hook = Losses()
    model.train(input_fn, hooks=[hook], **limits)
    return hook.losses


def losses_by_hand(rows: int, rate: float = 0.1, passes: int = 1) -> tuple[list[float], np.ndarray]:
    """The losses of training in plain JAX, and the weights after it."""
    parameters: Any = (START, jnp.float32(0))
    optimizer = optimizer_of(rate)
    state = optimizer.init(parameters)
    losses = []

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ parameters[0] + parameters[1] - y) ** 2)

    for start in [*range(0, rows, BATCH)] * passes:
        end = min(start + BATCH, rows)
        loss, gradients = jax.value_and_grad(loss_of)(parameters, X[start:end], Y[start:end])
        updates, state = optimizer.update(gradients, state)
        parameters = optax.apply_updates(parameters, updates)
        losses.append(float(loss))
    return losses, np.asarray(parameters[0])
