"""`CheckpointManager`: names, numbers and intervals as in TensorFlow; saving in the background."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from replicax._src.checkpoints import _folder, _saving
from tests.scripts import run_python


def names(paths: list[str]) -> list[str]:
    return [os.path.basename(path) for path in paths]


@pytest.fixture
def checkpoint() -> rx.train.Checkpoint:
    return rx.train.Checkpoint(v=rx.Variable(1.0), step=rx.Variable(0))


# What TensorFlow 2.21 does in these places.


def test_numbers_and_what_is_kept(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    manager = rx.train.CheckpointManager(checkpoint, tmp_path / "m", 2)
    assert (manager.latest_checkpoint, manager.checkpoints) == (None, [])
    for number in (1, 2, 3):
        assert manager.save() == str(tmp_path / "m" / f"ckpt-{number}")
    assert names(manager.checkpoints) == ["ckpt-2", "ckpt-3"]
    assert manager.latest_checkpoint == str(tmp_path / "m" / "ckpt-3")
    assert sorted(os.listdir(tmp_path / "m")) == ["ckpt-2", "ckpt-3"]
    assert names([manager.save(checkpoint_number=10) or "", manager.save() or ""]) == [
        *("ckpt-10", "ckpt-5")
    ]
    assert names(manager.checkpoints) == ["ckpt-10", "ckpt-5"]
    assert manager.directory == str(tmp_path / "m") and manager.checkpoint is checkpoint


def test_a_second_manager_goes_on(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    with rx.train.CheckpointManager(checkpoint, tmp_path, 3) as first:
        for _ in range(3):
            first.save()
    other = rx.train.Checkpoint(v=rx.Variable(0.0), step=rx.Variable(0))
    with rx.train.CheckpointManager(other, tmp_path, 2) as second:
        assert names(second.checkpoints) == ["ckpt-1", "ckpt-2", "ckpt-3"]
        assert second.restore_or_initialize() == str(tmp_path / "ckpt-3")
        second.save()
        assert names(second.checkpoints) == ["ckpt-3", "ckpt-4"]


def test_intervals(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    called: list[int] = []
    manager = rx.train.CheckpointManager(
        *(checkpoint, tmp_path, 2),
        step_counter=checkpoint.step,
        checkpoint_interval=2,
        init_fn=lambda: called.append(1),
    )
    assert manager.restore_or_initialize() is None and called == [1]
    assert manager.checkpoint_interval == 2
    saved = []
    for _ in range(6):
        saved.append(manager.save())
        checkpoint.step.assign_add(1)
    assert [path and os.path.basename(path) for path in saved] == [
        *("ckpt-1", None, "ckpt-2", None, "ckpt-3", None)
    ]
    assert manager.save(check_interval=False) == str(tmp_path / "ckpt-4")
    assert manager.restore_or_initialize() == str(tmp_path / "ckpt-4") and called == [1]
    assert manager.save() is None  # from the restored step on


@pytest.mark.parametrize("step", [lambda: 0, lambda: rx.Variable(0)], ids=["number", "variable"])
def test_save_interval_counts_the_steps_of_the_checkpoint(step: Callable[[], Any], tmp_path: Path):
    checkpoint = rx.train.Checkpoint(step=step())
    with rx.train.CheckpointManager(checkpoint, tmp_path, save_interval=3) as manager:
        saved = []
        for _ in range(7):
            saved.append(manager.save() is not None)
            if isinstance(checkpoint.step, int):
                checkpoint.step += 1
            else:
                checkpoint.step.assign_add(1)
    assert saved == [True, False, False, True, False, False, True]


def test_one_in_so_many_hours_is_kept(
    checkpoint: rx.train.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    manager = rx.train.CheckpointManager(checkpoint, tmp_path, 1, keep_checkpoint_every_n_hours=2)
    for _ in range(6):
        now[0] += 3600
        manager.save()
        manager.wait()
    assert names(manager.checkpoints) == ["ckpt-6"]
    assert sorted(each.name for each in tmp_path.glob("ckpt-*")) == ["ckpt-2", "ckpt-4", "ckpt-6"]
    again = rx.train.CheckpointManager(checkpoint, tmp_path, 1)
    assert names(again.checkpoints) == ["ckpt-6"]
    assert again.latest_checkpoint == str(tmp_path / "ckpt-6")


@pytest.mark.parametrize("damage", [None, b"1e99", b"not a time"])
def test_the_hours_are_counted_over_restarts(
    checkpoint: rx.train.Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: bytes | None,
):
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    for number in range(1, 7):  # a program that is restarted after each save
        manager = rx.train.CheckpointManager(
            checkpoint, tmp_path, 1, keep_checkpoint_every_n_hours=2
        )
        now[0] += 3600
        manager.save(number)
        manager.wait()
        if damage is not None:
            (tmp_path / "ckpt.replicax.last_kept").write_bytes(damage)
    kept = ["ckpt-2", "ckpt-4", "ckpt-6"] if damage is None else ["ckpt-6"]
    assert sorted(each.name for each in tmp_path.glob("ckpt-*")) == kept


def test_the_latest_may_be_one_that_was_saved_without_a_manager(
    checkpoint: rx.train.Checkpoint, tmp_path: Path
):
    path = checkpoint.save(tmp_path / "model")
    checkpoint.write(tmp_path / "by hand")
    manager = rx.train.CheckpointManager(checkpoint, tmp_path, 1)
    assert (manager.latest_checkpoint, manager.checkpoints) == (path, [])
    checkpoint.v.assign(7.0)
    assert manager.restore_or_initialize() == path
    assert float(checkpoint.v.numpy()) == 1.0
    for number in (2, 3):
        assert manager.save() == str(tmp_path / f"ckpt-{number}")
    manager.wait()
    assert manager.latest_checkpoint == str(tmp_path / "ckpt-3")
    assert os.path.isdir(path)


def test_all_are_kept(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    with rx.train.CheckpointManager(checkpoint, tmp_path, None) as manager:
        for _ in range(7):
            manager.save()
    assert names(rx.train.list_checkpoints(tmp_path)) == [f"ckpt-{i}" for i in range(1, 8)]
    assert rx.train.latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-7")


def test_names_and_counters(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    with rx.train.CheckpointManager(checkpoint, tmp_path, checkpoint_name="model") as manager:
        assert manager.save() == str(tmp_path / "model-1")
    assert checkpoint.write(tmp_path / "by hand") == str(tmp_path / "by hand")
    assert int(checkpoint.save_counter.numpy()) == 1
    assert checkpoint.save(f"{tmp_path}/") == str(tmp_path / "ckpt-2")
    assert names(manager.checkpoints) == ["model-1"]
    assert rx.train.latest_checkpoint(tmp_path / "no such") is None
    assert rx.train.list_checkpoints(tmp_path / "no such") == []
    other = rx.train.Checkpoint(v=rx.Variable(0.0), step=rx.Variable(0))
    other.restore(tmp_path / "ckpt-2")
    assert int(other.save_counter.numpy()) == 2
    other.read(tmp_path / "by hand").assert_consumed()


def test_saving_the_same_number_again_replaces(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    path = checkpoint.write(tmp_path / "best")
    checkpoint.v.assign(2.0)
    assert checkpoint.write(tmp_path / "best") == path
    checkpoint.v.assign(0.0)
    checkpoint.read(path).assert_consumed()
    assert float(checkpoint.v) == 2.0
    assert os.listdir(tmp_path) == ["best"]


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"max_to_keep": 0}, "`max_to_keep` must be a positive number or None"),
        ({"save_interval": 0}, "must be at least 1"),
        ({"save_interval": 2, "checkpoint_interval": 2}, "they are the same"),
    ],
)
def test_wrong_arguments(kwargs: dict[str, Any], text: str, tmp_path: Path):
    with pytest.raises(ValueError, match=text):
        rx.train.CheckpointManager(rx.train.Checkpoint(step=0), tmp_path, **kwargs)


def test_an_interval_needs_steps(tmp_path: Path):
    with pytest.raises(ValueError, match="`step_counter` should be passed"):
        rx.train.CheckpointManager(rx.train.Checkpoint(), tmp_path, checkpoint_interval=5)
    with pytest.raises(TypeError, match=r"takes an rx\.train\.Checkpoint"):
        rx.train.CheckpointManager(tmp_path, tmp_path)  # type: ignore[arg-type]


# --- in the background ----------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Writing waits until it is set."""
    event = threading.Event()
    write = _saving.write_arrays

    def wait_and_write(*args: Any) -> None:
        assert event.wait(60)
        write(*args)

    monkeypatch.setattr(_saving, "write_arrays", wait_and_write)
    return event


