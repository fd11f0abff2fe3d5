"""Many workers: one call on all, one writes, all agree. The workers are threads here."""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from replicax._src.checkpoints import _folder, _job, _saving
from tests.under_test import cpus

_here = threading.local()


class Table:
    """Where the workers of a job meet."""

    def __init__(self, workers: int):
        self.workers = workers
        self.given: dict[str, dict[int, Any]] = {}
        self.changed = threading.Condition()


class Worker:
    """One worker of a job of threads."""

    def __init__(self, table: Table, worker: int):
        self.table, self.worker, self.workers = table, worker, table.workers
        self.phases: list[str] = []

    def exchange(self, topic: str, payload: Any, timeout: float | None = None) -> list[Any]:
        table = self.table
        with table.changed:
            row = table.given.setdefault(topic, {})
            assert self.worker not in row, f"{topic} twice"
            row[self.worker] = payload
            table.changed.notify_all()
            assert table.changed.wait_for(lambda: len(row) == self.workers, 300), topic
            return [row[index] for index in range(self.workers)]

    @contextlib.contextmanager
    def phase(self, phase: str, busy: bool | None = None) -> Iterator[None]:
        self.phases.append(phase)
        yield


def on_all(workers: int, fn: Callable[[Worker], Any]) -> list[Any]:
    """Calls `fn` on every worker; returns results, or the errors in their places."""
    table = Table(workers)

    def run(index: int) -> Any:
        _here.worker = Worker(table, index)
        try:
            return fn(_here.worker)
        except Exception as error:
            return error
        finally:
            _here.worker = None

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, range(workers)))


class Position:
    """Something that each worker has its own of: what holds it is saved by all together."""

    def __init__(self, position: int = 0):
        self.position = position

    def get_state(self) -> int:
        return self.position

    def set_state(self, state: int) -> None:
        self.position = state


@pytest.fixture(autouse=True)
def job_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_job, "_source", lambda: getattr(_here, "worker", None))


def test_one_writes_and_all_return_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    writers: list[int] = []
    write = _saving.write_arrays

    def seen(folder: str, arrays: Any) -> None:
        writers.append(threading.get_ident())
        write(folder, arrays)

    monkeypatch.setattr(_saving, "write_arrays", seen)

    def work(me: Worker) -> Any:
        v = rx.Variable(1.0)
        checkpoint = rx.train.Checkpoint(v=v, step=3, needs_all=Position())
        with rx.train.CheckpointManager(checkpoint, tmp_path, 2) as manager:
            paths = [manager.save() for _ in range(3)]
        v.assign(0.0)
        with rx.train.CheckpointManager(checkpoint, tmp_path, 2) as manager:
            restored = manager.restore_or_initialize()
        return paths, restored, float(v), set(me.phases)

    results = on_all(3, work)
    paths = [str(tmp_path / f"ckpt-{i}") for i in (1, 2, 3)]
    assert results == [(paths, paths[-1], 1.0, {"saving", "restoring"})] * 3
    assert len(writers) == 3
    assert rx.train.list_checkpoints(tmp_path) == paths[1:]


def test_the_first_one_says_which(tmp_path: Path):
    path = rx.train.Checkpoint(v=rx.Variable(1.0)).save(tmp_path / "ckpt")

    def work(me: Worker) -> Any:
        # The others do not look: what they see may be older or newer.
        directory = tmp_path if me.worker == 0 else tmp_path / "empty"
        checkpoint = rx.train.Checkpoint(v=rx.Variable(0.0))
        return rx.train.CheckpointManager(checkpoint, directory).restore_or_initialize()

    assert on_all(2, work) == [path] * 2


def test_what_only_one_has_is_saved_by_it_alone(tmp_path: Path):
    """As ported programs do it: `if strategy.extended.should_checkpoint: checkpoint.save(...)`."""

    def work(me: Worker) -> Any:
        checkpoint = rx.train.Checkpoint(v=rx.Variable(1.0), step=3)
        if me.worker == 0:
            checkpoint.save(tmp_path / "ckpt")
        return checkpoint.write(tmp_path / f"worker {me.worker}" / "all")

    assert on_all(2, work) == [str(tmp_path / f"worker {index}" / "all") for index in (0, 1)]
    assert rx.train.list_checkpoints(tmp_path) == [str(tmp_path / "ckpt-1")]
    assert os.listdir(tmp_path / "worker 0") == ["all"]
    assert os.listdir(tmp_path / "worker 1") == []  # made, because programs remove it


