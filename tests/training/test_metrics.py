"""Metrics over replicas: what the same metric gives for all data at once."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.replicas import by_replica, context, mirrored, parts_of

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(24, 4)).astype(np.float32)
CLASSES = RNG.integers(0, 4, size=24)
NUMBERS = RNG.normal(size=24).astype(np.float32)
WEIGHTS = RNG.integers(0, 3, size=24).astype(np.float32)
ONE_HOT = np.eye(4, dtype=np.float32)[CLASSES]

# name: how to make it, the columns of data, and what it is on all data with weights.
Case = tuple[Callable[[], Any], tuple[np.ndarray, ...], Callable[[np.ndarray], Any]]
TOP2 = np.array([c in np.argsort(-s)[:2] for c, s in zip(CLASSES, SCORES, strict=True)])
CASES: dict[str, Case] = {
    "mean": (rx.metrics.Mean, (NUMBERS,), lambda w: np.average(NUMBERS, weights=w)),
    "sum": (rx.metrics.Sum, (NUMBERS,), lambda w: np.sum(NUMBERS * w)),
    "accuracy": (
        rx.metrics.Accuracy,
        (CLASSES, (CLASSES + (NUMBERS > 0)) % 4),
        lambda w: np.average(NUMBERS <= 0, weights=w),
    ),
    "sparse": (
        rx.metrics.SparseCategoricalAccuracy,
        (CLASSES, SCORES),
        lambda w: np.average(SCORES.argmax(1) == CLASSES, weights=w),
    ),
    "categorical": (
        rx.metrics.CategoricalAccuracy,
        (ONE_HOT, SCORES),
        lambda w: np.average(SCORES.argmax(1) == CLASSES, weights=w),
    ),
    "top_k": (
        lambda: rx.metrics.SparseTopKCategoricalAccuracy(k=2),
        (CLASSES, SCORES),
        lambda w: np.average(TOP2, weights=w),
    ),
    "binary": (
        rx.metrics.BinaryAccuracy,
        ((NUMBERS > 0).astype(np.float32), SCORES[:, 0]),
        lambda w: np.average((NUMBERS > 0) == (SCORES[:, 0] > 0.5), weights=w),
    ),
    "mse": (
        rx.metrics.MeanSquaredError,
        (NUMBERS, SCORES[:, 0]),
        lambda w: np.average((NUMBERS - SCORES[:, 0]) ** 2, weights=w),
    ),
    "mae": (
        rx.metrics.MeanAbsoluteError,
        (NUMBERS, SCORES[:, 0]),
        lambda w: np.average(np.abs(NUMBERS - SCORES[:, 0]), weights=w),
    ),
    "rmse": (
        rx.metrics.RootMeanSquaredError,
        (NUMBERS, SCORES[:, 0]),
        lambda w: np.sqrt(np.average((NUMBERS - SCORES[:, 0]) ** 2, weights=w)),
    ),
}


def uneven_cuts(count: int, rows: int = 24) -> list[int]:
    """Cuts that give the last replicas less, the very last nothing."""
    return [min(rows, index * (rows // count + 1)) for index in range(count)] + [rows]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_metric_of_all_data(name: str, weighted: bool, executor: Any):
    strategy = mirrored(3)
    make, columns, on_all = CASES[name]
    with strategy.scope():
        metric = make()
    cuts = uneven_cuts(3)

    def step(data: Any, weights: Any) -> None:
        metric.update_state(*data, sample_weight=weights if weighted else None)

    def rows(column: np.ndarray) -> Any:
        return by_replica(strategy, lambda i: jnp.asarray(column[cuts[i] : cuts[i + 1]]))

    executor.run(strategy, step, ([rows(column) for column in columns], rows(WEIGHTS)))
    expected = on_all(WEIGHTS if weighted else np.ones(24, np.float32))
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-4)
    metric.reset_state()
    assert metric.result() == 0.0


def test_every_strategy_gives_the_same(strategy: Any, executor: Any):
    with strategy.scope():
        metric = rx.metrics.SparseCategoricalAccuracy()
    cuts = uneven_cuts(strategy.num_replicas_in_sync)
    labels = by_replica(strategy, lambda i: jnp.asarray(CLASSES[cuts[i] : cuts[i + 1]]))
    scores = by_replica(strategy, lambda i: jnp.asarray(SCORES[cuts[i] : cuts[i + 1]]))
    update = executor.step(strategy, metric.update_state)
    for _ in range(2):
        update(labels, scores)
    np.testing.assert_allclose(metric.result(), np.mean(SCORES.argmax(1) == CLASSES), rtol=1e-5)


@settings(max_examples=15)
@given(st.lists(st.lists(st.integers(-9, 9), max_size=4), min_size=2, max_size=2))
def test_the_mean_of_uneven_shares_is_the_mean_of_all(shares: list[list[int]]):
    strategy = mirrored(2)
    with strategy.scope():
        metric = rx.metrics.Mean()
    x = rx.distribute.PerReplica([jnp.array(share, jnp.float32) for share in shares])
    strategy.run(metric.update_state, (x,))
    everything = [number for share in shares for number in share]
    expected = np.mean(everything) if everything else 0.0
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5, atol=1e-6)


def test_the_result_inside_a_replica_is_its_own(strategy: Any, executor: Any):
    with strategy.scope():
        metric = rx.metrics.Mean()

    def step(x: Any) -> Any:
        metric.update_state(x)
        return metric.result()

    x = by_replica(strategy, lambda index: jnp.float32(index))
    result = executor.run(strategy, step, (x,))
    assert parts_of(strategy, result) == list(range(strategy.num_replicas_in_sync))
    assert metric.result() == (strategy.num_replicas_in_sync - 1) / 2


def test_a_reset_inside_replicas(strategy: Any, executor: Any):
    with strategy.scope():
        metric = rx.metrics.Sum()

    def step() -> None:
        metric.update_state(1.0)
        metric.reset_state()
        metric.update_state(3.0)

    executor.run(strategy, step)
    assert metric.result() == 3.0 * strategy.num_replicas_in_sync


def test_a_metric_of_ones_own(strategy: Any, executor: Any):
    class Largest(rx.metrics.Metric):
        def __init__(self) -> None:
            super().__init__("counts")
            self.counts = self.add_weight("counts", shape=(4,))

        def update_state(self, labels: Any) -> None:
            self.counts.assign_add(jnp.zeros(4).at[labels].add(1.0))

        def _result(self) -> Any:
            return jnp.argmax(self.counts.read_value())

    with strategy.scope():
        metric = Largest()
    labels = by_replica(strategy, lambda index: jnp.array([2, 2, index % 4]))
    executor.run(strategy, metric.update_state, (labels,))
    assert metric.result() == 2
    assert metric.variables == [metric.counts]


def test_several_values_per_example_count_each():
    metric = rx.metrics.MeanSquaredError()
    metric.update_state(jnp.zeros((2, 2)), jnp.array([[1.0, 3.0], [5.0, 7.0]]))
    assert metric.result() == (1 + 9 + 25 + 49) / 4
    metric.reset_state()
    metric.update_state(
        jnp.zeros((2, 2)), jnp.array([[1.0, 3.0], [5.0, 7.0]]), sample_weight=jnp.array([1.0, 0.0])
    )
    assert metric.result() == 5.0


def test_calling_a_metric_adds_and_gives_the_result():
    metric = rx.metrics.Mean()
    assert metric([1.0, 3.0]) == 2.0
    assert metric(8.0) == 4.0


def test_losses_are_averaged_over_the_global_batch(strategy: Any, executor: Any):
    count = strategy.num_replicas_in_sync
    losses = by_replica(strategy, lambda index: jnp.arange(3.0) + index)

    def step(losses: Any) -> Any:
        return (
            rx.nn.compute_average_loss(losses),
            rx.nn.compute_average_loss(losses, sample_weight=jnp.array([1.0, 0.0, 2.0])),
            rx.nn.compute_average_loss(losses, global_batch_size=30),
            rx.nn.scale_regularization_loss(jnp.array([1.0, 2.0])),
            context().num_replicas_in_sync,
        )

    own, weighted, sized, scaled, _ = executor.run(strategy, step, (losses,))
    everything = np.concatenate([np.arange(3.0) + index for index in range(count)])
    np.testing.assert_allclose(sum(parts_of(strategy, own)), everything.mean(), rtol=1e-5)
    weights = np.tile([1.0, 0.0, 2.0], count)
    np.testing.assert_allclose(
        sum(parts_of(strategy, weighted)), (everything * weights).mean(), rtol=1e-5
    )
    np.testing.assert_allclose(sum(parts_of(strategy, sized)), everything.sum() / 30, rtol=1e-5)
    np.testing.assert_allclose(sum(parts_of(strategy, scaled)), 3.0, rtol=1e-5)


def test_an_empty_share_has_no_loss(strategy: Any, executor: Any):
    result = executor.run(
        strategy, lambda: rx.nn.compute_average_loss(jnp.zeros(0), global_batch_size=4)
    )
    assert parts_of(strategy, result) == [0.0] * strategy.num_replicas_in_sync
    result = executor.run(strategy, lambda: rx.nn.compute_average_loss(jnp.zeros(0)))
    assert parts_of(strategy, result) == [0.0] * strategy.num_replicas_in_sync


ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)


@pytest.mark.parametrize(
    ("weight", "total", "mean"),
    [
        (None, 21.0, 3.5),
        (2.0, 42.0, 3.5),
        ([1.0, 2.0, 5.0], 72.0, 4.5),
        ([[1.0], [2.0], [5.0]], 72.0, 4.5),
        ([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]], 27.0, 4.5),
        ([[3.0, 0.0]], 27.0, 3.0),
    ],
)
def test_a_weight_for_each_example_or_value(weight: Any, total: float, mean: float):
    for ours, wanted in ((rx.metrics.Sum(), total), (rx.metrics.Mean(), mean)):
        ours.update_state(ROWS, weight)
        assert float(ours.result()) == pytest.approx(wanted)


def test_the_values_of_an_example_count_once_however_many_there_are():
    metric = rx.metrics.Mean()
    metric.update_state([[1.0, 2.0]])
    metric.update_state([3.0])
    assert float(metric.result()) == 2.25  # as in Keras
    metric.update_state(6.0)
    assert float(metric.result()) == 3.5


def test_equal_scores_are_among_the_best_together():
    metric = rx.metrics.SparseTopKCategoricalAccuracy(k=1)
    metric.update_state([0, 1, 2], jnp.array([[1, 1, 0]] * 3))
    assert float(metric.result()) == pytest.approx(2 / 3)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", "bfloat16"])
def test_errors_of_short_numbers_do_not_overflow(dtype: str):
    y_true, y_pred = jnp.array([[0], [1]], dtype), jnp.array([[100], [0]], dtype)
    difference = np.asarray(y_pred, np.float32) - np.asarray(y_true, np.float32)
    for name, wanted in (("Squared", difference**2), ("Absolute", np.abs(difference))):
        metric = getattr(rx.metrics, f"Mean{name}Error")()
        metric.update_state(y_true, y_pred)
        assert float(metric.result()) == np.mean(wanted)
