"""The libraries whose data sets are met here."""

import importlib
import warnings
from typing import Any

import pytest

LIBRARIES = ("torch", "grain", "tensorflow", "datasets")


@pytest.fixture(scope="module", autouse=True)
def libraries() -> dict[str, Any]:
    """Those that are installed. Imported before the first test: they change the environment."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in LIBRARIES:
            try:
                found[name] = importlib.import_module(name)
            except ImportError:
                continue
        if "datasets" in found:
            found["datasets"].disable_progress_bars()
            importlib.import_module("tqdm").tqdm.monitor_interval = 0  # it would start a thread
    return found