def test_save_returns_before_it_is_written(
    checkpoint: rx.train.Checkpoint, gate: threading.Event, tmp_path: Path
):
    with rx.train.CheckpointManager(checkpoint, tmp_path) as manager:
        path = manager.save()
        checkpoint.v.assign(5.0)
        assert path is not None and not os.path.exists(path)
        gate.set()
        assert manager.latest_checkpoint == path  # waits
        checkpoint.restore(path)
        assert float(checkpoint.v) == 1.0


def test_a_save_waits_for_the_one_before(
    checkpoint: rx.train.Checkpoint, gate: threading.Event, tmp_path: Path
):
    with rx.train.CheckpointManager(checkpoint, tmp_path) as manager:
        manager.save()
        opener = threading.Timer(0.05, gate.set)
        opener.start()
        manager.save()
        opener.join()
        assert len(rx.train.list_checkpoints(tmp_path)) >= 1
    assert names(rx.train.list_checkpoints(tmp_path)) == ["ckpt-1", "ckpt-2"]


def test_another_manager_leaves_alone_what_is_being_written(
    checkpoint: rx.train.Checkpoint, gate: threading.Event, tmp_path: Path
):
    with rx.train.CheckpointManager(checkpoint, tmp_path) as manager:
        manager.save()
        rx.train.CheckpointManager(checkpoint, tmp_path)
        assert sorted(os.listdir(tmp_path)) == ["ckpt-1.replicax.lock", "ckpt-1.replicax.partial"]
        gate.set()
    assert os.listdir(tmp_path) == ["ckpt-1"]


