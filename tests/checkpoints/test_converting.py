"""Checkpoints in other forms: what goes where, what is left over, and what is refused."""

import logging
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.checkpoints import convert, read_rules
from tests.checkpoints.foreign.recordings import NAMES, OBJECTS, expected


def saved(name: str) -> np.ndarray:
    return expected(OBJECTS)[f"{name}/.ATTRIBUTES/VARIABLE_VALUE"]


def test_a_converted_checkpoint_is_restored_as_the_one_of_tensorflow(tmp_path: Path):
    found = convert(str(OBJECTS.parent), str(tmp_path / "out"))
    assert not found.left and found.files == [str(tmp_path / "out")]

    class Model:
        def __init__(self) -> None:
            self.w = rx.Variable(jnp.zeros((2, 2)))
            self.layers = [{"b": rx.Variable(jnp.zeros(2))}, {"b": rx.Variable(jnp.zeros(2))}]
            self.named = {"a/b": rx.Variable(0)}

    model, optimizer = Model(), rx.Optimizer(optax.adam(0.1))
    optimizer.build([model.w, model.layers[0]["b"]])
    checkpoint = rx.train.Checkpoint(model=model, optimizer=optimizer, step=0)
    checkpoint.restore(tmp_path / "out").assert_consumed()
    np.testing.assert_array_equal(model.w.numpy(), saved("model/w"))
    assert model.named["a/b"].numpy() == 7 and checkpoint.step == 3
    slots = [v.numpy() for v in optimizer.variables if v.shape == (2, 2)]
    np.testing.assert_array_equal(slots[1], saved("optimizer/_variables/3"))


def test_rules_give_names_and_leave_out(tmp_path: Path):
    rules = read_rules(
        r"""
        # what the program calls them
        model/w -> net/kernel
        model/layers/(\d+)/b -> net/biases/\1   # of each layer
        optimizer/.* ->
        """
    )
    found = convert(str(OBJECTS), str(tmp_path / "out"), rules=rules)
    assert "optimizer/_iterations" in found.left and found.left["optimizer/_iterations"]
    net = {"kernel": rx.Variable(jnp.zeros((2, 2))), "biases": {"1": rx.Variable(jnp.zeros(2))}}
    rx.train.Checkpoint(net=net).restore(tmp_path / "out")
    np.testing.assert_array_equal(net["kernel"].numpy(), saved("model/w"))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model/w = net", "is no rule"),
        ("model/(w -> net", "is no expression"),
        ("model/v -> net", "fits these rules: model/v -> net"),
        ("model/.* -> net", "would both become 'net'"),
        (".* ->", "nothing to convert"),
        (r"model/w -> net/\2", r"The rule 'model/w -> net/.*2' makes no name: invalid group"),
    ],
)
def test_rules_that_cannot_be_are_refused(tmp_path: Path, text: str, words: str):
    with pytest.raises(ValueError, match=words):
        convert(str(OBJECTS), str(tmp_path / "out"), rules=read_rules(text))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part_bytes", [10**9, 600], ids=["whole", "parts"])
def test_safetensors_there_and_back(tmp_path: Path, part_bytes: int):
    pytest.importorskip("safetensors")
    found = convert(str(NAMES), str(tmp_path / "w"), "safetensors", part_bytes=part_bytes)
    assert set(found.left) == {"texts", "dtypes/complex64", "dtypes/complex128"}
    assert len(found.files) == (1 if part_bytes > 600 else 3)
    reader = rx.train.load_checkpoint(found.files[-1])
    wanted = expected(NAMES)
    assert set(reader.get_variable_to_shape_map()) == set(wanted) - set(found.left)
    for name in reader.get_variable_to_shape_map():
        value = reader.get_tensor(name)
        assert reader.get_variable_to_dtype_map()[name] == value.dtype
        assert value.shape == wanted[name].shape  # scalars too
        np.testing.assert_array_equal(value.astype(wanted[name].dtype), wanted[name])
    again = convert(found.files[-1], str(tmp_path / "ours"))
    assert rx.train.load_variable(tmp_path / "ours", "rows").shape == (200, 2)
    assert len(again.moved) == len(found.moved)
    with pytest.raises(FileExistsError, match="is not overwritten"):
        convert(str(NAMES), str(tmp_path / "w"), "safetensors", part_bytes=part_bytes)


def test_damaged_safetensors_are_refused(tmp_path: Path):
    pytest.importorskip("safetensors")
    convert(str(NAMES), str(tmp_path / "w"), "safetensors")
    file = tmp_path / "w.safetensors"
    content = file.read_bytes()
    for odd in (content[:-1], content[:20], b"\xff" * 8 + content[8:], b""):
        file.write_bytes(odd)
        with pytest.raises(rx.errors.CheckpointError, match="w.safetensors is damaged"):
            rx.train.load_checkpoint(file)


def test_orbax_reads_what_was_converted(tmp_path: Path):
    killed = tmp_path / "folder" / "out.replicax.partial"
    (killed / "d").mkdir(parents=True)
    convert(str(OBJECTS), str(tmp_path / "folder" / "out"), "orbax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ocp = pytest.importorskip("orbax.checkpoint")
        logging.getLogger("absl").setLevel(logging.ERROR)
        with ocp.PyTreeCheckpointer() as orbax:
            found = orbax.restore(tmp_path / "folder" / "out")
    np.testing.assert_array_equal(found["model/w"], saved("model/w"))


@pytest.mark.parametrize("to", ["replicax", "orbax"])
def test_nothing_is_overwritten(tmp_path: Path, to: str):
    kept = tmp_path / "out"
    kept.mkdir()
    (kept / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not overwritten"):
        convert(str(OBJECTS), str(kept), to)
    assert (kept / "mine.txt").read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_safetensors_that_another_program_writes_meanwhile_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    library = pytest.importorskip("safetensors.numpy")
    path, save = tmp_path / "out.safetensors", library.save_file

    def slow(held: dict[str, np.ndarray], file: str) -> None:
        assert file != str(path)  # half of a file never has the name
        save(held, file)
        path.write_text("mine")

    monkeypatch.setattr(library, "save_file", slow)
    with pytest.raises(FileExistsError, match="is not overwritten"):
        convert(str(OBJECTS), str(path), "safetensors")
    assert path.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_checkpoint_with_texts_is_converted_and_read_and_converted_again(tmp_path: Path):
    convert(str(NAMES), str(tmp_path / "out"))
    reader = rx.train.load_checkpoint(tmp_path / "out")
    assert reader.has_tensor("rows") and not reader.has_tensor("texts")
    assert reader.get_variable_to_dtype_map()["rows"] == np.float32
    assert convert(str(tmp_path / "out"), str(tmp_path / "again")).moved


def test_a_name_may_come_after_those_below_it(tmp_path: Path):
    rules = read_rules("model/layers/1/b -> net/b\nmodel/w -> net")
    convert(str(OBJECTS), str(tmp_path / "out"), rules=rules)
    net = rx.Variable(jnp.zeros((2, 2)))
    rx.train.Checkpoint(net=net).restore(tmp_path / "out")
    np.testing.assert_array_equal(net.numpy(), saved("model/w"))


def test_safetensors_where_no_folder_is_are_refused(tmp_path: Path):
    pytest.importorskip("safetensors")
    with pytest.raises(rx.errors.CheckpointError, match="could not be written: .*No such file"):
        convert(str(OBJECTS), str(tmp_path / "no" / "folder"), "safetensors")
