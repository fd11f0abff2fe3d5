"""A capsule that is damaged, or of somebody else, gets a clear error, and nothing of it is used."""

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.cli.main import main


@pytest.fixture(scope="module")
def capsule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    w = rx.Variable(jnp.zeros(1000))
    step = rx.function(lambda x: w.assign_add(x))
    with rx.debug.Recorder(rx.train.Checkpoint(w=w), step, folder / "r") as recorder:
        step(jnp.ones(1000))
        return Path(recorder.save())


def resigned(path: Path, change: Callable[[dict], object]) -> None:
    """Changes the manifest as somebody would who knows the format."""
    body = (path / "capsule.json").read_bytes().rsplit(b"\n", 2)[0]
    content = json.loads(body)
    change(content)
    body = json.dumps(content).encode()
    (path / "capsule.json").write_bytes(
        body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"
    )


def put(path: Path, name: str, data: bytes) -> None:
    """Replaces a file, with the checksum that fits."""
    (path / name).write_bytes(data)
    checksum = [len(data), hashlib.sha256(data).hexdigest()]
    resigned(path, lambda content: content["files"].update({name: checksum}))


def flip(path: Path) -> None:
    file = path / "worker-0" / "step-1-0-0.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def link(path: Path) -> None:
    file = path / "worker-0" / "steps.jsonl"
    file.unlink()
    file.symlink_to("/etc/hostname")


def cut_checkpoint(path: Path) -> None:
    (path / "checkpoint" / "objects.json").unlink()


DAMAGE = {
    "no file": (lambda path: (path / "capsule.json").unlink(), "no file capsule.json"),
    "a flipped bit": (flip, "step-1-0-0.npy is not as it was written"),
    "a missing file": (
        lambda path: (path / "worker-0" / "steps.jsonl").unlink(),
        "steps.jsonl is missing",
    ),
    "a link": (link, "no regular file"),
    "a cut checkpoint": (cut_checkpoint, "is damaged: .*objects.json is missing"),
    "another format": (
        lambda path: resigned(path, lambda content: content.update(format="other")),
        "is of something else",
    ),
    "a later version": (
        lambda path: resigned(path, lambda content: content.update(version=9)),
        "has version 9.*reads version 1",
    ),
    "a path that leads out": (
        lambda path: resigned(path, lambda c: c["files"].update({"../x": [1, "0"]})),
        "lacks what it must have",
    ),
    "no layout": (
        lambda path: put(path, "worker-0/recording.json", b"{}"),
        "no sound layout",
    ),
    "lines that are no JSON": (
        lambda path: put(path, "worker-0/steps.jsonl", b"what?\n"),
        "lines that are no objects",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage(capsule: Path, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "capsule"
    shutil.copytree(capsule, path)
    change, words = DAMAGE[what]
    change(path)
    with pytest.raises(rx.errors.DataLossError, match=words):
        rx.debug.load(path)
    script = tmp_path / "train.py"
    script.write_text("raise AssertionError('it must not be run')")
    assert main(["replay", str(path), str(script)]) == 2
    assert "it must not be run" not in capsys.readouterr().err


def test_a_pickle_in_the_place_of_an_array_is_not_read(capsule: Path, tmp_path: Path):
    path = tmp_path / "capsule"
    shutil.copytree(capsule, path)
    put(path, "worker-0/step-1-0-0.npy", pickle.dumps(print))
    w = rx.Variable(jnp.zeros(1000))
    step = rx.function(lambda x: w.assign_add(x))
    loaded = rx.debug.load(path)
    loaded.attach(rx.train.Checkpoint(w=w), step)
    with pytest.raises(rx.errors.DataLossError, match="no sound array"):
        loaded.run()
    assert np.array_equal(w.numpy(), np.zeros(1000)), "nothing was run"


def test_there_is_no_capsule(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(rx.errors.DataLossError, match="is no folder"):
        rx.debug.load(tmp_path / "gone")
    assert main(["replay", str(tmp_path), str(tmp_path / "gone.py")]) == 2
    assert "there is no file" in capsys.readouterr().err
