"""`Checkpoint.restore` of what TensorFlow saved: by objects and by names, all of it or nothing."""

import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.checkpoints.foreign._bundle import NO_ARRAY
from replicax._src.checkpoints.foreign._spelling import TENSORFLOW
from tests.checkpoints.foreign.recordings import NAMES, OBJECTS, expected

W, B, NAMED = "model/w", "optimizer/_trainable_variables/1", "model/named/a.Sb"


class Model:
    def __init__(self, size: int = 2):
        self.w = rx.Variable(jnp.zeros((2, size)))
        self.layers = [{"b": rx.Variable(jnp.zeros(2))}, {"b": rx.Variable(jnp.zeros(2))}]
        self.named = {"a/b": rx.Variable(0)}


def saved(name: str) -> np.ndarray:
    return expected(OBJECTS)[f"{name}/.ATTRIBUTES/VARIABLE_VALUE"]


def test_objects_are_restored_under_a_strategy():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model, optimizer = Model(), rx.Optimizer(optax.adam(0.1))
    optimizer.build([model.w, model.layers[0]["b"]])
    checkpoint = rx.train.Checkpoint(model=model, optimizer=optimizer, step=0)
    checkpoint.restore(OBJECTS).assert_consumed()
    np.testing.assert_array_equal(model.w.numpy(), saved(W))
    for copy in strategy.experimental_local_results(model.layers[0]["b"]):
        np.testing.assert_array_equal(copy.numpy(), saved(B))
    assert model.named["a/b"].numpy() == 7 and checkpoint.step == 3
    assert checkpoint.save_counter.numpy() == 1
    count, iterations, *slots = [v.numpy() for v in optimizer.variables]
    assert count == iterations == 1
    for index, slot in zip((2, 4, 3, 5), slots, strict=True):  # mu of both, nu of both
        np.testing.assert_array_equal(slot, saved(f"optimizer/_variables/{index}"))


def test_whoever_wants_to_sees_how_far_it_is():
    model, told = Model(), []

    def progress(names: list[str]) -> Any:
        told.append(names)
        yield from names[:1]  # nobody can leave something out

    rx.train.Checkpoint(model=model).restore(OBJECTS, progress=progress)
    np.testing.assert_array_equal(model.layers[1]["b"].numpy(), [1.5, 2.5])
    checked, read = told
    assert f"{W}/.ATTRIBUTES/VARIABLE_VALUE" in checked and W in read


def test_an_optimizer_that_is_built_later_starts_from_what_was_saved():
    model, optimizer = Model(), rx.Optimizer(optax.inject_hyperparams(optax.adam)(0.5))
    checkpoint = rx.train.Checkpoint(model=model, optimizer=optimizer)
    checkpoint.restore(OBJECTS)
    optimizer.build([model.w, model.layers[0]["b"]])
    assert optimizer.learning_rate.numpy() == np.float32(0.1)
    found = [v.numpy() for v in optimizer.variables if v.shape == (2, 2)]
    np.testing.assert_array_equal(found[0], saved("optimizer/_variables/2"))


def test_a_model_that_is_the_root_and_variables_that_are_made_later(tmp_path: Path):
    checkpoint = rx.train.Checkpoint()
    status = checkpoint.restore(OBJECTS)
    with pytest.raises(AssertionError, match="model/w: float32"):
        status.assert_consumed()
    checkpoint.model = Model()
    np.testing.assert_array_equal(checkpoint.model.w.numpy(), saved(W))


def test_what_tensorflow_saved_is_saved_again_in_our_form(tmp_path: Path):
    model = Model()
    checkpoint = rx.train.Checkpoint(model=model)
    checkpoint.restore(OBJECTS)
    path = checkpoint.save(tmp_path / "ckpt")
    again = Model()
    rx.train.Checkpoint(model=again).restore(path).assert_consumed()
    np.testing.assert_array_equal(again.w.numpy(), saved(W))


def test_other_shapes_and_names_are_listed_and_nothing_is_changed():
    model: Any = Model(size=3)
    model.extra = rx.Variable(1.0)
    with pytest.raises(rx.errors.CheckpointError) as error:
        rx.train.Checkpoint(model=model).restore(OBJECTS)
    text = str(error.value)
    assert str(OBJECTS) in text and "nothing was restored" in text
    assert "model/w: saved float32[2,2], wanted float32[2,3]" in text
    assert "model/extra: not in the checkpoint, wanted float32[]" in text
    assert not model.layers[0]["b"].numpy().any()


def test_nothing_is_restored_where_one_tensor_is_damaged(tmp_path: Path):
    for file in OBJECTS.parent.glob("ckpt-1.[di]*"):
        shutil.copy(file, tmp_path)
    data = tmp_path / "ckpt-1.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    at = content.index(saved("model/layers/1/b").tobytes())
    content[at] ^= 1
    data.write_bytes(content)
    model = Model()
    with pytest.raises(rx.errors.DataLossError, match="'model/layers/1/b/.*data-00000"):
        rx.train.Checkpoint(model=model).restore(tmp_path / "ckpt-1")
    assert not model.w.numpy().any() and model.named["a/b"].numpy() == 0


def test_integers_that_do_not_fit_are_refused():
    model: Any = Model()
    model.named = {"a/b": rx.Variable(np.int8(0))}
    rx.train.Checkpoint(model=model).restore(OBJECTS)
    assert model.named["a/b"].numpy() == 7
    too_small = rx.Variable(np.zeros(3, np.uint8), name="dtypes/int64")
    assert rx.train.Checkpoint(v=too_small).restore(NAMES) and too_small.numpy()[2] == 3


def test_names_of_tensorflow_1_are_those_of_variables():
    kernel = rx.Variable(jnp.zeros((2, 3)), name="dense/kernel")
    rows = rx.Variable(jnp.zeros((200, 2)), name="rows")
    optimizer = rx.Optimizer(optax.adam(0.1))
    optimizer.build([kernel])
    rx.train.Checkpoint(kernel=kernel, rows=rows, optimizer=optimizer).restore(NAMES)
    wanted = expected(NAMES)
    np.testing.assert_array_equal(kernel.numpy(), wanted["dense/kernel"])
    np.testing.assert_array_equal(rows.numpy(), wanted["rows"])
    iterations, count, mu, nu = [v.numpy() for v in optimizer.variables]
    assert iterations == count == 1
    np.testing.assert_array_equal(mu, wanted["dense/kernel/Adam"])
    np.testing.assert_array_equal(nu, wanted["dense/kernel/Adam_1"])
    with pytest.raises(rx.errors.CheckpointError, match="lost: not in the checkpoint"):
        rx.train.Checkpoint(lost=rx.Variable(0.0, name="lost")).restore(NAMES)


def test_an_object_of_tensorflow_is_no_integer():
    assert not TENSORFLOW.is_same_dtype("int32", NO_ARRAY)
