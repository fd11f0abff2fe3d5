"""Workers whose replicas have different numbers of rows run one program, as one process does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

from ..processes import result, run_workers
from ..under_test import cpus

ROWS, BATCH, WORKERS, LOCAL = 37, 10, 2, 2
POINTS = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)


def _shared_out(strategy: Any) -> Any:
    """Last shares of 2, 2, 2, 1."""
    dataset = rx.data.Dataset.from_tensor_slices(POINTS).batch(BATCH)
    return strategy.experimental_distribute_dataset(dataset)


def _by_each_worker(strategy: Any) -> Any:
    """The first worker has 25 rows, and the second 12: there are empty shares at the end."""

    def dataset_of(input_context: Any) -> Any:
        rows = np.split(POINTS, [25])[input_context.input_pipeline_id]
        return rx.data.Dataset.from_tensor_slices(rows).batch(3)

    return strategy.distribute_datasets_from_function(dataset_of)


def _made(strategy: Any) -> Any:
    def share(value_context: Any) -> Any:
        start = value_context.replica_id_in_sync_group * 3
        return jnp.asarray(POINTS[start : start + 3] if start < 9 else POINTS[start : start + 1])

    return [strategy.experimental_distribute_values_from_function(share)] * 2


def _learn(
    strategy: Any, batches: Any, compiled: bool = True
) -> tuple[list[float], Any, float, list[str]]:
    with strategy.scope():
        w = rx.Variable(np.linspace(-1, 1, 4, dtype=np.float32))
        optimizer = rx.Optimizer(optax.adam(0.1))
        mean = rx.metrics.Mean()

    def replica_step(x: Any) -> Any:
        def loss_fn() -> Any:
            errors = (jnp.tanh(x * w).sum(-1) - x[:, 0]) ** 2
            mean.update_state(errors)
            return rx.nn.compute_average_loss(errors, global_batch_size=BATCH)

        loss, gradients = rx.value_and_grad(loss_fn, [w])
        optimizer.apply_gradients(zip(gradients, [w], strict=True))
        context: Any = rx.distribute.get_replica_context()
        return loss if context.replica_id_in_sync_group == 3 else loss * 1.0

    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_step, args=(x,)), axis=None)

    called: Any = rx.function(step) if compiled else step
    losses, how = [], []
    for x in batches:
        losses.append(float(called(x)))
        if compiled:
            how.append(str(called.explain(x)).splitlines()[1].split(maxsplit=1)[1])
    return losses, w.numpy(), float(mean.result()), how


CASES: dict[str, Callable[[Any], Any]] = {
    "shared out": _shared_out,
    "by each worker": _by_each_worker,
    "made": _made,
}


def _of_all_cases() -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    for name, batches in CASES.items():
        result(name, _learn(strategy, batches(strategy)))
    result("eager", _learn(strategy, _by_each_worker(strategy), compiled=False))


def test_workers_with_uneven_shares_learn_what_one_process_learns() -> None:
    """One job goes through all cases."""
    first, second = run_workers(_of_all_cases, WORKERS, devices=LOCAL)
    for name, batches in CASES.items():
        losses, weights, mean, how = first.results[name]
        assert second.results[name] == first.results[name]
        assert set(how) == {"as one program"}, name
        expected = first.results["eager"]
        if name != "by each worker":  # of which one process has others
            strategy = rx.distribute.MirroredStrategy(cpus(WORKERS * LOCAL))
            expected = _learn(strategy, batches(strategy))
        np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
        np.testing.assert_allclose(weights, expected[1], rtol=1e-5)
        np.testing.assert_allclose(mean, expected[2], rtol=1e-5)
