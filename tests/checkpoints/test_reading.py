"""Looking into a checkpoint: names, shapes and values, without a program that fits it."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx


@pytest.fixture
def path(tmp_path: Path) -> str:
    model = {"dense/w": rx.Variable([1.0, 2.0]), "half": rx.Variable(jnp.ones(2, jnp.bfloat16))}
    checkpoint = rx.train.Checkpoint(model=model, step=3, rate=0.5, key=jax.random.key(7))
    return checkpoint.save(tmp_path / "ckpt")


def test_names_and_shapes(path: str):
    wanted = [("key", []), ("model/dense.Sw", [2]), ("model/half", [2]), ("rate", [])]
    wanted += [("save_counter", []), ("step", [])]
    assert rx.train.list_variables(path) == wanted
    assert rx.train.list_variables(Path(path).parent) == wanted
    assert rx.train.load_checkpoint(path).get_variable_to_shape_map() == dict(wanted)


def test_values(path: str):
    reader = rx.train.load_checkpoint(Path(path).parent)
    for name in ("model/dense.Sw", "model/dense.Sw:0", "model/dense.Sw/.ATTRIBUTES/VARIABLE_VALUE"):
        assert reader.has_tensor(name)
        np.testing.assert_array_equal(rx.train.load_variable(path, name), [1.0, 2.0])
    assert reader.get_tensor("step") == 3 and reader.get_tensor("rate") == 0.5
    assert reader.get_tensor("model/half").dtype == jnp.bfloat16
    np.testing.assert_array_equal(reader.get_tensor("key"), jax.random.key_data(jax.random.key(7)))
    dtypes = reader.get_variable_to_dtype_map()
    assert dtypes["model/half"] == jnp.bfloat16 and dtypes["key"] == "key"
    assert dtypes["model/dense.Sw"] == np.float32 and dtypes["step"] == np.int64


def test_names_that_are_not_there(path: str, tmp_path: Path):
    reader = rx.train.load_checkpoint(path)
    assert not reader.has_tensor("model")
    with pytest.raises(KeyError, match="no 'v' in the checkpoint .*There are: key, model/dense"):
        reader.get_tensor("v")
    with pytest.raises(rx.errors.CheckpointError, match="no checkpoint at .*none.* and none in it"):
        rx.train.load_variable(tmp_path / "none", "v")


def test_the_checkpoints_of_a_directory(tmp_path: Path):
    assert rx.train.get_checkpoint_state(tmp_path) is None
    checkpoint = rx.train.Checkpoint(step=1)
    paths = [checkpoint.save(tmp_path / "ckpt") for _ in range(2)]
    state = rx.train.get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path == paths[-1]
    assert state.all_model_checkpoint_paths == paths
