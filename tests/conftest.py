"""Fixtures for tests of meaning: each runs over all strategies and all executors.

The set-up of devices and the leak guards are in the root `conftest.py`, because doctests need
them as well.
"""

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.under_test import EXECUTORS, STRATEGIES, Executor

HERE = Path(__file__).parent
# Their tests start processes, which a busy machine may let wait for longer than any limit.
REAL_PROCESSES = (
    *("checkpoints/test_kills.py", "checkpoints/test_many_workers.py", "cli", "cluster"),
    *("checkpoints/test_two_programs.py", "executors/test_interruptions.py"),
    *("compat/test_estimator_workers.py", "compat/test_v1_multiprocess.py"),
    *("executors/test_concurrency.py", "multi_worker", "test_examples.py", "test_pairs.py"),
    "test_processes.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives tests of real processes a second chance; the summary lists those that took it."""
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        if _starts_processes(item.path):
            item.add_marker(pytest.mark.flaky(reruns=1))


@functools.cache
def _starts_processes(path: Path) -> bool:
    return any(path.is_relative_to(HERE / each) for each in REAL_PROCESSES)


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Any:
    """Every strategy in turn, over virtual CPU devices."""
    return STRATEGIES[request.param]()


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Executor:
    """Every executor in turn: `executor.run(strategy, fn, args, kwargs)`."""
    return EXECUTORS[request.param]()
