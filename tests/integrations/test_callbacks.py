"""Callbacks that one worker has: Weights & Biases, MLflow and their like, with stand-ins.

`tests/integrations_extra/test_callbacks.py` has the packages themselves.
"""

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import replicax as rx
from tests.integrations.keras_programs import X, Y, keras, mlp, seeded
from tests.replicas import mirrored


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What stand-ins for the two services were told."""
    told: list[Any] = []

    class Logger(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            told.append((epoch, sorted(logs)))

    wandb: Any = ModuleType("wandb")

    def begins(**given: Any) -> Any:
        told.append(("begins", given))
        return SimpleNamespace(log=lambda logs, step: told.append((step, sorted(logs))))

    wandb.init = begins
    mlflow: Any = ModuleType("mlflow")
    mlflow.start_run = lambda: told.append("begins")
    mlflow.keras = SimpleNamespace(MlflowCallback=Logger)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return told


def report() -> Any:
    import wandb  # pyright: ignore[reportMissingImports]

    run = wandb.init(project="digits")
    return keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: run.log(logs, step=epoch)
    )


def report_to_mlflow() -> Any:
    import mlflow  # pyright: ignore[reportMissingImports]

    mlflow.start_run()
    return mlflow.keras.MlflowCallback()


def in_cluster(monkeypatch: pytest.MonkeyPatch, kind: str, index: int) -> None:
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_one_process_reports(reported: list[Any]):
    both = [rx.train.callback_on_first_worker(make) for make in (report, report_to_mlflow)]
    seeded(mlp, mirrored(2)).fit(X, Y, epochs=1, verbose=0, callbacks=both)
    each = (0, ["loss"])
    assert reported == [("begins", {"project": "digits"}), "begins", each, each]


@pytest.mark.parametrize(
    ("kind", "index", "has_it"), [("worker", 0, True), ("worker", 1, False), ("evaluator", 0, True)]
)
def test_which_worker_has_it(
    kind: str, index: int, has_it: bool, reported: list[Any], monkeypatch: pytest.MonkeyPatch
):
    in_cluster(monkeypatch, kind, index)
    made = rx.train.callback_on_first_worker(report)
    assert isinstance(made, keras.callbacks.Callback)
    assert bool(reported) == has_it == (type(made) is not keras.callbacks.Callback)


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match="wandb, .* not installed .*pip install wandb"):
        rx.train.callback_on_first_worker(report)
    in_cluster(monkeypatch, "worker", 1)
    rx.train.callback_on_first_worker(report)  # it has no need of it


def test_a_callback_in_place_of_a_function():
    with pytest.raises(TypeError, match="takes a function that makes the callback.*lambda"):
        rx.train.callback_on_first_worker(keras.callbacks.Callback())
