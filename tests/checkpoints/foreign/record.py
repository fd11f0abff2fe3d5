"""Records checkpoints of TensorFlow, and what TensorFlow read from them and computed after them.

    PATH_OF_PYTHON_WITH_TENSORFLOW -m tests.checkpoints.foreign.record [NAME ...]

in the root of the project writes them into `recorded/`, or with `--into=FOLDER` into that, all or
some. The tests need no TensorFlow.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints.foreign import models

RECORDED = Path(__file__).parent / "recorded"
EXAMPLE = Path(__file__).parents[3] / "examples" / "tensorflow_weights"
_DTYPES = (
    "float16 float64 int8 uint8 int16 uint16 int32 int64 uint32 uint64 bool complex64 complex128"
)


tf: Any = None  # loaded by `main`: whoever collects tests has none
keras: Any = None


def expected(prefix: Path) -> None:
    """Writes beside a checkpoint what TensorFlow reads from it."""
    reader: Any = tf.train.load_checkpoint(str(prefix))
    found = {}
    for name in reader.get_variable_to_shape_map():
        value = reader.get_tensor(name)
        value = np.asarray(value, object if isinstance(value, bytes) else None)
        is_bfloat16 = reader.get_variable_to_dtype_map()[name] == tf.bfloat16
        # np.savez has neither texts of bytes that end in zeros nor bfloat16.
        if value.dtype == object:
            value = np.array([each.hex() for each in value.reshape(-1)]).reshape(value.shape)
        found[name.replace("/", "|")] = value.astype(np.float32) if is_bfloat16 else value
    np.savez_compressed(f"{prefix}.expected.npz", **found)


def record_names(folder: Path) -> None:
    """A checkpoint of TensorFlow 1: names, all dtypes, partitioned variables, two shards."""
    v1: Any = tf.compat.v1
    with tf.Graph().as_default():
        with tf.device("/cpu:0"):
            uniform = v1.random_uniform_initializer(seed=1)
            rows = v1.fixed_size_partitioner(3)
            columns = v1.fixed_size_partitioner(2, axis=1)
            v1.get_variable("rows", shape=(200, 2), initializer=uniform, partitioner=rows)
            v1.get_variable("columns", shape=(4, 6), initializer=uniform, partitioner=columns)
            kernel = v1.get_variable("dense/kernel", initializer=np.ones((2, 3), np.float32))
            texts = tf.constant([b"one", b"", b"three\0", b"\xff" * 300])
            v1.get_variable("texts", initializer=texts)
            v1.get_variable("empty", initializer=tf.zeros((0, 3)))
            v1.get_variable("bfloat16", initializer=tf.constant([1, -2, 3.5], tf.bfloat16))
        with tf.device("/cpu:1"):
            for name in _DTYPES.split():
                values = tf.cast(tf.constant([0, 1, 3]), name)
                v1.get_variable(f"dtypes/{name}", initializer=values)
        step = v1.train.get_or_create_global_step()
        update = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(kernel**2), step)
        config = v1.ConfigProto(device_count={"CPU": 2})
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            session.run(update)
            saver = v1.train.Saver(sharded=True, save_relative_paths=True)
            prefix = saver.save(
                session, str(folder / "model.ckpt"), global_step=step, write_meta_graph=False
            )
    expected(Path(prefix))


def record_objects(folder: Path) -> None:
    """A checkpoint of plain objects, with an optimizer: lists, dictionaries, names with slashes."""

    class Model(tf.Module):  # pyright: ignore
        def __init__(self) -> None:
            self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
            self.layers = [{"b": tf.Variable([0.5, -0.5])}, {"b": tf.Variable([1.5, 2.5])}]
            self.named = {"a/b": tf.Variable(7, dtype=tf.int64)}

    model = Model()
    optimizer = tf.keras.optimizers.Adam(0.1)
    variables = [model.w, model.layers[0]["b"]]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model.w @ tf.ones((2, 1))) + tf.reduce_sum(model.layers[0]["b"] ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    counter = tf.Variable(3, dtype=tf.int64)
    saved: Any = tf.train.Checkpoint(model=model, optimizer=optimizer, step=counter)
    manager = tf.train.CheckpointManager(saved, str(folder), max_to_keep=2)
    manager.save()
    expected(Path(manager.latest_checkpoint))


def record_model(folder: Path, name: str) -> None:
    """A model after 50 steps in all forms, and the losses and values after 50 more."""
    keras.utils.set_random_seed(7)
    # TensorFlow's collectives on CPUs mix up the gradients of larger models.
    ops = tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=ops)
    with strategy.scope():
        model = models.MODELS[name](keras)
    models.train(keras, model, name, 0)
    saved: Any = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    saved.write(str(folder / "saved"))
    if name != "transformer":  # its class would have to be registered, for a whole model
        model.save(folder / "model.keras")
        model.save(folder / "model.h5")
    else:
        model.save_weights(folder / "model.weights.h5")
    # Replicas had moving averages of their own, of which the mean is saved: go on from that.
    with strategy.scope():
        model = models.built(keras, name)
    restored: Any = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    restored.read(str(folder / "saved")).assert_consumed()
    values: dict[str, Any] = {
        f"before/{key}": value for key, value in models.values_of(model).items()
    }
    losses = models.train(keras, model, name, 1)
    after = models.values_of(model) | mean_of_copies(model, strategy)
    values |= {f"after/{key}": value for key, value in after.items()}
    np.savez_compressed(folder / "continued.npz", losses=np.array(losses), **values)


def record_example(folder: Path) -> None:
    """The first half of what `examples/03_compiled.py` does, in TensorFlow."""
    batch, steps = 64, 50
    x = np.random.default_rng(0).uniform(-2, 2, size=(batch * steps, 2)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) * np.cos(x[:, 1])
    random = np.random.default_rng(1)
    shapes = [(2, 64), (64,), (64, 1), (1,)]
    # A replica has no program of its own here: what is saved does not depend on the strategy.
    weights = [
        tf.Variable(random.normal(scale=0.5, size=shape).astype(np.float32)) for shape in shapes
    ]
    optimizer = keras.optimizers.Adam(1e-2, epsilon=1e-8)
    for step in range(steps // 2):
        rows = slice(step * batch, (step + 1) * batch)
        with tf.GradientTape() as tape:
            w1, b1, w2, b2 = weights
            predicted = (tf.tanh(x[rows] @ w1 + b1) @ w2 + b2)[:, 0]
            loss = tf.reduce_mean((predicted - y[rows]) ** 2)
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
    saved = tf.train.Checkpoint(weights=weights, optimizer=optimizer)
    saved.write(str(folder / "ckpt-25"))


def mean_of_copies(model: Any, strategy: Any) -> dict[str, np.ndarray]:
    """Returns the weights where each is the mean over the replicas: moving averages differ."""
    return {
        f"weights/{index}": np.mean(
            [np.asarray(copy) for copy in strategy.experimental_local_results(each._value)], axis=0
        )
        for index, each in enumerate(model.weights)
    }


def main() -> None:
    global tf, keras
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    tf, keras = importlib.import_module("tensorflow"), importlib.import_module("keras")
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        devices[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--into", type=Path, default=RECORDED)
    given = parser.parse_args()
    for name in given.names or ("names", "objects", "example", *models.MODELS):
        folder = EXAMPLE if name == "example" else given.into / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if name == "names":
            record_names(folder)
        elif name == "example":
            record_example(folder)
        elif name == "objects":
            record_objects(folder)
        else:
            record_model(folder, name)


if __name__ == "__main__":
    main()
