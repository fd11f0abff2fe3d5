"""A model that was trained and saved under a strategy opens with Keras's other backends."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integrations.keras_programs import X, Y, mlp, seeded
from tests.replicas import mirrored

PROGRAM = """
import keras, numpy as np
model = keras.models.load_model("model.keras")
rows = np.load("rows.npy")
np.save("outputs.npy", model.predict(rows, verbose=0))
print(int(model.optimizer.iterations))
"""


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_a_saved_model_opens_elsewhere(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
):
    request.getfixturevalue(backend)
    model: Any = seeded(mlp, mirrored(4))
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "rows.npy", X)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[-1]) == 4  # steps that the optimizer counted
    outputs = np.load(tmp_path / "outputs.npy")
    np.testing.assert_allclose(outputs, model.predict(X, verbose=0), atol=1e-5)
