"""Keras and Flax under several real workers: one model, one history, and the first one writes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest
from flax import nnx

import replicax as rx

from ..processes import Worker, result, run_workers, workers

ROWS = 22  # in batches of 8: the last one is not for the four replicas to divide


def _data() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(ROWS, 5)).astype(np.float32), draw.integers(0, 3, ROWS)


def _model() -> Any:
    keras.utils.set_random_seed(7)
    layers = [
        keras.layers.Input((5,)),
        keras.layers.Dense(6, activation="relu"),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.Dense(3),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def _program() -> None:
    """What the two workers of both tests below do: the imports take longer than all of it."""
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    _train(strategy)
    for program in (_keras_with_state_by_replica, _module_and_tree):
        result(program.__name__, [np.asarray(each).tolist() for each in program(strategy)])


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Worker, Worker]:
    """The folder that the workers wrote to, and what each of them said."""
    folder = tmp_path_factory.mktemp("written")
    environment = {"FOLDER": str(folder), "KERAS_BACKEND": "jax"}
    first, second = run_workers(_program, 2, devices=2, environment=environment)
    return folder, first, second


def _train(strategy: Any) -> None:
    worker = strategy.cluster_resolver.task_id
    folder = Path(os.environ["FOLDER"])
    x, y = _data()
    with strategy.scope():
        model = _model()
    np.random.seed(worker)  # the shuffling is the first worker's all the same
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "model.keras", verbose=1),
        keras.callbacks.CSVLogger(folder / "log.csv"),
    ]
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=2, callbacks=callbacks).history
    result("history", history)
    result("predicted", model.predict(x, verbose=0).tolist())
    dataset = rx.data.Dataset.from_tensor_slices((x, y.astype(np.int32))).batch(8)
    result("evaluated", [model.evaluate(data, verbose=0) for data in (dataset, dataset)])
    result("arrays", model.evaluate(x, y, batch_size=8, verbose=0))
    again: Any = keras.saving.load_model(folder / "model.keras")
    result("loaded", again.predict(x, verbose=0).tolist())


def test_two_workers_train_as_one_process_does(job: tuple[Path, Worker, Worker]):
    folder, first, second = job
    assert first.results == second.results
    assert "Epoch 1/2" in first.stdout and "saving model" in first.stdout
    assert "Epoch" not in second.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["log.csv", "model.keras"]
    assert len((folder / "log.csv").read_text().splitlines()) == 3
    strategy = rx.distribute.MirroredStrategy([f"CPU:{index}" for index in range(4)])
    with strategy.scope():
        model = _model()
    np.random.seed(0)
    x, y = _data()
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0).history
    found = first.results
    for name, values in history.items():
        np.testing.assert_allclose(found["history"][name], values, rtol=1e-5)
    predicted = model.predict(x, verbose=0)
    np.testing.assert_allclose(found["predicted"], predicted, rtol=1e-4, atol=1e-6)
    # On one device the rows are not shared out, so that sums are made in another order.
    np.testing.assert_allclose(found["loaded"], found["predicted"], rtol=1e-5, atol=1e-6)
    expected = model.evaluate(x, y, batch_size=8, verbose=0)
    np.testing.assert_allclose([*found["evaluated"], found["arrays"]], [expected] * 3, rtol=1e-5)


def _keras_with_state_by_replica(strategy: Any) -> list[Any]:
    """Moving averages and random numbers, which each replica has for itself."""
    x, y = _data()
    keras.utils.set_random_seed(7)
    with strategy.scope():
        layers = [
            keras.layers.Input((5,)),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(3),
        ]
        model: Any = keras.Sequential(layers)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x[:16], y[:16], batch_size=8, epochs=2, verbose=0)
    return model.get_weights()


class _Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(5, use_fast_variance=False, rngs=rngs)
        self.drop = nnx.Dropout(0.3, rngs=rngs)
        self.last = nnx.Linear(5, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.drop(self.norm(x)))[:, 0]


def _module_and_tree(strategy: Any) -> list[Any]:
    """An NNX module with its optimizer, and parameters in a tree with `rx.Optimizer`."""
    x, y = _data()
    with strategy.scope():
        module = _Network(nnx.Rngs(0))
        optimizer = nnx.Optimizer(module, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)
        params = rx.variables({"scale": np.ones(5, np.float32)})
        tree_optimizer = rx.Optimizer(optax.sgd(0.1))

    def replica_step(x: Any, y: Any) -> None:
        gradients = nnx.grad(lambda module: jnp.sum((module(x) - y) ** 2) / 8)(module)
        optimizer.update(module, gradients)
        _, gradients = rx.value_and_grad(
            lambda: jnp.sum((x @ rx.arrays(params)["scale"] - y) ** 2) / 8, params
        )
        tree_optimizer.apply(gradients, params)

    step = rx.function(lambda *batch: strategy.run(replica_step, args=batch))

    def share(array: np.ndarray, start: int) -> Any:  # the same rows for a replica in any job
        return strategy.experimental_distribute_values_from_function(
            lambda context: array[start + 2 * context.replica_id_in_sync_group :][:2]
        )

    for start in (0, 8):
        step(share(x, start), share(y.astype(np.float32), start))
    kinds = nnx.Any(nnx.Param, nnx.BatchStat)
    return jax.tree.leaves((nnx.to_pure_dict(nnx.state(module, kinds)), rx.arrays(params)))


def test_state_that_each_replica_has_for_itself(job: tuple[Path, Worker, Worker]):
    _, first, second = job
    assert first.results == second.results
    strategy = rx.distribute.MirroredStrategy([f"CPU:{index}" for index in range(4)])
    for program in (_keras_with_state_by_replica, _module_and_tree):
        expected = program(strategy)
        found = first.results[program.__name__]
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


class _Trouble(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        raise ValueError("trouble of my own")


def _fail_in_a_callback() -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    x, y = _data()
    with strategy.scope():
        model = _model()
    callbacks = [_Trouble()] if strategy.cluster_resolver.task_id == 1 else []
    model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)


def _write_where_nothing_can_be() -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    x, y = _data()
    with strategy.scope():
        model = _model()
    place = Path(__file__, "model.keras")  # below a file
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(place)])


@pytest.mark.parametrize(
    ("program", "victim", "words"),
    [
        (_fail_in_a_callback, 1, "ValueError: trouble of my own"),
        (_write_where_nothing_can_be, 0, "NotADirectoryError: .*model.keras|FileNotFoundError: .*"),
    ],
)
def test_a_worker_that_fails_is_named_with_its_own_reason(program: Any, victim: int, words: str):
    with workers(program, 2, environment={"KERAS_BACKEND": "jax"}) as job:
        job.expect_exit(status=1)
    other = 1 - victim
    assert re.search(f"^{words}", job[victim].stderr, re.MULTILINE), job[victim]
    assert re.search(f"worker {victim} .*failed: {words}", job[other].stderr), job[other]
    assert "ReplicaMismatchError" not in job[victim].stderr + job[other].stderr
