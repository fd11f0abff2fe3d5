"""What every test and doctest needs: eight virtual CPU devices, and guards against leaks.

The devices must be asked for before JAX uses its first one, so that happens here, on import.
The guards are written in `tests/guards.py`; fixtures that only tests need in `tests/conftest.py`.
"""

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

# Where images and shells ask for no bytecode, each of the hundreds of processes that tests start
# would compile the library once more, and each of pytest's own all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import jax  # noqa: E402
import pytest  # noqa: E402
from _pytest.doctest import DoctestModule  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests import guards, memory, quick_compiles, quick_imports  # noqa: E402

# `REPLICAX_TEST_PLATFORM=cuda` runs the same tests beside a GPU; the CPU devices stay.
_platform = os.environ.get("REPLICAX_TEST_PLATFORM")
jax.config.update("jax_platforms", f"{_platform},cpu" if _platform else "cpu")
jax.config.update("jax_num_cpu_devices", 8)
quick_compiles.set_here()
quick_imports.set_here()
# Keras looks once, when it is imported.
os.environ["KERAS_BACKEND"] = "jax"

# A shell ignores Ctrl-C for what it starts in the background, and so would the programs of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling a new shape takes longer than hypothesis expects of one example; and the fixtures that
# it would have made anew for each (`strategy`, `executor`) keep nothing from one to the next.
# The examples are the same in each run: a change is not blamed for what was always wrong.
# `REPLICAX_TEST_RANDOM=1` looks for others.
settings.register_profile(
    "replicax",
    deadline=None,
    derandomize="REPLICAX_TEST_RANDOM" not in os.environ,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("replicax")

_keeper = memory.Keeper()
_SOURCE = guards.ROOT / "src"


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Has one process more than cores: tests of processes wait, for each other and for limits."""
    cores = yield
    return cores if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else cores + 1


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], Any]:
    """Looks for examples in the docstrings of the source alone: tests have none."""
    collectors = yield
    if file_path.is_relative_to(_SOURCE):
        return collectors
    return [each for each in collectors if not isinstance(each, DoctestModule)]


def pytest_collection_finish() -> None:
    """Spares each collection of garbage the look at all tests and modules, which stay anyway."""
    gc.freeze()
    # A trace makes thousands of objects that stay until it is done: looking for garbage that
    # often took a twentieth of the time.
    gc.set_threshold(10_000, 10, 10)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Has a test that collects garbage look at its own: others have left a million objects."""
    if getattr(getattr(item, "module", None), "gc", None) is gc:
        gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Keeps the process of tests small."""
    _keeper.look()


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest):
    """Fails a test that leaves behind a context, a thread, an environment variable or a file."""
    before = guards.take_snapshot()
    yield
    if problems := guards.clean_up_and_list(before):
        pytest.fail(f"{request.node.nodeid} leaked " + "; ".join(problems), pytrace=False)
