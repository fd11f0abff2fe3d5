"""`rx.compat.v1.distribute` over several workers."""

from typing import Any

import jax.numpy as jnp
import pytest

import replicax as rx
from tests.old_names import with_old_names
from tests.processes import result, run_workers


def _program() -> None:
    strategy: Any = rx.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy("RING")
    result("replicas", strategy.num_replicas_in_sync)

    def rows(value: Any) -> list[list[int]]:
        return [part.tolist() for part in strategy.experimental_local_results(value)]

    # Every worker gets its part of the global batches, again after `initialize()`.
    iterator = strategy.make_dataset_iterator(rx.data.Dataset.range(16).batch(8))
    first = rows(strategy.experimental_run(lambda x: x, iterator))
    iterator.initialize()
    result("data set", [first, rows(strategy.experimental_run(lambda x: x, iterator))])

    # The second worker has fewer batches, and one too many for whole steps: it is fed nothing.
    def input_fn(context: Any) -> Any:
        count = (6, 3)[context.input_pipeline_id]
        result("context", [context.num_input_pipelines, context.num_replicas_in_sync])
        return rx.data.Dataset.range(count).batch(1)

    with strategy.scope():
        total = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)

    def replica_fn(x: Any) -> Any:
        total.assign_add(jnp.sum(x).astype(jnp.float32))
        return x

    iterator = strategy.make_input_fn_iterator(input_fn)
    steps = []
    while True:
        try:
            steps.append(rows(strategy.experimental_run(replica_fn, iterator)))
        except rx.errors.OutOfRangeError:
            break
    result("input function", steps)
    result("total", float(total.read_value()))
    total_rows = strategy.run(lambda: jnp.ones(()))
    result("sum", float(strategy.reduce("SUM", total_rows)))
    config = strategy.update_config_proto(rx.compat.v1.ConfigProto(device_filters=["stale"]))
    result("config", [list(config.device_filters), config.experimental.collective_group_leader])


@with_old_names
@pytest.mark.parametrize("chief", [False, True], ids=["workers", "chief"])
def test_two_workers(chief: bool):
    first, second = (worker.results for worker in run_workers(_program, 2, devices=2, chief=chief))
    assert first["replicas"] == second["replicas"] == 4
    assert first["data set"] == [[[0, 1], [4, 5]]] * 2
    assert second["data set"] == [[[2, 3], [6, 7]]] * 2
    assert first["context"] == [2, 4]
    assert first["input function"] == [[[0], [1]], [[2], [3]], [[4], [5]]]
    assert second["input function"] == [[[0], [1]], [[], []], [[], []]]
    assert first["total"] == second["total"] == sum(range(6)) + 1
    assert first["sum"] == second["sum"] == 4.0
    names = ("chief/task:0", "worker/task:0") if chief else ("worker/task:0", "worker/task:1")
    leader = f"/job:{'chief' if chief else 'worker'}/replica:0/task:0"
    assert first["config"] == [[f"/job:{names[0]}"], leader]
    assert second["config"] == [[f"/job:{names[1]}"], leader]
