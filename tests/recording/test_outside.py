"""What a program does to variables between two recorded steps, by other means than the step."""

import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.data import delivery_watchers
from replicax._src.recording._outside import Outside
from replicax._src.variable import ProgramState, write_watchers
from tests.recording.programs import Program
from tests.under_test import cpus


def run_again(program: Any, step: int) -> rx.debug.Replayed:
    capsule = rx.debug.load(program.recorder.save(step))
    capsule.attach(program.manager, program.step)
    _reading = iter(program.data)
    return capsule.run()


class Scheduled(Program):
    """With a rate that the program assigns, and that no checkpoint has; and a metric."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        with self.strategy.scope():
            self.rate = rx.Variable(1.0, trainable=False, name="rate")
            self.mean = rx.metrics.Mean("mean")

    def _step(self, x: Any, y: Any) -> Any:
        return super()._step(x, y), self.mean.result()

    def _on_replica(self, x: Any, y: Any) -> Any:
        loss = super()._on_replica(x * self.rate, y)
        self.mean.update_state(loss)
        return loss


def test_values_that_are_assigned_between_steps(tmp_path: Path):
    program = Scheduled(tmp_path)
    look = rx.function(lambda: program.strategy.run(lambda: program.w * 2))
    for number, batch in enumerate(program.data, start=1):
        program.step(*batch)
        look()
        if number == 2:
            program.rate.assign(0.5)
        if number == 3:
            program.manager.save()  # after which the rate is told again
        if number == 5:
            program.mean.reset_state()
    assert not run_again(program, 2).outside
    program.rate.assign(9.0)
    assert run_again(program, 3).outside == ("rate:0 was changed to 0.5",)
    found = run_again(program, 6)
    program.recorder.close()
    assert found.same_bits and found.step == 6
    assert found.outside == ("mean/total:0 was changed to 0", "mean/count:0 was changed to 0")


class Adversaries:
    """Two functions, each of which trains one of two models in each step."""

    def __init__(self, folder: Path, rows: int):
        self.strategy = rx.distribute.MirroredStrategy(cpus(2))
        with self.strategy.scope():
            self.models = [
                rx.Variable(np.full((rows, 4), value, np.float32), name=name)
                for name, value in (("maker", 0.1), ("judge", 1.0))
            ]
            self.optimizers = [rx.Optimizer(optax.sgd(0.1)) for _ in self.models]
        self.judge, self.step = (rx.function(self._step(number)) for number in (1, 0))
        x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
        data = rx.data.Dataset.from_tensor_slices(x).batch(4)
        self.data = self.strategy.experimental_distribute_dataset(data)
        state = rx.train.Checkpoint(models=self.models, optimizers=self.optimizers)
        self.manager = rx.train.CheckpointManager(state, folder / "checkpoints")
        self.recorder = rx.debug.Recorder(self.manager, self.step)

    def _step(self, number: int) -> Any:
        def on_replica(x: Any) -> Any:
            def loss_fn() -> Any:
                maker, judge = self.models
                return rx.nn.share_of_mean(jnp.sum(jnp.tanh(x @ maker[:4] @ judge[:4]), axis=1))

            loss, gradients = rx.value_and_grad(loss_fn, [self.models[number]])
            self.optimizers[number].apply_gradients(zip(gradients, [self.models[number]]))
            return loss

        def step(x: Any) -> Any:
            losses = self.strategy.run(on_replica, args=(x,))
            return self.strategy.reduce("SUM", losses, axis=None)

        return step


def test_another_function_that_trains_a_part(tmp_path: Path):
    program = Adversaries(tmp_path, 4)
    for x in program.data:
        program.judge(x)
        program.step(x)
    found = run_again(program, 4)
    program.recorder.close()
    assert found.same_bits
    assert "judge:0 was changed to float32[4, 4]" in found.outside


def test_values_that_are_too_large_for_each_step(tmp_path: Path):
    program = Adversaries(tmp_path, 1 << 17)
    batches = list(program.data)
    program.step(batches[0])
    program.judge(batches[1])
    with pytest.warns(UserWarning, match=r"The variables judge:0 were changed between two steps"):
        program.step(batches[1])
    found = run_again(program, 2)
    program.recorder.close()
    assert not found.same_bits
    reason = "judge:0 was changed, and its value was not recorded: it has 2,097,152 bytes"
    assert reason in found.outside


def test_what_another_thread_writes_during_a_step_is_told_with_the_next():
    rate, outside = rx.Variable(1.0), Outside()
    outside.begin({"rate": rate}, [rate], [], [])
    outside.written(ProgramState([]))  # the step
    thread = threading.Thread(target=outside.written, args=(rate,))
    thread.start()
    thread.join()
    outside.forget()
    assert [name for name, _ in outside.values()] == ["rate"]
    outside.written(rate)
    outside.forget()
    assert outside.values() == []


def test_what_a_recorder_watches_ends_with_it(tmp_path: Path):
    before = len(delivery_watchers), len(write_watchers)
    program = Program(tmp_path)
    assert (len(delivery_watchers), len(write_watchers)) == (before[0] + 1, before[1] + 1)
    program.recorder.close()
    assert (len(delivery_watchers), len(write_watchers)) == before
