"""With TensorFlow beside us: its checkpoints read as it reads them, and our programs as its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.checkpoints.foreign.continued import assert_goes_on
from tests.checkpoints.foreign.models import MODELS
from tests.exported import loaded


def test_a_checkpoint_that_tensorflow_has_just_written(tensorflow: Any, tmp_path: Path):
    tf = tensorflow
    values = {
        "float": tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "bfloat16": tf.Variable(tf.constant([1.5, -2], tf.bfloat16)),
        "texts": tf.Variable([b"a", b"", b"c" * 5000]),
        "large": tf.Variable(np.arange(1 << 16)),
    }
    prefix = tf.train.Checkpoint(values=values).save(str(tmp_path / "ckpt"))
    theirs, ours = tf.train.load_checkpoint(prefix), rx.train.load_checkpoint(prefix)
    assert ours.get_variable_to_shape_map() == theirs.get_variable_to_shape_map()
    for name in theirs.get_variable_to_shape_map():
        np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name))


@pytest.fixture(scope="module")
def trained(tensorflow: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that TensorFlow has just trained under its `MirroredStrategy`, in its own process."""
    folder = tmp_path_factory.mktemp("trained")
    subprocess.run(
        [sys.executable, "-m", "tests.checkpoints.foreign.record", f"--into={folder}", *MODELS],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=True,
        timeout=400,
    )
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_models_go_on_as_in_tensorflow(name: str, trained: Path):
    keras = pytest.importorskip("keras")
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert_goes_on(keras, trained / name, name, strategy)
    keras.backend.clear_session()


def test_sharded_variables_are_put_together(tensorflow: Any, tmp_path: Path):
    v1 = tensorflow.compat.v1
    with tensorflow.Graph().as_default():
        v1.get_variable(
            "rows",
            shape=(9000, 3),
            initializer=v1.random_uniform_initializer(seed=1),
            partitioner=v1.fixed_size_partitioner(7),
        )
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            prefix = v1.train.Saver().save(session, str(tmp_path / "ckpt"))
    wanted = tensorflow.train.load_checkpoint(prefix).get_tensor("rows")
    np.testing.assert_array_equal(rx.train.load_variable(prefix, "rows"), wanted)


def test_a_function_becomes_a_saved_model(tensorflow: Any, tmp_path: Path):
    jax2tf = pytest.importorskip("jax.experimental.jax2tf")
    tf = tensorflow
    w = rx.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))
    rx.function(lambda x: x @ w).export(tmp_path / "out", rx.TensorSpec([None, 3]))
    module = tf.Module()
    module.predict = tf.function(
        jax2tf.convert(
            loaded(tmp_path / "out"), polymorphic_shapes=["(batch, 3)"], with_gradient=False
        ),
        input_signature=[tf.TensorSpec([None, 3], tf.float32)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path / "saved_model"))
    again = tf.saved_model.load(str(tmp_path / "saved_model"))
    for rows in (1, 4):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_allclose(again.predict(x).numpy(), x @ w.numpy())


@pytest.mark.filterwarnings("ignore:The `native_serialization`:DeprecationWarning")  # Keras's own
def test_keras_exports_a_model_of_a_strategy(tensorflow: Any, tmp_path: Path):
    keras = pytest.importorskip("keras")
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.export(str(tmp_path / "saved_model"), verbose=False)
    x = np.ones((5, 3), np.float32)
    loaded_model = tensorflow.saved_model.load(str(tmp_path / "saved_model"))
    served = loaded_model.serve(x)  # its variables live as long as it does
    np.testing.assert_allclose(np.asarray(served), model.predict(x, verbose=0), rtol=1e-5)
