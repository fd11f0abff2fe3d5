"""What an estimator saves: when, under which names, and how training goes on from it."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax.compat.v1 import estimator
from replicax.compat.v1.estimator import EstimatorSpec
from tests.compat.regression import (
    BATCH,
    Losses,
    fixed_batch,
    line,
    losses_by_hand,
    losses_of,
)
from tests.forks import interpreter
from tests.guards import ROOT


def names_in(folder: Path) -> list[str]:
    paths = rx.train.list_checkpoints(folder)
    return [Path(path).name for path in paths]


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_second_call_goes_on_at_the_very_step(replicas: int, tmp_path: Path):
    """Weights, the state of the optimizer and the step: as if there had been one call."""
    model = line(tmp_path, replicas)
    parts = [loss for _ in range(3) for loss in losses_of(model, fixed_batch, steps=2)]
    np.testing.assert_allclose(parts, losses_by_hand(BATCH, passes=6)[0], rtol=1e-5)


def test_another_estimator_goes_on_on_other_replicas(tmp_path: Path):
    found = []
    for replicas in (4, 0, 2):
        found += losses_of(line(tmp_path, replicas), fixed_batch, steps=2)
    np.testing.assert_allclose(found, losses_by_hand(BATCH, passes=6)[0], rtol=1e-5)


PROGRAM = """
import os, signal, sys
from tests.compat.regression import Losses, fixed_batch, line

class Killed(Losses):
    def after_run(self, run_context, run_values):
        super().after_run(run_context, run_values)
        print(self.steps[-1], float(self.losses[-1]), flush=True)
        if self.steps[-1] == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