def fail_to_write(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(_saving, "write_arrays", fail)


@pytest.mark.parametrize("way", ["wait", "close", "save", "latest_checkpoint", "sync", "with"])
def test_a_failure_in_the_background_is_not_lost(
    way: str, checkpoint: rx.train.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    manager = rx.train.CheckpointManager(checkpoint, tmp_path)
    before = manager.save()
    manager.wait()
    with monkeypatch.context() as patch:
        fail_to_write(patch, OSError(5, "Input/output error"))
        with pytest.raises(rx.errors.CheckpointError, match=r"Input/output error.*as they were"):
            manager.save()
            if way == "with":
                with manager:
                    pass
            elif way == "sync":
                checkpoint.sync()
            elif way == "latest_checkpoint":
                assert manager.latest_checkpoint
            else:
                getattr(manager, way)()
    assert os.listdir(tmp_path) == ["ckpt-1"]
    assert manager.latest_checkpoint == before
    path = manager.save()  # told once; then it goes on
    assert manager.latest_checkpoint == path


def test_the_users_own_error_comes_first(
    checkpoint: rx.train.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fail_to_write(monkeypatch, OSError(5, "Input/output error"))
    with pytest.raises(ZeroDivisionError) as caught:
        with rx.train.CheckpointManager(checkpoint, tmp_path) as manager:
            manager.save()
            raise ZeroDivisionError
    assert "Input/output error" in caught.value.__notes__[0]


def test_not_in_the_background(checkpoint: rx.train.Checkpoint, gate: Any, tmp_path: Path):
    gate.set()
    manager = rx.train.CheckpointManager(checkpoint, tmp_path, asynchronous=False)
    path = manager.save()
    assert rx.train.list_checkpoints(tmp_path) == [path]


AT_EXIT = """
import sys
import replicax as rx
from replicax._src.checkpoints import _saving

manager = rx.train.CheckpointManager(rx.train.Checkpoint(v=rx.Variable(1.0)), "here")
if sys.argv[1] == "fail":
    def fail(*args):
        raise OSError(5, "Input/output error")
    _saving.write_arrays = fail
manager.save()
"""


def test_the_end_of_the_program_waits_and_tells(tmp_path: Path):
    (tmp_path / "program.py").write_text(AT_EXIT)
    assert run_python(["program.py", "work"], tmp_path, warm=True) == ""
    assert names(rx.train.list_checkpoints(tmp_path / "here")) == ["ckpt-1"]
    output = run_python(["program.py", "fail"], tmp_path, warm=True)
    assert "could not be saved in the background" in output and "Input/output error" in output


def test_leftovers_are_removed(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    for name in ("ckpt-7.replicax.partial", "ckpt-8.replicax.replaced", "ckpt-9.replicax.removed"):
        (tmp_path / name / "arrays").mkdir(parents=True)
    (tmp_path / "ckpt-6.replicax.lock").touch()
    (tmp_path / "ckpt-8").mkdir()
    rx.train.CheckpointManager(checkpoint, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["ckpt-8"]


def test_killed_between_two_renames(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    path = checkpoint.write(tmp_path / "ckpt-1")
    os.rename(path, path + ".replicax.replaced")
    manager = rx.train.CheckpointManager(checkpoint, tmp_path)
    assert manager.latest_checkpoint == path
    assert _folder.verify(path)


def test_what_is_being_written_is_found(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    """`save` returns before all is on the disk; whoever asks for the latest waits for it."""
    manager = rx.train.CheckpointManager(checkpoint, tmp_path, 2)
    for count in range(1, 9):
        checkpoint.step.assign(count)
        path = manager.save()
        assert path is not None
        other = rx.train.Checkpoint(v=rx.Variable(0.0), step=rx.Variable(0))
        if count % 4 == 0:
            assert rx.train.latest_checkpoint(tmp_path) == path
            other.restore(path)
        elif count % 4 == 1:
            assert rx.train.list_checkpoints(tmp_path)[-1] == path
            other.restore(rx.train.latest_checkpoint(tmp_path))
        elif count % 4 == 2:
            other.restore(path)
        else:
            other.step.assign(int(rx.train.load_variable(path, "step")))
        assert other.step.numpy() == count
    manager.close()