@pytest.mark.parametrize("alone", [True, False])
def test_each_has_a_directory_and_the_first_one_writes(alone: bool, tmp_path: Path):
    """The directories of TensorFlow's tutorial, which all but the first remove after each save."""

    def work(me: Worker) -> Any:
        parts = {} if alone else {"position": Position(me.worker)}
        checkpoint = rx.train.Checkpoint(v=rx.Variable(1.0), **parts)
        directory = tmp_path / f"worker {me.worker}"
        manager = rx.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
        assert manager.directory == str(directory)
        for _ in range(2):
            path = manager.save()
            assert directory.exists()
            if me.worker != 0:
                shutil.rmtree(directory)
            else:
                manager.wait()
        manager.close()
        return path, manager.latest_checkpoint, manager.checkpoints

    first, second = on_all(2, work)
    path = str(tmp_path / "worker 0" / "ckpt-2")
    assert first == (path, path, [path])
    own = str(tmp_path / "worker 1" / "ckpt-2")
    assert second == ((own, None, []) if alone else first)
    assert os.listdir(tmp_path / "worker 0") == ["ckpt-2"]


def test_a_directory_that_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    seen = os.path.isdir
    hidden = lambda path: seen(path) and _here.worker.worker == 0  # noqa: E731

    def work(me: Worker) -> Any:
        with strategy.scope():
            v = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")
        rx.train.Checkpoint(v=v).write(tmp_path / "ckpt")

    with monkeypatch.context() as patch:
        patch.setattr(os.path, "isdir", hidden)
        errors = on_all(2, work)
    assert all("worker 1 does not see the directory" in str(error) for error in errors), errors
    # And if that looks the same on both, though it is not.
    write = _saving.write_arrays
    monkeypatch.setattr(
        _saving,
        "write_arrays",
        lambda folder, arrays: write(
            folder if _here.worker.worker == 0 else str(tmp_path / "other"), arrays
        ),
    )
    monkeypatch.setattr(
        _folder,
        "sync_and_list",
        lambda folder, part: {part + "/file": (3, 3)},
    )
    errors = on_all(2, work)
    assert all("one directory that they share" in str(error) for error in errors), errors
    assert rx.train.list_checkpoints(tmp_path) == []


def restored(tmp_path: Path, paths: list[Path | str | None], partial: bool = False) -> list[Any]:
    """What two workers have after restoring these; or their errors."""

    def work(me: Worker) -> Any:
        checkpoint = rx.train.Checkpoint(v=rx.Variable(0.0), position=Position(-1))
        status = checkpoint.restore(paths[me.worker])
        return float(checkpoint.v), checkpoint.position.position, type(status).__name__

    return on_all(len(paths), work)


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """The paths of two checkpoints, with 1.0 and 2.0."""
    v = rx.Variable(0.0)
    checkpoint = rx.train.Checkpoint(v=v, position=Position(7))
    return [(v.assign(n), checkpoint.save(tmp_path / "ckpt"))[1] for n in (1.0, 2.0)]


def test_all_restore_what_the_first_one_restores(tmp_path: Path, two: list[str]):
    good = (2.0, 7, "CheckpointLoadStatus")
    assert restored(tmp_path, [two[1], two[1]]) == [good] * 2
    copy = shutil.copytree(two[1], tmp_path / "disk of worker 1" / "ckpt-2")
    assert restored(tmp_path, [two[1], copy]) == [good] * 2
    for other in (two[0], None, tmp_path / "nothing"):
        with pytest.warns(UserWarning, match=r"It restores .*ckpt-2, as worker 0 does"):
            assert restored(tmp_path, [two[1], other]) == [good] * 2
    assert restored(tmp_path, [None, None]) == [(0.0, -1, "InitializationOnlyStatus")] * 2


def test_the_first_one_must_know(tmp_path: Path, two: list[str]):
    errors = restored(tmp_path, [None, two[0]])
    assert all("Worker 0 is to restore nothing" in str(error) for error in errors)
    with pytest.warns(UserWarning, match="was to restore"):
        errors = restored(tmp_path, [tmp_path / "nothing", two[0]])
    assert all("There is no checkpoint at" in str(error) for error in errors)


def test_if_one_cannot_restore_none_does(tmp_path: Path, two: list[str]):
    after: list[Any] = [None, None]

    def work(me: Worker) -> Any:
        v = rx.Variable([0.0] if me.worker else 0.0)
        checkpoint = rx.train.Checkpoint(v=v, position=Position(-1))
        try:
            checkpoint.restore(two[1])
        finally:
            after[me.worker] = v.numpy().tolist(), checkpoint.position.position

    errors = on_all(2, work)
    assert "worker 1 failed: UnmatchedError" in str(errors[0])
    assert "saved float32[], wanted float32[1]" in str(errors[1])
    assert after == [(0.0, -1), ([0.0], -1)]


def test_plain_variables_may_be_restored_by_one(tmp_path: Path):
    path = rx.train.Checkpoint(v=rx.Variable(1.0)).save(tmp_path / "ckpt")

    def work(me: Worker) -> Any:
        checkpoint = rx.train.Checkpoint(v=rx.Variable(0.0))
        if me.worker == 1:
            checkpoint.restore(path).assert_consumed()
        return float(checkpoint.v)

    assert on_all(2, work) == [0.0, 1.0]


