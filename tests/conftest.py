"""Fixtures for tests of meaning: each runs over all strategies and all executors.

The set-up of devices and the leak guards are in the root `conftest.py`, because doctests need
them as well.
"""

import zlib
from typing import Any

import pytest

from tests.everything import EVERYTHING
from tests.under_test import EXECUTORS, STRATEGIES, Executor

_COMBINATIONS = [(strategy, executor) for strategy in STRATEGIES for executor in EXECUTORS]
# Tests of several processes, which a busy machine may let wait for longer than any limit: folders,
# files, or tests in them.
REAL_PROCESSES = (
    *("checkpoints/test_kills.py", "checkpoints/test_many_workers.py", "cli/", "cluster/"),
    *("checkpoints/test_two_programs.py", "executors/test_interruptions.py"),
    *("compat/test_estimator_workers.py", "compat/test_v1_multiprocess.py"),
    "divergence/test_check.py::test_workers_that_differ",
    *("executors/test_concurrency.py", "integrations/test_keras_on_servers.py"),
    *("multi_worker/", "parameter_servers/test_coordinator.py"),
    *("parity/test_workers.py", "parity/test_workers_training.py", "parity/test_one_worker.py"),
    *("recording/test_replay.py", "recording/test_faults.py"),
    "strategies/test_tpu_system.py::test_hosts_of_a_pod_meet_and_have_one_topology",
    "test_docs.py::test_code_in_page_runs[docs/strategies/parameter-servers.md]",
    *("test_examples.py", "test_pairs.py", "test_processes.py"),
    "watching/test_one_speaks.py",
)


# Both executors run each test with this one.
_WITH_BOTH = "mirrored_2"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves combinations out, and gives tests of real processes a second chance.

    The summary lists those that took it.
    """
    if not EVERYTHING and not any("[" in asked_for for asked_for in config.args):
        left_out = _not_in_cover(items)
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(REAL_PROCESSES):
            item.add_marker(pytest.mark.flaky(reruns=1))


def _not_in_cover(items: list[pytest.Item]) -> list[pytest.Item]:
    """Returns the items that others stand for, of those over all strategies times all executors.

    Each test runs over every strategy: with one of them under both executors, with the others
    under one or the other in turns. What it runs eagerly, the next test runs compiled.
    """
    by_test: dict[tuple[str, ...], dict[tuple[str, str], pytest.Item]] = {}
    for item in items:
        if (case := getattr(item, "callspec", None)) is None:
            continue
        chosen = (case.params.get("strategy"), case.params.get("executor"))
        if chosen in _COMBINATIONS:
            rest = [word for word in case.id.split("-") if word not in chosen]
            test = (item.nodeid.partition("[")[0], *rest)
            by_test.setdefault(test, {})[chosen] = item
    left_out: list[pytest.Item] = []
    for test, found in by_test.items():
        if len(found) == len(_COMBINATIONS):  # others have chosen themselves what they need
            first = zlib.crc32("-".join(test).encode()) % len(EXECUTORS)
            for number, (strategy, executor) in enumerate(_COMBINATIONS):
                is_its_turn = (first + number // len(EXECUTORS) + number) % len(EXECUTORS) == 0
                if strategy != _WITH_BOTH and not is_its_turn:
                    left_out.append(found[strategy, executor])
    return left_out


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Any:
    """Every strategy in turn, over virtual CPU devices."""
    return STRATEGIES[request.param]()


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Executor:
    """Every executor in turn: `executor.run(strategy, fn, args, kwargs)`."""
    return EXECUTORS[request.param]()
