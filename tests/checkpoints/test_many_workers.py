"""Checkpoints of real workers: written by two, restored by one, two and three."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.checkpoints import _saving
from tests.processes import Worker, result, run_workers

ROWS = 6  # of a global batch: can be split over one, two and three


class Training:
    """A small training run, with everything that has a state."""

    def __init__(self, strategy: Any):
        self.strategy = strategy
        with strategy.scope():
            self.w = rx.Variable(jnp.zeros(2), name="w")
            self.optimizer = rx.Optimizer(optax.adam(0.1))
            self.mean = rx.metrics.Mean("mean")
            self.seen = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")
        rows = rx.data.Dataset.range(60).shuffle(60, seed=1).batch(ROWS)
        self.data = iter(strategy.experimental_distribute_dataset(rows))
        options = rx.data.Options()
        off = rx.data.experimental.AutoShardPolicy.OFF
        options.experimental_distribute.auto_shard_policy = off
        self.off = iter(strategy.experimental_distribute_dataset(rows.with_options(options)))
        self.own = iter(rx.data.Dataset.range(60))  # each worker where it likes
        self.checkpoint = rx.train.Checkpoint(
            w=self.w, optimizer=self.optimizer, mean=self.mean, seen=self.seen, data=self.data
        )
        self._step = rx.function(self._one_step)

    def _one_step(self, batch: Any) -> None:
        def replica_step(rows: Any) -> None:
            x = rows.astype(jnp.float32)

            def loss() -> Any:
                return jnp.sum((self.w[0] * x[:, None] + self.w[1] - 1) ** 2) / 1e4

            value, gradients = rx.value_and_grad(loss, [self.w])
            self.optimizer.apply_gradients(zip(gradients, [self.w]))
            self.mean.update_state(value)
            self.seen.assign_add(jnp.sum(x))

        self.strategy.run(replica_step, args=(batch,))

    def step(self) -> list[int]:
        """One step; returns this worker's rows of it."""
        batch = next(self.data)
        rows = [np.asarray(each) for each in self.strategy.experimental_local_results(batch)]
        self._step(batch)
        return np.concatenate(rows).tolist()

    def state(self) -> list[Any]:
        """All values; the sync-on-read ones copy by copy."""
        copies = self.strategy.experimental_local_results(self.seen)
        return [
            *(v.numpy().tolist() for v in (self.w, *self.optimizer.variables)),
            [float(copy.read_value()) for copy in copies],
            float(self.mean.result()),
        ]

    def combined(self) -> list[Any]:
        """Values that do not depend on how many workers there are."""
        variables = (self.w, *self.optimizer.variables, self.seen)
        return [*(v.numpy().tolist() for v in variables), float(self.mean.result())]

    def close(self) -> None:
        self.data.close()
        self.off.close()


def failure(call: Any) -> str | None:
    try:
        call()
    except rx.errors.CheckpointError as error:
        return str(error)
    return None


def save_with_two() -> None:
    """The program of two workers: each check reports what the test compares."""
    folder = Path(sys.argv[1])
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    me = strategy.cluster_resolver.task_id
    run = Training(strategy)
    manager = rx.train.CheckpointManager(run.checkpoint, folder / "run", max_to_keep=2)
    result("nothing yet", manager.restore_or_initialize())
    for _ in range(3):
        run.step()
    path = manager.save()
    result("path", path)
    result("saved", run.state())
    result("combined", run.combined())
    result("rows", [run.step() for _ in range(3)])
    result("later", run.state())
    manager.close()
    result("latest", [manager.latest_checkpoint, manager.checkpoints])
    check_restored(strategy, folder)
    check_positions(run, folder, me)
    check_alone(run, folder, me)
    check_directories(run, folder, me)
    check_different_paths(run, folder, me)
    check_failures(run, folder, me)
    check_later(strategy, folder)
    run.close()


def check_restored(strategy: Any, folder: Path) -> None:
    """As a program that is started again."""
    again = Training(strategy)
    manager = rx.train.CheckpointManager(again.checkpoint, folder / "run")
    result("restored path", manager.restore_or_initialize())
    result("restored rows", [again.step() for _ in range(3)])
    result("restored later", again.state())
    again.checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    result("restored", again.state())
    again.close()


