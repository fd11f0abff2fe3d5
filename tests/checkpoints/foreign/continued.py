"""A model that was trained in TensorFlow goes on here: step by step as it did there."""

from pathlib import Path
from typing import Any

import numpy as np

import replicax as rx
from tests.checkpoints.foreign import models


def recorded(folder: Path) -> dict[str, np.ndarray]:
    """Returns what TensorFlow had before and after its further steps, and their losses."""
    with np.load(folder / "continued.npz") as found:
        return {key: found[key] for key in found.files}


def assert_values(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], when: str) -> None:
    assert {f"{when}/{key}" for key in found} == {key for key in wanted if key.startswith(when)}
    for key, value in found.items():
        np.testing.assert_allclose(value, wanted[f"{when}/{key}"], rtol=1e-4, atol=1e-4)


def assert_goes_on(keras: Any, folder: Path, name: str, strategy: rx.distribute.Strategy) -> None:
    """Restores a model from what `record.py` wrote, and makes the same steps."""
    wanted = recorded(folder)
    with strategy.scope():
        model = models.built(keras, name)
    checkpoint = rx.train.Checkpoint(model=model, optimizer=model.optimizer)
    checkpoint.read(folder / "saved").assert_consumed()
    for key, value in models.values_of(model).items():
        np.testing.assert_array_equal(value, wanted[f"before/{key}"])
    losses = models.train(keras, model, name, 1)
    assert len(losses) == models.STEPS
    np.testing.assert_allclose(losses, wanted["losses"], rtol=1e-4)
    assert_values(models.values_of(model), wanted, "after")
