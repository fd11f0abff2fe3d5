"""`rx.launch`: functions in workers on this host. On Ray: `test_ray_node.py`."""

import importlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.cli import launch_function
from tests.cli.launches import environment

DATA = np.arange(3.0, dtype=np.float32)


class OwnError(ValueError):
    """Of the program that launches."""


def test_the_first_worker_returns_a_result(capfd: pytest.CaptureFixture[str]):
    added = 1

    def train(times: int) -> dict[str, Any]:
        strategy = rx.distribute.MultiWorkerMirroredStrategy()
        worker = strategy.cluster_resolver.task_id
        print("here is", worker, os.environ["EPOCHS"])
        sums = strategy.reduce("SUM", strategy.run(lambda: jnp.asarray(DATA) + added), axis=None)
        return {"sums": sums * times, "worker": worker}

    told = {**environment(), "EPOCHS": "3"}
    found = rx.launch(train, 2, workers=2, environment=told)
    assert type(found["sums"]) is np.ndarray and found["worker"] == 0
    np.testing.assert_array_equal(found["sums"], [4.0, 8.0, 12.0])
    assert sorted(capfd.readouterr().out.splitlines()) == [
        *("[worker 0] here is 0 3", "[worker 1] here is 1 3")
    ]


def test_what_a_worker_raises(capfd: pytest.CaptureFixture[str]):
    def fail() -> None:
        raise OwnError("no luck")

    with pytest.raises(OwnError, match="no luck") as raised:
        rx.launch(fail, workers=1)
    assert "It was raised in worker 0" in raised.value.__notes__[-1]
    assert "in fail\n" in raised.value.__notes__[-1]
    assert "[worker 0] " in capfd.readouterr().out


def test_workers_that_are_killed_or_slow(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(rx.errors.WorkerLostError, match="worker 0 was killed by SIGKILL"):
        rx.launch(lambda: os.kill(os.getpid(), 9), workers=1)
    with pytest.raises(TimeoutError, match="not finished in 3 s.*They were at: .*`timeout`"):
        rx.launch(lambda: time.sleep(100), workers=1, timeout=3)


def test_a_module_that_launches_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    (tmp_path / "launches_at_once.py").write_text(
        "import os, replicax as rx\n"
        "def train(): pass\n"
        "if 'TF_CONFIG' in os.environ:  # the workers; the test launches for the program\n"
        "    rx.launch(train, workers=1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    train = importlib.import_module("launches_at_once").train
    with pytest.raises(RuntimeError, match=r"imported the module of its .* `if __name__ =="):
        rx.launch(train, workers=1)


def test_what_cannot_be_returned(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(TypeError, match="returned in the first worker, a lock, .*NumPy arrays"):
        rx.launch(lambda: __import__("threading").Lock(), workers=1)


LOCK = threading.Lock()


def test_what_cannot_be_sent():
    array, variable = jnp.ones(2), rx.Variable(1.0)
    with pytest.raises(TypeError, match=r"`array` \(of type jax\.Array\) cannot .*NumPy arrays"):
        rx.launch(lambda: array, workers=2)
    with pytest.raises(TypeError, match=r"`variable` \(of type Variable\).*Make it inside"):
        rx.launch(lambda: variable, workers=2)
    with pytest.raises(TypeError, match=r"`LOCK` \(of type lock\)"):
        rx.launch(lambda: LOCK, workers=2)
    with pytest.raises(TypeError, match=r"argument 1 \(of type lock\)"):
        rx.launch(print, 1, LOCK, workers=2)
    with pytest.raises(TypeError, match="takes a function and its arguments; got 'train.py'"):
        rx.launch("train.py", workers=2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="workers 0"):
        rx.launch(print, workers=0)


@pytest.mark.parametrize("error", [OSError, ValueError])
def test_errors_of_a_launch_that_prints_to_standard_output(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)  # of the descriptor 1
    with pytest.raises(error, match="no way"), launch_function._console() as log:
        log.close(60.0)
        raise error("no way")