def test_an_error_of_the_first_one_while_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("replicax._src.checkpoints._manager.latest_whole", fail)

    def work(me: Worker) -> Any:
        checkpoint = rx.train.Checkpoint(v=rx.Variable(0.0))
        return rx.train.CheckpointManager(checkpoint, tmp_path).restore_or_initialize()

    assert all("Input/output error" in str(error) for error in on_all(2, work))


def positions(tmp_path: Path, saving: list[int], restoring: int) -> list[Any]:
    """Saves after so many elements on each worker, and restores with a number of workers."""

    def save(me: Worker) -> None:
        iterator = iter(rx.data.Dataset.range(100))
        for _ in range(saving[me.worker]):
            next(iterator)
        rx.train.Checkpoint(iterator=iterator).write(tmp_path / "ckpt")

    def restore(me: Worker) -> int:
        iterator = iter(rx.data.Dataset.range(100))
        rx.train.Checkpoint(iterator=iterator).read(tmp_path / "ckpt").assert_consumed()
        return int(next(iterator))

    assert on_all(len(saving), save) == [None] * len(saving)
    return on_all(restoring, restore)


def test_every_worker_has_its_own_position(tmp_path: Path):
    assert positions(tmp_path, [3, 5, 4], 3) == [3, 5, 4]


def test_one_position_for_all_goes_to_any_number_of_workers(tmp_path: Path):
    assert positions(tmp_path, [4, 4, 4], 2) == [4, 4]


def test_positions_of_their_own_do_not(tmp_path: Path):
    errors = positions(tmp_path, [3, 5, 4], 2)
    assert all(isinstance(error, rx.errors.CheckpointError) for error in errors)
    assert "for each of 3 workers, and this job has 2" in str(errors[0])


def test_copies_that_differ_are_saved_by_each(tmp_path: Path):
    strategies = [rx.distribute.MirroredStrategy(cpus(2)) for _ in range(3)]

    def make(me: Worker) -> rx.Variable:
        with strategies[me.worker].scope():
            return rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")

    def save(me: Worker) -> None:
        v = make(me)
        for index, copy in enumerate(v.values):
            copy.assign(10.0 * me.worker + index)
        rx.train.Checkpoint(v=v).write(tmp_path / "ckpt")

    def restore(me: Worker) -> list[float]:
        v = make(me)
        rx.train.Checkpoint(v=v).read(tmp_path / "ckpt").assert_consumed()
        return [float(copy.read_value()) for copy in v.values]

    assert on_all(3, save) == [None] * 3
    assert sorted(os.listdir(tmp_path / "ckpt")) == [
        *("arrays", "copies-00000", "copies-00001", "copies-00002", "manifest.json"),
        "objects.json",
    ]
    assert on_all(3, restore) == [[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]]
    # With other workers, the value as a whole; the first worker's, whose own sum it is here.
    assert on_all(2, restore) == [[0.5, 0.5]] * 2


@pytest.mark.parametrize(
    ("where", "failing"),
    [("taking", 0), ("taking", 1), ("writing", 0), ("writing", 1), ("committing", 0)],
)
def test_a_failure_of_one_is_raised_on_all(
    where: str, failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if getattr(_here, "worker", None) and _here.worker.worker == failing:
                raise OSError(5, "Input/output error")
            return real(*args)

        return call

    strategy = rx.distribute.MirroredStrategy(cpus(2))
    if where == "taking":
        monkeypatch.setattr(_saving, "host_copies", broken(_saving.host_copies))
    elif where == "writing":
        monkeypatch.setattr(_saving, "write_arrays", broken(_saving.write_arrays))
    else:
        monkeypatch.setattr(_folder.PartialFolder, "commit", broken(_folder.PartialFolder.commit))

    def work(me: Worker) -> Any:
        with strategy.scope():
            v = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")
        rx.train.Checkpoint(v=v).write(tmp_path / "ckpt")

    errors = on_all(3, work)
    assert all(isinstance(error, rx.errors.CheckpointError) for error in errors), errors
    assert all("Input/output error" in str(error) for error in errors)
    assert f"worker {failing} failed" in str(errors[2])
    assert os.listdir(tmp_path) == []


def test_workers_with_other_objects_are_told(tmp_path: Path):
    def work(me: Worker) -> Any:
        v = rx.Variable([1.0] * (2 + me.worker // 2))
        rx.train.Checkpoint(v=v, needs_all=Position()).write(tmp_path / "ckpt")

    errors = on_all(3, work)
    assert "worker 2 has other objects to save than worker 0" in str(errors[0])
    assert "worker 0 has other objects to save than worker 2" in str(errors[2])
    assert os.listdir(tmp_path) == []
