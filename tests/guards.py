"""Guards against leaks: what a test may not leave behind, and how to undo it for the next test.

Used by the autouse fixture `no_leaks` in the root `conftest.py`, so by doctests too.
"""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from replicax._src.context import _stack

ROOT = Path(__file__).resolve().parent.parent

# Replica threads are kept and reused by design; pytest-timeout may use a timer thread.
_KEPT_THREADS = ("replicax-replica-", "pytest_timeout")
# The first changes with every phase of every test. The test that is the first to import Keras or
# Ray sets the others.
_VARIABLES_OF_OTHERS = (
    "PYTEST_CURRENT_TEST",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "RAY_CLIENT_MODE",
    "TF_FORCE_GPU_ALLOW_GROWTH",
)
# How long a thread that is about to end may take to do so, in seconds.
_THREAD_GRACE = 60.0


class Snapshot(NamedTuple):
    """The state of the process before a test."""

    environment: dict[str, str]
    directory: str
    files: frozenset[str]
    threads: frozenset[int]


def take_snapshot() -> Snapshot:
    """Returns what a test finds when it starts."""
    return Snapshot(
        environment=_environment(),
        directory=os.getcwd(),
        files=frozenset(_files(os.getcwd())),
        threads=frozenset(thread.ident or 0 for thread in threading.enumerate()),
    )


def clean_up_and_list(before: Snapshot) -> list[str]:
    """Returns a line for each leak since `before`, and undoes what can be undone."""
    return [*_contexts(), *_new_threads(before), *_new_variables(before), *_new_files(before)]


def _contexts() -> Iterator[str]:
    state = _stack.thread_state
    if depth := _stack.depth():
        yield f"{depth} context(s) still on the stack: leave each scope that the test entered"
        state.set_strategy = None
        state.frames.clear()
    if state.creators:
        yield f"{len(state.creators)} variable creator(s): leave each variable_creator_scope"
        state.creators.clear()


def _new_threads(before: Snapshot) -> Iterator[str]:
    def leaked() -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread.ident not in before.threads and not thread.name.startswith(_KEPT_THREADS)
        ]

    end = time.monotonic() + _THREAD_GRACE
    while (threads := leaked()) and time.monotonic() < end:
        threads[0].join(0.05)
    for thread in threads:
        yield f"the thread {thread.name!r}: join it before the test ends"


def _new_variables(before: Snapshot) -> Iterator[str]:
    now = _environment()
    for name in sorted(before.environment.keys() | now.keys()):
        old, new = before.environment.get(name), now.get(name)
        if old == new:
            continue
        yield f"the environment variable {name} ({old!r} became {new!r}): use monkeypatch.setenv"
        if old is None:
            del os.environ[name]
        else:
            os.environ[name] = old


def _new_files(before: Snapshot) -> Iterator[str]:
    if os.getcwd() != before.directory:
        yield f"the working directory {os.getcwd()}: use monkeypatch.chdir"
        os.chdir(before.directory)
    for path in sorted(set(_files(before.directory)) - before.files):
        yield f"the file {path}: write to tmp_path"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _VARIABLES_OF_OTHERS}


def _files(directory: str) -> Iterator[str]:
    """Yields what lies in the project's root and in `directory`; caches (dot names) may come."""
    for folder in {str(ROOT), directory}:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.name != "__pycache__":
                    yield entry.path
