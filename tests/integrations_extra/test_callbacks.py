"""Callbacks of Weights & Biases and MLflow on one worker, with the packages themselves, offline."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.guards import ROOT
from tests.scripts import run_python

PAGE = (ROOT / "docs" / "keras.md").read_text(encoding="utf-8")
PROGRAM = """
import os
os.environ.update(
    KERAS_BACKEND="jax", WANDB_MODE="offline", WANDB_SILENT="true", MLFLOW_ALLOW_FILE_STORE="true",
    MLFLOW_TRACKING_URI="file:" + os.path.abspath("mlruns"),
)
import keras
import numpy as np
import replicax as rx
{block}
with rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.ones((32, 3), np.float32)
callbacks = [rx.train.callback_on_first_worker({make})]
print(model.fit(x, x.sum(1), epochs=2, verbose=0, callbacks=callbacks).history["loss"])
"""


def run(make: str, folder: Path) -> str:
    """Runs `fit` with what the page of Keras says."""
    [block] = [
        each
        for each in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
        if "import wandb" in each
    ]
    (folder / "train.py").write_text(PROGRAM.format(block=block, make=make), encoding="utf-8")
    return run_python(["train.py"], folder)


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make test-integrations")


def test_weights_and_biases(tmp_path: Path):
    needs("wandb")
    run("report", tmp_path)
    [recorded] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert recorded.read_bytes().count(b"loss") >= 2


def test_mlflow(tmp_path: Path):
    needs("mlflow", "pandas")
    losses = re.findall(r"\d\.\d{4}", run("report_to_mlflow", tmp_path))
    [recorded] = tmp_path.glob("mlruns/0/*/metrics/loss")
    assert re.findall(r" (\d\.\d{4})\d* ", recorded.read_text()) == losses
