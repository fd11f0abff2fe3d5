"""Fixtures for tests of many workers."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ._job import Played
from ._layout import Layout
from ._plan import play_once


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the workers of a job observed: `played(layout)`, played once in a test run."""
    known: dict[str, Played] = {}
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # each process of the run has a folder of its own in there

    def of(layout: Layout) -> Played:
        if layout.name not in known:
            known[layout.name] = play_once(layout, folder)
        return known[layout.name]

    return of
