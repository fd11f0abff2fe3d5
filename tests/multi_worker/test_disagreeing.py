"""Workers whose calls are not the same: nobody hangs, and nobody goes on with wrong numbers."""

import signal

import jax.numpy as jnp
import pytest

import replicax as rx
from tests.processes import workers

# Where sizes differ, gloo may notice before we do, and end the process in its own way.
GLOO_FIRST = "Is there a distributed collective mismatch in your code?"


def _joined():
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    strategy.reduce("SUM", strategy.run(lambda: jnp.ones(1)), axis=None)
    return strategy, strategy.cluster_resolver.task_id


def _finish(strategy):
    # Whoever is told late goes through the next meetings first.
    for _ in range(1000):
        strategy.reduce("SUM", strategy.run(lambda: jnp.ones(3)), axis=None)


def _shapes() -> None:
    strategy, worker = _joined()
    strategy.reduce("SUM", strategy.run(lambda: jnp.ones(4 + worker)), axis=None)
    _finish(strategy)


def _types() -> None:
    strategy, worker = _joined()
    dtype = "float32" if worker else "int32"
    strategy.reduce("SUM", strategy.run(lambda: jnp.ones(4, dtype)), axis=None)
    _finish(strategy)


def _order() -> None:
    strategy, worker = _joined()
    value = strategy.run(lambda: jnp.ones((4, 1)))
    if worker:
        strategy.gather(value, axis=0)
    strategy.reduce("SUM", value, axis=None)
    if not worker:
        strategy.gather(value, axis=0)
    _finish(strategy)


@pytest.mark.parametrize(
    ("program", "zero", "one"),
    [
        (_shapes, "all_reduce_sum of float32[4]", "all_reduce_sum of float32[5]"),
        (_types, "all_reduce_sum of int32[4]", "all_reduce_sum of float32[4]"),
        (_order, "all_reduce_sum of float32[4, 1]", "gather"),
    ],
)
def test_the_job_ends_and_says_what_each_worker_did(program, zero: str, one: str):
    with workers(program, 2) as job:
        job.expect_exit(status=(1, -signal.SIGABRT))
    if any(GLOO_FIRST in worker.stderr for worker in job):
        return
    for worker in job:
        told = worker.stderr.partition("is not the same on all workers")[2]
        assert told.find(zero) < told.find(one), worker
        assert zero in told, worker
