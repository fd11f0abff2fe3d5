"""`SidecarEvaluator`: which checkpoints are evaluated, with which values, and when it ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from replicax._src.checkpoints import _sidecar
from tests.integrations.keras_programs import X, Y, keras, mlp, seeded
from tests.replicas import mirrored


class Seen(keras.callbacks.Callback):
    """Keeps the losses of evaluations, and the step that they belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[tuple[int, float]] = []

    def on_test_end(self, logs: Any = None) -> None:
        assert self.model is not None
        self.losses.append((int(self.model.optimizer.iterations), logs["loss"]))


def trained(folder: Path, epochs: int) -> list[tuple[int, float]]:
    """Trains and saves after each epoch; returns what evaluation gives then."""
    model = seeded(mlp, mirrored(2))
    manager = rx.train.CheckpointManager(
        rx.train.Checkpoint(model=model, optimizer=model.optimizer), folder, max_to_keep=None
    )
    seen = Seen()
    for _ in range(epochs):
        model.fit(X, Y, epochs=1, verbose=0, shuffle=False)
        model.evaluate(X, Y, verbose=0, callbacks=[seen])
        manager.save()
    manager.wait()
    return seen.losses


def test_new_checkpoints_are_evaluated_until_the_last(tmp_path: Path):
    expected = trained(tmp_path / "all", 3)
    folder = tmp_path / "seen"
    folder.mkdir()
    (tmp_path / "all" / "ckpt-1").rename(folder / "ckpt-1")
    seen = Seen()

    class Next(keras.callbacks.Callback):
        def on_test_end(self, logs: Any = None) -> None:
            left = sorted((tmp_path / "all").iterdir())
            if left:
                left[0].rename(folder / left[0].name)

    model = seeded(mlp, mirrored(4))
    data = rx.data.Dataset.from_tensor_slices((X, Y)).batch(len(X))
    rx.train.SidecarEvaluator(model, data, folder, None, 3, [seen, Next()]).start()
    assert [step for step, _ in seen.losses] == [step for step, _ in expected]
    assert [loss for _, loss in seen.losses] == pytest.approx([loss for _, loss in expected])


def test_waiting_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def waited(*_: object, timeout_fn: Callable[[], bool], **__: object) -> list[str]:
        assert not timeout_fn()  # it goes on
        return []

    monkeypatch.setattr(_sidecar, "checkpoints_iterator", waited)
    rx.train.SidecarEvaluator(seeded(mlp), (X, Y), tmp_path).start()
    assert f"waits for a new checkpoint in {tmp_path}" in capsys.readouterr().err


def test_what_cannot_be_evaluated(tmp_path: Path):
    model = seeded(mlp, mirrored(2))
    rx.train.Checkpoint(net=model).save(str(tmp_path / "ckpt"))
    with pytest.raises(rx.errors.CheckpointError, match="nothing named `model`; it has .*net"):
        rx.train.SidecarEvaluator(model, X, tmp_path, max_evaluations=1).start()
    with pytest.raises(TypeError, match="takes a compiled Keras model, which has `evaluate`"):
        rx.train.SidecarEvaluator("model", X, tmp_path)  # pyright: ignore[reportArgumentType]