def check_positions(run: Training, folder: Path, me: int) -> None:
    """Positions that only the same number of workers can continue."""
    next(run.off)
    for _ in range(2 + 3 * me):
        next(run.own)
    checkpoint = rx.train.Checkpoint(off=run.off, own=run.own)
    path = checkpoint.write(folder / "positions")
    wanted = [np.asarray(run.strategy.experimental_local_results(next(run.off))[0]), next(run.own)]
    checkpoint.read(path).assert_consumed()
    found = [np.asarray(run.strategy.experimental_local_results(next(run.off))[0]), next(run.own)]
    result("positions", [[np.asarray(each).tolist() for each in pair] for pair in (wanted, found)])


def check_alone(run: Training, folder: Path, me: int) -> None:
    """The first worker saves alone what the others have too."""
    checkpoint = rx.train.Checkpoint(w=run.w, optimizer=run.optimizer, data=run.data, step=4)
    if run.strategy.extended.should_checkpoint:
        result("alone", checkpoint.save(folder / "alone" / "ckpt"))
    run.step()
    before = run.w.numpy().tolist()
    status = checkpoint.restore(folder / "alone" / "ckpt-1")
    status.assert_consumed()
    result("alone restored", before != run.w.numpy().tolist())


def check_directories(run: Training, folder: Path, me: int) -> None:
    """The directories of TensorFlow's tutorial."""
    directory = folder / "tutorial" / ("ckpt" if me == 0 else f"temp_{me}")
    for name, checkpoint in (
        ("together", run.checkpoint),
        ("alone", rx.train.Checkpoint(w=run.w)),
    ):
        manager = rx.train.CheckpointManager(checkpoint, directory, 1, checkpoint_name=name)
        for _ in range(2):
            manager.save(checkpoint_number=1)
            if me != 0:
                shutil.rmtree(directory)
        manager.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            checkpoint.restore(manager.latest_checkpoint).assert_consumed()
        result(f"tutorial {name}", [str(each.message) for each in caught])


def check_different_paths(run: Training, folder: Path, me: int) -> None:
    """All restore what the first one does."""
    checkpoint = rx.train.Checkpoint(w=run.w)
    run.w.assign([1.0, 1.0])
    one = checkpoint.write(folder / "one")
    run.w.assign([2.0, 2.0])
    two = checkpoint.write(folder / "two")
    rx.debug.check_replicas(run.w)  # both are written when all are here
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoint.read([one, two][me])
    result("first one's", [run.w.numpy().tolist(), len(caught)])
    result("first one's None", failure(lambda: checkpoint.restore([None, two][me])))
    result("not there", failure(lambda: checkpoint.restore(folder / "no such")))
    rx.debug.check_replicas(run.w)


def check_failures(run: Training, folder: Path, me: int) -> None:
    """One cannot write, and all are told; then all goes on."""
    manager = rx.train.CheckpointManager(run.checkpoint, folder / "failing")
    write = _saving.write_arrays

    def fail(*args: Any) -> None:
        raise OSError(5, "Input/output error")

    def save() -> None:
        manager.save()
        run.step()
        manager.wait()

    for worker in (0, 1):
        _saving.write_arrays = fail if me == worker else write
        result(f"failing {worker}", failure(save))
    _saving.write_arrays = write
    manager.save()
    manager.close()
    result("after failing", [os.path.basename(each) for each in manager.checkpoints])


def check_later(strategy: Any, folder: Path) -> None:
    """A model that is built after it was restored."""

    class Model:
        w: Any = None

    def step(model: Model) -> Any:
        if model.w is None:
            model.w = rx.Variable(0.5, aggregation="SUM")
        model.w.assign_add(1.0)
        return model.w.read_value()

    model = Model()
    with strategy.scope():
        model.w = rx.Variable(10.0)
    path = rx.train.Checkpoint(model=model).write(folder / "later")
    rx.debug.check_replicas(model.w)
    later = Model()
    rx.train.Checkpoint(model=later).read(path).expect_partial()
    run = rx.function(lambda: strategy.run(step, args=(later,)))
    result("built later", float(strategy.experimental_local_results(run())[0]))
    rx.debug.check_replicas(later.w)


