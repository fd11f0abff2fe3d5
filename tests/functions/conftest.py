"""A fresh count of compilations for each test."""

import pytest

from replicax._src.training import _gradients


@pytest.fixture(autouse=True)
def forgotten_counts() -> None:
    """The warning about a loss that compiles often counts per loss, not per run of a test."""
    _gradients._losses._counts.clear()
