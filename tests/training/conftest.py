"""A fresh count of compilations for each test."""

import pytest

from replicax.training import _compiled_loss


@pytest.fixture(autouse=True)
def forgotten_histories() -> None:
    """The warning about a loss that compiles often counts per loss, not per run of a test."""
    _compiled_loss._histories.clear()
