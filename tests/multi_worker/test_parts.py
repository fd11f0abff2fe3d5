"""Workers whose replicas have several logical devices, and state of which each has a part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

from ..everything import EVERYTHING
from ..processes import result, run_workers

STEPS, ROWS = 4, 8
# Pairs: each kind of state, and each number of logical devices, with both ways to run.
PAIRS = [
    ("optimizer", 1, "compiled"),
    ("optimizer", 2, "eager"),
    ("everything", 1, "eager"),
    ("everything", 2, "compiled"),
]
COMBINATIONS = (
    [(over, logical, way) for over, logical, _ in PAIRS for way in ("compiled", "eager")]
    if EVERYTHING
    else PAIRS
)


def _learn(strategy: Any, logical: int, executor: str) -> tuple[list[float], Any, Any]:
    """A feed-forward net whose hidden dimension is split over the logical devices."""
    draw = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return draw.normal(size=shape).astype(np.float32) * 0.3

    with strategy.scope():
        variables = [
            rx.Variable(weights(16, 32), name="in", layout=[1, logical]),
            rx.Variable(np.zeros(32, np.float32), name="bias", layout=[logical]),
            rx.Variable(weights(32, 16), name="out", layout=[logical, 1]),
        ]
        optimizer = rx.Optimizer(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)))
    first, bias, second = variables
    inputs, targets = weights(STEPS, ROWS, 16), weights(STEPS, ROWS, 16)

    def step(x: Any, y: Any) -> Any:
        def loss() -> Any:
            return jnp.sum((jax.nn.relu(x @ first + bias) @ second - y) ** 2) / ROWS

        value, gradients = rx.value_and_grad(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return value

    def train(x: Any, y: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)

    run = rx.function(train) if executor == "compiled" else train
    rows = ROWS // strategy.num_replicas_in_sync

    def share(array: np.ndarray) -> Any:
        def of(context: Any) -> Any:
            start = context.replica_id_in_sync_group * rows
            return jnp.asarray(array[start : start + rows])

        return strategy.experimental_distribute_values_from_function(of)

    losses = [float(run(share(inputs[i]), share(targets[i]))) for i in range(STEPS)]
    return losses, variables, optimizer


def _strategy(kind: Any, over: str, logical: int) -> Any:
    return kind(
        logical_devices_per_replica=logical,
        state_layout=rx.distribute.StateLayout(over_replicas=over, min_size=1),
    )


def _train_and_save() -> None:
    for over, logical, executor in COMBINATIONS:
        strategy = _strategy(rx.distribute.MultiWorkerMirroredStrategy, over, logical)
        name = f"{over}-{logical}-{executor}"
        result(name, _trained_and_saved(strategy, name, logical, executor))


def _trained_and_saved(strategy: Any, name: str, logical: int, executor: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    seen["losses"], variables, optimizer = _learn(strategy, logical, executor)
    shards = variables[0]._stored.assembled.addressable_shards
    seen["bytes"] = sorted({shard.data.nbytes for shard in shards})
    seen["weights"] = np.asarray(variables[0].numpy())
    checkpoint = rx.train.Checkpoint(variables=variables, optimizer=optimizer)
    seen["path"] = checkpoint.save(os.path.join(os.environ["FOLDER"], name))
    for variable in variables:
        variable.assign(jnp.zeros(variable.shape))
    checkpoint.restore(seen["path"]).assert_consumed()
    seen["restored"] = np.asarray(variables[0].numpy())
    return seen


def test_workers_learn_what_one_device_learns(tmp_path: Path) -> None:
    """One job goes through all combinations."""
    expected, _, _ = _learn(rx.distribute.OneDeviceStrategy("CPU:0"), 1, "compiled")
    found = run_workers(_train_and_save, 2, devices=2, environment={"FOLDER": str(tmp_path)})
    # One process with other devices and another layout goes on from where each has ended.
    strategy = _strategy(rx.distribute.MirroredStrategy, "nothing", 2)
    _, variables, optimizer = _learn(strategy, 2, "compiled")
    checkpoint = rx.train.Checkpoint(variables=variables, optimizer=optimizer)
    for over, logical, executor in COMBINATIONS:
        first, second = (worker.results[f"{over}-{logical}-{executor}"] for worker in found)
        parts = logical * (4 // logical if over == "everything" else 1)
        for seen in (first, second):
            np.testing.assert_allclose(seen["losses"], expected, rtol=1e-5)
            assert seen["bytes"] == [16 * 32 * 4 // parts]
            assert seen["restored"] == seen["weights"]
        assert first["weights"] == second["weights"]
        checkpoint.restore(first["path"]).assert_consumed()
        np.testing.assert_array_equal(variables[0].numpy(), first["restored"])


def _pod() -> None:
    hosts = rx.distribute.cluster_resolver.TFConfigClusterResolver()
    topology = rx.tpu.experimental.initialize_tpu_system(hosts)
    assignment = rx.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=[1, 1, 1, 2], num_replicas=2
    )
    strategy = rx.distribute.TPUStrategy(hosts, experimental_device_assignment=assignment)
    traces = []

    def step() -> Any:
        traces.append(1)
        context: Any = rx.distribute.get_replica_context()
        x = strategy.experimental_split_to_logical_devices(jnp.ones((4, 4)), [2, 1])
        return context.all_reduce("SUM", jnp.sum(x)) + context.replica_id_in_sync_group

    for _ in range(2):
        sums = strategy.experimental_local_results(strategy.run(step))
    result("replicas", strategy.num_replicas_in_sync)
    result("sums", [float(each) for each in sums])
    result("traces", len(traces))


def test_a_pod_of_two_hosts() -> None:
    for rank, worker in enumerate(run_workers(_pod, 2, devices=2)):
        assert worker.results == {"replicas": 2, "sums": [32.0 + rank], "traces": 1}
