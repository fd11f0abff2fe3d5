"""The TensorBoard callback of Keras under a strategy, and TensorBoard as a reader of ours."""

import sys
from pathlib import Path
from typing import Any

import keras
import pytest

import replicax as rx
from tests.integrations.keras_programs import X, Y, mlp, same, seeded
from tests.replicas import mirrored


def read(tensorboard: Any, folder: Path) -> Any:
    found = tensorboard.EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    return found


def values(tensorflow: Any, events: Any, tag: str) -> list[float]:
    return [float(tensorflow.make_ndarray(each.tensor_proto)) for each in events.Tensors(tag)]


def test_the_callback_writes_what_was_learned(tensorflow: Any, tensorboard: Any, tmp_path: Path):
    model = seeded(lambda: mlp(metrics=["mae"]), mirrored(4))
    callback = keras.callbacks.TensorBoard(str(tmp_path), histogram_freq=1, write_images=True)
    arguments: Any = {"batch_size": 8, "epochs": 2, "verbose": 0, "callbacks": [callback]}
    history = model.fit(X, Y, validation_data=(X, Y), **arguments).history
    training = read(tensorboard, tmp_path / "train")
    validation = read(tensorboard, tmp_path / "validation")
    for name in ("loss", "mae"):
        same(values(tensorflow, training, f"epoch_{name}"), history[name])
        same(values(tensorflow, validation, f"epoch_{name}"), history[f"val_{name}"])
    tags = training.Tags()["tensors"]
    assert [tag for tag in tags if tag.endswith("kernel/histogram")], tags


def test_losses_of_every_batch(tensorflow: Any, tensorboard: Any, tmp_path: Path):
    model = seeded(mlp, mirrored(4))
    callback = keras.callbacks.TensorBoard(str(tmp_path), update_freq="batch")
    arguments: Any = {"batch_size": 4, "epochs": 2, "verbose": 0, "callbacks": [callback]}
    model.fit(X[:12], Y[:12], **arguments)
    assert len(values(tensorflow, read(tensorboard, tmp_path / "train"), "batch_loss")) == 6


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Keras profiles JAX from Python 3.12 on")
def test_a_profile_of_a_batch(tensorflow: Any, tensorboard: Any, tmp_path: Path):
    model = seeded(mlp, mirrored(2))
    callback = keras.callbacks.TensorBoard(str(tmp_path), profile_batch=2)
    arguments: Any = {"batch_size": 4, "epochs": 1, "verbose": 0, "callbacks": [callback]}
    model.fit(X[:12], Y[:12], **arguments)
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_tensorboard_reads_summaries_of_ours(tensorboard: Any, tmp_path: Path):
    writer = rx.summary.create_file_writer(tmp_path)
    with writer.as_default():
        for step in range(3):
            rx.summary.scalar("loss", 1 / (step + 1), step=step)
    writer.close()
    events = read(tensorboard, tmp_path)
    found = [(each.step, each.value) for each in events.Scalars("loss")]
    assert found == [(0, 1), (1, 0.5), (2, pytest.approx(1 / 3))]
