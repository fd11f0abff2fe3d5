"""Reads what TensorFlow wrote: every dtype, slices, shards, texts; and refuses what is damaged."""

import os
import random
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import replicax as rx
from tests.checkpoints.foreign.recordings import NAMES, OBJECTS, RECORDED, as_recorded, expected

Damaged = (rx.errors.CheckpointError, rx.errors.DataLossError)


@pytest.mark.parametrize("prefix", [NAMES, OBJECTS], ids=lambda path: path.parent.name)
def test_everything_is_as_tensorflow_reads_it(prefix: Path):
    reader = rx.train.load_checkpoint(prefix)
    wanted = expected(prefix)
    assert reader.get_variable_to_shape_map() == {k: list(v.shape) for k, v in wanted.items()}
    for name, value in wanted.items():
        found = as_recorded(reader.get_tensor(name))
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(found, value)


def test_a_file_system_may_give_less_than_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    reader, wanted, pread = rx.train.load_checkpoint(NAMES), expected(NAMES), os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, at: pread(file, min(count, 7), at))
    for name, value in wanted.items():
        np.testing.assert_array_equal(as_recorded(reader.get_tensor(name)), value)


def test_names_are_found_with_and_without_what_tensorflow_adds():
    reader = rx.train.load_checkpoint(OBJECTS)
    for name in ("model/w", "model/w/.ATTRIBUTES/VARIABLE_VALUE"):
        assert reader.has_tensor(name) and reader.get_tensor(name).shape == (2, 2)
    assert rx.train.load_variable(NAMES, "dense/kernel:0").shape == (2, 3)
    with pytest.raises(KeyError, match="There is no 'model/v' in the checkpoint .*ckpt-1"):
        reader.get_tensor("model/v")


def test_the_directory_stands_for_the_latest():
    assert rx.train.latest_checkpoint(RECORDED / "names") == str(NAMES)
    assert rx.train.list_checkpoints(RECORDED / "objects") == [str(OBJECTS)]
    found = dict(rx.train.list_variables(RECORDED / "names"))
    assert found["rows"] == [200, 2] and found["texts"] == [4]


def test_a_file_that_names_checkpoints_elsewhere_is_followed_to_here(tmp_path: Path):
    for file in NAMES.parent.glob("model.ckpt-1.[di]*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/away/model.ckpt-1"\nodd "line\n')
    assert rx.train.latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for file in NAMES.parent.glob("model.ckpt-1.[di]*"):
        shutil.copy(file, tmp_path)
    return tmp_path / "model.ckpt-1"


def test_a_missing_shard_is_named(copied: Path):
    os.remove(f"{copied}.data-00001-of-00003")
    with pytest.raises(Damaged, match="is in .*data-00001-of-00003, which is missing"):
        rx.train.load_checkpoint(copied)


def test_a_shorter_shard_is_named_with_the_tensor(copied: Path):
    os.truncate(f"{copied}.data-00001-of-00003", 100)
    with pytest.raises(Damaged, match=r"'\w+.*', .* in .*data-00001.*: the file ends at 100 bytes"):
        rx.train.load_checkpoint(copied)


def test_a_flipped_byte_of_data_is_named_with_the_tensor(copied: Path):
    file = Path(f"{copied}.data-00001-of-00003")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    reader = rx.train.load_checkpoint(copied)
    damaged = []
    for name in reader.get_variable_to_shape_map():
        try:
            reader.get_tensor(name)
        except Damaged as error:
            damaged.append(name)
            assert repr(name) in str(error) and file.name in str(error)
    assert len(damaged) == 1


@pytest.mark.parametrize("what", ["index", "data-00001-of-00003", "data-00002-of-00003"])
def test_damage_of_any_kind_is_an_error_and_takes_no_memory(copied: Path, what: str):
    """Flipped bytes, and cuts: the same tensors as before, or an error that says so."""
    file = Path(f"{copied}.{what}")
    original = file.read_bytes()
    chance = random.Random(what)
    wanted = expected(NAMES)
    tracemalloc.start()
    for _ in range(120):
        content = bytearray(original)
        if chance.random() < 0.3:
            del content[chance.randrange(len(content)) :]
        else:
            for _ in range(chance.choice([1, 1, 4])):
                content[chance.randrange(len(content))] ^= chance.choice([1, 0x80, 0xFF])
        file.write_bytes(content)
        try:
            reader = rx.train.load_checkpoint(copied)
            for name, value in wanted.items():
                np.testing.assert_array_equal(as_recorded(reader.get_tensor(name)), value)
        except Damaged as error:
            assert str(copied) in str(error)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "checkpoint")
    os.mkfifo(tmp_path / "ckpt.replicax.last_kept")
    assert rx.train.latest_checkpoint(tmp_path) is None
    rx.train.CheckpointManager(rx.train.Checkpoint(), tmp_path, max_to_keep=1)