line(sys.argv[1], 2, save_checkpoints_steps=3).train(fixed_batch, hooks=[Killed()], max_steps=10)
"""


def test_a_killed_program_goes_on_from_its_last_checkpoint(tmp_path: Path):
    def run(kill_at: int) -> tuple[int, dict[int, float]]:
        environment = {
            **os.environ,
            "JAX_NUM_CPU_DEVICES": "2",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        done = subprocess.run(
            [interpreter(), "-c", PROGRAM, str(tmp_path / "run"), str(kill_at)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
        )
        lines = [line.split() for line in done.stdout.splitlines()]
        return done.returncode, {int(step): float(loss) for step, loss in lines}

    status, first = run(kill_at=8)
    assert status == -signal.SIGKILL
    assert list(first) == [1, 2, 3, 4, 5, 6, 7, 8]
    saved = int(names_in(tmp_path / "run")[-1].rpartition("-")[2])
    assert saved in (3, 6)  # the one of step 6 may have been in the making
    status, second = run(kill_at=0)
    assert status == 0
    assert list(second) == list(range(saved + 1, 11))
    whole, _ = losses_by_hand(BATCH, passes=10)
    np.testing.assert_allclose([*first.values()][:saved] + [*second.values()], whole, rtol=1e-5)
    assert names_in(tmp_path / "run")[-1] == "model.ckpt-10"


def test_checkpoints_come_every_so_many_steps_and_the_last_are_kept(tmp_path: Path):
    line(tmp_path, save_checkpoints_steps=2, keep_checkpoint_max=3).train(fixed_batch, steps=7)
    assert names_in(tmp_path) == ["model.ckpt-4", "model.ckpt-6", "model.ckpt-7"]


def test_by_default_the_first_and_the_last_step_are_saved(tmp_path: Path):
    model = line(tmp_path).train(fixed_batch, steps=3)
    assert names_in(tmp_path) == ["model.ckpt-0", "model.ckpt-3"]
    model.train(fixed_batch, steps=1)
    assert names_in(tmp_path) == ["model.ckpt-0", "model.ckpt-3", "model.ckpt-4"]


def test_seconds_between_checkpoints(tmp_path: Path):
    line(tmp_path, save_checkpoints_secs=1e-9, keep_checkpoint_max=0).train(fixed_batch, steps=3)
    assert names_in(tmp_path) == [f"model.ckpt-{step}" for step in range(4)]


def test_without_checkpoints_every_call_starts_anew(tmp_path: Path):
    """As in TensorFlow: nothing lives on but what is in the directory."""
    model = line(tmp_path, save_checkpoints_secs=None)
    once, twice = (losses_of(model, fixed_batch, steps=2) for _ in range(2))
    assert names_in(tmp_path) == []
    assert once == twice


def test_a_directory_that_was_emptied_is_a_new_beginning(tmp_path: Path):
    model = line(tmp_path, 2)
    first = losses_of(model, fixed_batch, steps=2)
    for path in rx.train.list_checkpoints(tmp_path):
        Path(path).rename(tmp_path.with_name(tmp_path.name + Path(path).name))
    assert losses_of(model, fixed_batch, steps=2) == first


def test_names_and_values_are_those_of_the_checkpoint(tmp_path: Path):
    line(tmp_path, 2).train(fixed_batch, steps=2)
    model = line(tmp_path)  # which has made no variables of its own
    names = model.get_variable_names()
    assert names == sorted(names)
    assert {"global_step", "line/b", "line/w", "line/w/trace", "optimizer/iterations"} <= set(names)
    assert not any("mean_absolute_error" in name for name in names)  # metrics are not saved
    assert model.get_variable_value("global_step") == 2
    assert model.get_variable_value("optimizer/iterations") == 2
    assert model.get_variable_value("line/w:0").shape == (3,)
    with pytest.raises(ValueError, match="no variable 'v' in the checkpoint. There are: .*line/b"):
        model.get_variable_value("v")


def test_a_model_without_a_checkpoint_has_no_values(tmp_path: Path):
    with pytest.raises(ValueError, match=r"not trained. Call train\(input_fn"):
        line(tmp_path).get_variable_names()


class Listener(estimator.CheckpointSaverListener):
    def __init__(self, folder: Path, stop_at: int | None = None):
        self._folder = folder
        self._stop_at = stop_at
        self.entries: list[Any] = []

    def begin(self) -> None:
        self.entries.append("begin")

    def before_save(self, session: None, global_step_value: int) -> None:
        self.entries.append(("before", global_step_value, len(names_in(self._folder))))

    def after_save(self, session: None, global_step_value: int) -> bool:
        self.entries.append(("after", global_step_value, len(names_in(self._folder))))
        return global_step_value == self._stop_at

    def end(self, session: None, global_step_value: int) -> None:
        self.entries.append(("end", global_step_value))


def test_listeners_see_each_save_and_may_stop(tmp_path: Path):
    model = line(tmp_path, 2, save_checkpoints_steps=2)
    listener = Listener(tmp_path, stop_at=4)
    model.train(fixed_batch, steps=9, saving_listeners=[listener])
    assert listener.entries == [
        "begin",
        *(("before", 0, 0), ("after", 0, 1)),
        *(("before", 2, 1), ("after", 2, 2)),
        *(("before", 4, 2), ("after", 4, 3)),
        ("end", 4),
    ]
    listener = Listener(tmp_path)
    model.train(fixed_batch, steps=1, saving_listeners=[listener])
    assert listener.entries[1:3] == [("before", 4, 3), ("after", 4, 3)]  # it is there already
    assert listener.entries[3:] == [("before", 5, 3), ("after", 5, 4), ("end", 5)]


# --- what goes wrong ------------------------------------------------------------------------------


def other_model(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    w = rx.Variable(jnp.zeros((3, 2)), name="line/w")
    v = rx.Variable(0.0, name="v")
    loss = jnp.mean((features["x"] @ w + v) ** 2)
    return EstimatorSpec(mode, features["x"] @ w, loss, rx.Optimizer(optax.sgd(0.1)))


@pytest.mark.parametrize("what", ["train", "evaluate", "predict"])
def test_the_directory_of_another_model(what: str, tmp_path: Path):
    line(tmp_path).train(fixed_batch, steps=1)
    model = estimator.Estimator(other_model, tmp_path)
    calls = {
        "train": lambda: model.train(fixed_batch, steps=1),
        "evaluate": lambda: model.evaluate(fixed_batch),
        "predict": lambda: next(model.predict(fixed_batch)),
    }
    with pytest.raises(rx.errors.CheckpointError, match="belongs to another model") as caught:
        calls[what]()
    text = str(caught.value)
    assert "variables/line.Sw: saved float32[3], wanted float32[3,2]" in text
    assert "variables/v: not in the checkpoint" in text
    assert "Use another model_dir" in text
    assert names_in(tmp_path) == ["model.ckpt-0", "model.ckpt-1"]


def test_a_checkpoint_that_is_not_there(tmp_path: Path):
    model = line(tmp_path).train(fixed_batch, steps=1)
    with pytest.raises(rx.errors.CheckpointError, match="no checkpoint at .*model.ckpt-7"):
        model.evaluate(fixed_batch, checkpoint_path=tmp_path / "model.ckpt-7")


def test_a_loss_that_is_no_number_is_never_saved(tmp_path: Path):
    def batches() -> Any:
        x = np.ones((24, 3), np.float32)
        x[20] = np.nan
        return rx.data.Dataset.from_tensor_slices(({"x": x}, x[:, 0])).batch(8)

    hook = Losses()
    with pytest.raises(estimator.NanLossDuringTrainingError, match="step 3 is not a number"):
        line(tmp_path, save_checkpoints_steps=1).train(batches, hooks=[hook])
    assert hook.steps == [1, 2, 3]
    assert names_in(tmp_path) == [f"model.ckpt-{step}" for step in range(3)]


def test_listeners_without_checkpoints(tmp_path: Path):
    model = line(tmp_path, save_checkpoints_secs=None)
    with pytest.raises(ValueError, match=r"switched off. Set RunConfig\(save_checkpoints_steps"):
        model.train(fixed_batch, steps=1, saving_listeners=[Listener(tmp_path)])
