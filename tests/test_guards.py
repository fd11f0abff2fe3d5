"""The leak guards see each kind of leak, say what it was, and undo it for the next test."""

import os
import threading
from pathlib import Path

import pytest

import replicax as rx
from replicax._src.context import _stack
from tests import guards


def leaks_of(action) -> list[str]:
    before = guards.take_snapshot()
    action()
    return guards.clean_up_and_list(before)


def test_nothing_leaked():
    def well_behaved():
        strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            strategy.run(lambda: None)

    assert leaks_of(well_behaved) == []


def test_scope_left_open():
    (problem,) = leaks_of(rx.distribute.MirroredStrategy(["CPU:0"]).scope().__enter__)
    assert "context" in problem
    assert not rx.distribute.has_strategy()


def test_strategy_set_and_not_unset():
    strategy = rx.distribute.MirroredStrategy(["CPU:0"])
    (problem,) = leaks_of(lambda: rx.distribute.experimental_set_strategy(strategy))
    assert "context" in problem
    rx.distribute.experimental_set_strategy(None)
    assert not rx.distribute.has_strategy()


def test_creator_scope_left_open():
    # Put there by hand: a scope that is not left at all complains when it is collected.
    (problem,) = leaks_of(lambda: _stack.thread_state.creators.append(lambda following: None))
    assert "variable_creator_scope" in problem
    assert not _stack.thread_state.creators


def test_thread_left_running(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guards, "_THREAD_GRACE", 0.05)
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="stray")
    (problem,) = leaks_of(thread.start)
    end.set()
    thread.join()
    assert "'stray'" in problem


def test_environment_variable_set_and_unset(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REPLICAX_OLD", "1")

    def change():
        os.environ["REPLICAX_NEW"] = "1"
        del os.environ["REPLICAX_OLD"]

    new, old = leaks_of(change)
    assert "REPLICAX_NEW" in new and "REPLICAX_OLD" in old
    assert "REPLICAX_NEW" not in os.environ and os.environ["REPLICAX_OLD"] == "1"


def test_file_and_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()

    def change():
        (tmp_path / "left.txt").touch()
        os.chdir(tmp_path / "sub")

    directory, file = leaks_of(change)
    assert "working directory" in directory and "left.txt" in file
    assert Path.cwd() == tmp_path
