"""The libraries of `requirements.txt`, for tests that need them; where one is missing, they skip.

`make test-integrations` installs all of them into an environment of its own.
"""

import gc
import importlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest


def _imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            return None


@pytest.fixture(scope="session", autouse=True)
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that are there, before the first test: importing them changes the environment.

    Keras imports TensorFlow and torch where it finds them, to see whether it got their tensors.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("torch")))
    names = ("torch", "tensorflow", "grain", "datasets", "tensorboardX")
    return {name: module for name in names if (module := _imported(name)) is not None}


@pytest.fixture(autouse=True)
def nothing_left_to_collect() -> Iterator[None]:
    """Grain's threads end when their iterator is collected."""
    yield
    gc.collect()


def _installed(libraries: dict[str, Any], name: str) -> Any:
    if name not in libraries:
        pytest.skip(f"{name} is not installed: make test-integrations")
    return libraries[name]


@pytest.fixture(scope="session")
def torch(libraries: dict[str, Any]) -> Any:
    return _installed(libraries, "torch")


@pytest.fixture(scope="session")
def tensorflow(libraries: dict[str, Any]) -> Any:
    return _installed(libraries, "tensorflow")


@pytest.fixture(scope="session")
def grain(libraries: dict[str, Any]) -> Any:
    return _installed(libraries, "grain")


@pytest.fixture(scope="session")
def datasets(libraries: dict[str, Any]) -> Any:
    found = _installed(libraries, "datasets")
    found.disable_progress_bars()
    _imported("tqdm").tqdm.monitor_interval = 0  # it would start a thread
    return found


@pytest.fixture(scope="session")
def tensorboard(tensorflow: Any) -> Any:
    """Reads what others wrote; `tf.summary` needs it to write."""
    found = _imported("tensorboard.backend.event_processing.event_accumulator")
    if found is None:
        pytest.skip("tensorboard is not installed: make test-integrations")
    return found
