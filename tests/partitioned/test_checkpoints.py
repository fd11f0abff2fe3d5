"""Checkpoints of state in parts: what one layout has saved, every other one restores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

import replicax as rx
from tests.partitioned.looking import bytes_by_device
from tests.partitioned.models import (
    MESHES,
    MODELS,
    MeshOf,
    Task,
    adam,
    expected_losses,
    mirrored_on,
    state_layout,
    tpu_on,
)
from tests.replicas import mirrored

# How a model may lie: the strategy, its mesh, and whether its weights are split.
PLACES: dict[str, Callable[[], tuple[Any, MeshOf, bool]]] = {
    "one device": lambda: (rx.distribute.get_strategy(), MeshOf(1), False),
    "mirrored": lambda: (mirrored(4), MeshOf(4), False),
    "split": lambda: (mirrored_on(MESHES["2x4"]), MESHES["2x4"], True),
    "split otherwise": lambda: (mirrored_on(MESHES["1x8"]), MESHES["1x8"], True),
    "optimizer": lambda: (
        mirrored_on(MESHES["8x1"], state_layout=state_layout("optimizer")),
        MESHES["8x1"],
        False,
    ),
    "everything": lambda: (
        mirrored_on(MESHES["4x2"], state_layout=state_layout("everything")),
        MESHES["4x2"],
        True,
    ),
    "tpu": lambda: (
        tpu_on(MESHES["2x(2x2)"], state_layout=state_layout("everything")),
        MESHES["2x(2x2)"],
        True,
    ),
}


def task_at(place: str, transformation: Any = None) -> Task:
    strategy, mesh, is_split = PLACES[place]()
    return Task(strategy, mesh, MODELS["dense"](), transformation or adam(), by_layout=is_split)


def checkpoint_of(task: Task) -> Any:
    return rx.train.Checkpoint(model=task.variables, optimizer=task.optimizer)


def state_of(task: Task) -> list[Any]:
    return [*task.variables.values(), *task.optimizer.variables]


def fill(task: Task, seed: int) -> list[np.ndarray]:
    """Gives every variable another value, and returns them."""
    random = np.random.default_rng(seed)
    for each in state_of(task):
        each.assign(random.normal(scale=50, size=each.shape).astype(each.dtype))
    return [each.numpy() for each in state_of(task)]


@pytest.mark.parametrize("saved", PLACES)
def test_every_layout_restores_what_another_has_saved(saved: str, tmp_path: Path):
    task = task_at(saved)
    values = fill(task, seed=1)
    path = checkpoint_of(task).save(tmp_path / "ckpt")
    for number, place in enumerate(PLACES):
        other = task_at(place)
        fill(other, seed=2 + number)
        in_parts = [] if place == "one device" else state_of(other)
        before = [bytes_by_device(each) for each in in_parts]
        checkpoint_of(other).restore(path).assert_consumed()
        for variable, value in zip(state_of(other), values, strict=True):
            np.testing.assert_array_equal(variable.numpy(), value)
        assert [bytes_by_device(each) for each in in_parts] == before


@pytest.mark.parametrize(
    ("saved", "restored"),
    [
        ("one device", "everything"),
        ("everything", "split"),
        ("split", "tpu"),
        ("tpu", "optimizer"),
        ("optimizer", "one device"),
    ],
)
def test_training_goes_on_in_another_layout(saved: str, restored: str, tmp_path: Path):
    task = task_at(saved)
    task.losses(6, compiled=True)
    path = checkpoint_of(task).save(tmp_path / "ckpt")
    other = task_at(restored)
    checkpoint_of(other).restore(path).assert_consumed()
    losses = other.losses(6, compiled=True)
    np.testing.assert_allclose(losses, expected_losses("dense")[6:12], rtol=1e-5)


def test_state_that_is_made_after_the_restoring(tmp_path: Path):
    """An optimizer that is built by its first step takes its state from the checkpoint then."""
    task = task_at("everything")
    task.losses(6, compiled=True)
    path = checkpoint_of(task).save(tmp_path / "ckpt")
    other = task_at("tpu")
    with other.strategy.scope():
        other.optimizer = rx.Optimizer(adam())
    status = checkpoint_of(other).restore(path)
    losses = other.losses(6, compiled=True)
    status.assert_consumed()
    np.testing.assert_allclose(losses, expected_losses("dense")[6:12], rtol=1e-5)
    assert any(each.layout.replica_dim is not None for each in other.optimizer.variables)


@pytest.mark.parametrize("place", ["split", "everything"])
def test_the_arrays_on_the_disk_do_not_depend_on_the_layout(place: str, tmp_path: Path):
    """A checkpoint is whole: any reader of the format can do without the devices."""
    found = []
    for name in ("one device", place):
        task = task_at(name)
        fill(task, seed=1)
        path = rx.train.Checkpoint(model=task.variables).save(tmp_path / name / "ckpt")
        with ocp.PyTreeCheckpointer() as orbax:
            found.append(orbax.restore(Path(path) / "arrays"))
    np.testing.assert_equal(*found)


def test_a_manager_saves_and_restores(tmp_path: Path):
    task = task_at("everything", optax.chain(optax.clip_by_global_norm(1.0), adam()))
    manager = rx.train.CheckpointManager(checkpoint_of(task), str(tmp_path), max_to_keep=2)
    for _ in range(3):
        task.losses(1, compiled=True)
        manager.save()
    values = [each.numpy() for each in state_of(task)]
    fill(task, seed=5)
    assert manager.restore_or_initialize() == manager.latest_checkpoint
    for variable, value in zip(state_of(task), values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert len(manager.checkpoints) == 2


@pytest.mark.parametrize("place", ["split", "everything", "tpu"])
def test_variables_of_each_replica_and_random_state(place: str, tmp_path: Path):
    def make() -> tuple[Any, dict[str, Any]]:
        strategy, mesh, _ = PLACES[place]()
        with strategy.scope():
            return strategy, {
                "total": rx.Variable(
                    np.zeros((8, 8), np.float32),
                    synchronization=rx.VariableSynchronization.ON_READ,
                    aggregation=rx.VariableAggregation.SUM,
                    layout=[1, mesh.logical],
                ),
                "generator": rx.random.Generator.from_seed(4),
                "metric": rx.metrics.Mean(),
            }

    strategy, parts = make()

    def step() -> None:
        x = parts["generator"].normal([8, 8])
        parts["total"].assign_add(x)
        parts["metric"].update_state(x)

    rx.function(lambda: strategy.run(step))()
    path = rx.train.Checkpoint(**parts).save(tmp_path / "ckpt")
    total, mean = parts["total"].numpy(), float(parts["metric"].result())
    upcoming = strategy.run(lambda: parts["generator"].normal([3]))
    strategy, parts = make()
    rx.train.Checkpoint(**parts).restore(path).assert_consumed()
    np.testing.assert_allclose(parts["total"].numpy(), total, rtol=1e-6)
    np.testing.assert_allclose(float(parts["metric"].result()), mean, rtol=1e-6)
    again = strategy.run(lambda: parts["generator"].normal([3]))
    for one, other in zip(
        strategy.experimental_local_results(upcoming),
        strategy.experimental_local_results(again),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