def restore() -> None:
    """The program of another number of workers."""
    folder = Path(sys.argv[1])
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    run = Training(strategy)
    result("path", rx.train.CheckpointManager(run.checkpoint, folder).restore_or_initialize())
    result("rows", [run.step() for _ in range(3)])
    run.checkpoint.restore(folder / "ckpt-1").assert_consumed()
    result("combined", run.combined())
    for name, iterator in (("off", run.off), ("own", run.own)):
        other = rx.train.Checkpoint(**{name: iterator})
        result(name, failure(lambda other=other: other.read(folder.parent / "positions")))
    run.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("many")


@pytest.fixture(scope="module")
def two(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """What two workers reported."""
    workers = run_workers(save_with_two, 2, arguments=[str(folder)])
    yield [worker.results for worker in workers]


def same(reported: list[dict[str, Any]], name: str) -> Any:
    """What all workers reported alike."""
    values = [each[name] for each in reported]
    assert all(value == values[0] for value in values), values
    return values[0]


def test_saving_and_restoring(two: list[dict[str, Any]], folder: Path):
    path = str(folder / "run" / "ckpt-1")
    assert same(two, "nothing yet") is None
    assert same(two, "path") == path == same(two, "restored path")
    assert same(two, "latest") == [path, [path]]
    for worker in two:
        assert worker["restored"] == worker["saved"]
        assert worker["restored rows"] == worker["rows"]
        assert worker["restored later"] == worker["later"]
    assert two[0]["saved"][-2] != two[1]["saved"][-2]  # each copy of a sync-on-read variable


def test_positions_of_each_worker(two: list[dict[str, Any]]):
    for wanted, found in (worker["positions"] for worker in two):
        assert wanted == found
    assert [worker["positions"][0][1] for worker in two] == [2, 5]


def test_the_first_one_alone(two: list[dict[str, Any]], folder: Path):
    assert two[0]["alone"] == str(folder / "alone" / "ckpt-1")
    assert same(two, "alone restored") is True


def test_a_directory_for_each(two: list[dict[str, Any]], folder: Path):
    assert two[0]["tutorial together"] == two[1]["tutorial together"] == []
    assert two[0]["tutorial alone"] == []
    (warning,) = two[1]["tutorial alone"]
    assert "was to restore nothing (None). It restores" in warning
    assert sorted(os.listdir(folder / "tutorial" / "ckpt")) == ["alone-1", "together-1"]


def test_different_paths(two: list[dict[str, Any]]):
    assert [worker["first one's"] for worker in two] == [[[1.0, 1.0], 0], [[1.0, 1.0], 1]]
    assert "Worker 0 is to restore nothing" in same(two, "first one's None")
    assert "There is no checkpoint at" in two[0]["not there"]
    assert "There is no checkpoint at" in two[1]["not there"]


def test_a_failing_writer(two: list[dict[str, Any]]):
    for worker in (0, 1):
        for reported in two:
            assert "Input/output error" in reported[f"failing {worker}"]
        assert f"worker {worker} failed" in two[1 - worker][f"failing {worker}"]
    assert same(two, "after failing") == ["ckpt-6"]


def test_a_model_that_is_built_later(two: list[dict[str, Any]]):
    assert same(two, "built later") == 12.0


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_workers(count: int, two: list[dict[str, Any]], folder: Path):
    workers: list[Worker] = run_workers(restore, count, arguments=[str(folder / "run")])
    reported = [worker.results for worker in workers]
    assert same(reported, "path") == str(folder / "run" / "ckpt-1")
    # The same global batches, in the same order, whoever takes which part.
    for step in range(3):
        parts = [row for worker in reported for row in worker["rows"][step]]
        assert parts == [row for worker in two for row in worker["rows"][step]]
    for mine, theirs in zip(same(reported, "combined"), same(two, "combined"), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    for worker in reported:
        assert f"of 2 workers, and this job has {count}" in worker["own"]
        assert "the position in the checkpoint" in worker["off"] and "does not" in worker["off"]
