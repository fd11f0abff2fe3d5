"""Keras callbacks under a strategy."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.integrations.keras import _tensorboard
from tests.integrations.keras_programs import X, Y, fitted, keras, layers, mlp, ready, same, seeded
from tests.replicas import mirrored
from tests.watching.event_files import events_in

callbacks = keras.callbacks


@pytest.fixture
def model() -> Any:
    return seeded(lambda: mlp(metrics=["mae"]), mirrored(4))


def test_models_are_written_and_loaded(model: Any, tmp_path: Path):
    best = callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss", save_best_only=True)
    each = callbacks.ModelCheckpoint(
        tmp_path / "{epoch}.weights.h5", save_weights_only=True, save_freq="epoch"
    )
    found = fitted(model, epochs=3, callbacks=[best, each])
    assert sorted(p.name for p in tmp_path.glob("*.h5")) == [f"{n}.weights.h5" for n in (1, 2, 3)]
    loaded = seeded(lambda: keras.models.load_model(tmp_path / "best.keras"), mirrored(2))
    last = seeded(mlp)
    last.load_weights(tmp_path / "3.weights.h5")
    same(last.get_weights(), found["weights"], atol=0)
    same(loaded.predict(X, verbose=0), model.predict(X, verbose=0))


def test_early_stopping_brings_the_best_weights_back(model: Any):
    weights = []
    keep = callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(model.get_weights())
    )
    stop = callbacks.EarlyStopping("mae", mode="max", patience=1, restore_best_weights=True)
    history = fitted(model, epochs=9, callbacks=[keep, stop])["history"]
    assert len(history["loss"]) == 2
    same(model.get_weights(), weights[0], atol=0)


def test_logs_of_every_batch_are_those_of_one_device(tmp_path: Path):
    def program(model: Any) -> Any:
        seen: list[Any] = []
        watch = callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(dict(logs)),
            on_train_begin=lambda logs: seen.append({"begin": 1.0}),
        )
        log = callbacks.CSVLogger(tmp_path / "log.csv")
        history = fitted(model, callbacks=[watch, log])["history"]
        with open(tmp_path / "log.csv") as file:
            rows = [float(row["loss"]) for row in csv.DictReader(file)]
        np.testing.assert_allclose(rows, history["loss"])
        assert len(seen) == 5
        return seen, history

    def make() -> Any:
        return mlp(metrics=["mae"])

    same(program(seeded(make, mirrored(4))), program(seeded(make)))


def test_weights_can_be_read_and_set_between_batches(model: Any):
    class Halve(callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.set_weights([w / 2 for w in self.model.get_weights()])

    plain = seeded(lambda: mlp(metrics=["mae"]))
    found, expected = (fitted(each, shuffle=False, callbacks=[Halve()]) for each in (model, plain))
    same(found, expected)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_training_ends_at_a_loss_that_is_no_number(model: Any, capsys: Any):
    bad = X.copy()
    bad[0] = np.nan  # a row of one replica only
    history = fitted(
        *(model, bad), shuffle=False, epochs=5, callbacks=[callbacks.TerminateOnNaN()]
    )["history"]
    assert len(history["loss"]) == 1
    assert "terminating training" in capsys.readouterr().out


def test_training_goes_on_from_a_backup(tmp_path: Path):
    def train(model: Any, epochs: int, stop_after: int = 99) -> Any:
        class Interrupt(callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if epoch == stop_after:
                    raise KeyboardInterrupt

        backup = callbacks.BackupAndRestore(tmp_path / "backup")
        return fitted(
            model, shuffle=False, epochs=epochs, callbacks=[backup, Interrupt()], batch_size=14
        )

    def make() -> Any:
        return mlp(optimizer="adam")

    strategy = mirrored(2)
    expected = fitted(seeded(make, strategy), shuffle=False, epochs=3, batch_size=14)
    with pytest.raises(KeyboardInterrupt):
        train(seeded(make, strategy), 3, stop_after=1)
    found = train(seeded(make, strategy), 3)
    assert len(found["history"]["loss"]) < 3
    same(found["weights"], expected["weights"])


def test_averaged_weights_are_swapped_in_for_evaluation():
    def make() -> Any:
        return mlp(optimizer=keras.optimizers.SGD(0.2, use_ema=True, ema_momentum=0.5))

    found, expected = (
        fitted(
            seeded(make, strategy),
            validation_data=(X, Y),
            callbacks=[callbacks.SwapEMAWeights()],
        )
        for strategy in (mirrored(2), None)
    )
    same(found, expected)


def test_moving_averages_are_settled_where_callbacks_look(tmp_path: Path):
    def make() -> Any:
        norm = layers.BatchNormalization(momentum=0.5)
        return ready(keras.Sequential([keras.Input((4,)), norm, layers.Dense(1)]))

    model = seeded(make, mirrored(2))
    seen = []
    watch = callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(model.get_weights()[2])
    )
    model.fit(X[:8], Y[:8], batch_size=8, shuffle=False, verbose=0, callbacks=[watch])
    np.testing.assert_allclose(seen[0], 0.5 * X[:8].mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("verbose", [1, 2])
def test_progress_is_printed_once(model: Any, verbose: int, capsys: pytest.CaptureFixture[str]):
    model.fit(X, Y, batch_size=8, epochs=2, verbose=verbose, validation_data=(X, Y))
    printed = capsys.readouterr().out
    assert printed.count("Epoch 1/2") == 1 and printed.count("Epoch 2/2") == 1
    assert printed.count("val_loss") == 2
    assert "2/2" in printed and "\x1b[1m3/" not in printed
    model.evaluate(X, Y, batch_size=8, verbose=verbose)
    assert capsys.readouterr().out.count("\n") == 1


def test_a_callback_may_use_a_model_that_was_made_outside_of_the_scope():
    teacher = mlp()
    expected = teacher.predict(X, verbose=0)
    seen = []

    def ask(epoch: int, logs: Any) -> None:
        seen.append((teacher.predict(X, verbose=0), teacher.evaluate(X, Y, verbose=0)))

    fitted(seeded(mlp, mirrored(2)), callbacks=[callbacks.LambdaCallback(on_epoch_end=ask)])
    assert len(seen) == 2
    for predicted, loss in seen:
        same(predicted, expected)
        same(loss, teacher.evaluate(X, Y, verbose=0))


def test_a_callback_may_use_a_model_of_another_strategy():
    teacher = seeded(mlp, mirrored(4))
    data = rx.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    expected = teacher.evaluate(data, verbose=0)
    seen = []

    def ask(epoch: int, logs: Any) -> None:
        seen.append(teacher.evaluate(data, verbose=0))

    fitted(seeded(mlp, mirrored(2)), callbacks=[callbacks.LambdaCallback(on_epoch_end=ask)])
    same(seen, [expected] * 2)


@pytest.mark.parametrize("made_in", [lambda: mirrored(4), lambda: None], ids=["scope", "nowhere"])
def test_tensorboard_without_tensorflow(
    made_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with mirrored(2).scope():  # Keras joins in
        pass
    monkeypatch.setattr(_tensorboard, "without_tensorflow", lambda: True)
    model = seeded(lambda: mlp(metrics=["mae"]), made_in())
    board = callbacks.TensorBoard(
        tmp_path, histogram_freq=1, write_images=True, update_freq="batch", profile_batch=0
    )
    history = fitted(model, callbacks=[board], validation_data=(X, Y))["history"]
    train, validation = events_in(tmp_path / "train"), events_in(tmp_path / "validation")
    for name in ("loss", "mae"):
        curve = [each.value for each in train if each.name == f"epoch_{name}"]
        np.testing.assert_allclose(curve, history[name], rtol=1e-6)
        curve = [each.value for each in validation if each.name == f"epoch_{name}"]
        np.testing.assert_allclose(curve, history[f"val_{name}"], rtol=1e-6)
    assert [each.step for each in train if each.name == "batch_loss"] == [1, 2, 3, 4]
    kinds = {each.name.rpartition("/")[2] for each in train if "kernel" in each.name}
    assert kinds == {"histogram", "image"}
    [rate] = {each.value for each in train if each.name == "epoch_learning_rate"}
    assert rate == pytest.approx(0.1)
