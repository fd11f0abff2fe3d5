"""Fixtures for tests of meaning: each runs over all strategies and all executors.

The set-up of devices and the leak guards are in the root `conftest.py`, because doctests need
them as well.
"""

from typing import Any

import pytest

from tests.under_test import EXECUTORS, STRATEGIES, Executor


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Any:
    """Every strategy in turn, over virtual CPU devices."""
    return STRATEGIES[request.param]()


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Executor:
    """Every executor in turn: `executor.run(strategy, fn, args, kwargs)`."""
    return EXECUTORS[request.param]()
