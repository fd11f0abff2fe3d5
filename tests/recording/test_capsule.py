"""A capsule that is damaged, or of somebody else, gets a clear error, and nothing of it is used."""

import gc
import hashlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.cli.main import main
from replicax._src.recording._capsule import write_capsule
from replicax._src.recording._compared import compared
from replicax._src.recording._replay import Replay
from tests.everything import EVERYTHING
from tests.recording.programs import Program


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


def pipe(path: Path) -> None:
    file = path / "worker-0" / "steps.jsonl"
    file.unlink()
    os.mkfifo(file)


def cut_checkpoint(path: Path) -> None:
    (path / "checkpoint" / "objects.json").unlink()


def link_checkpoint(path: Path) -> None:
    (path / "checkpoint").rename(path.parent / "elsewhere")
    (path / "checkpoint").symlink_to(path.parent / "elsewhere")


def bad_hex(path: Path) -> None:
    line = {"step": 1, "inputs": [["array", "numpy", [["float32", [1], "0g"]]]]}
    put(path, "worker-0/steps.jsonl", json.dumps(line).encode())


DAMAGE = {
    "a link to a checkpoint": (link_checkpoint, "checkpoint is no folder"),
    "bad digits": (bad_hex, "steps.jsonl: 'inputs' of step 1 is wrong: .* no sound array"),
    "no file": (lambda path: (path / "capsule.json").unlink(), "no file capsule.json"),
    "a flipped bit": (flip, "step-1-0-0.npy is not as it was written"),
    "a missing file": (
        lambda path: (path / "worker-0" / "steps.jsonl").unlink(),
        "steps.jsonl is missing",
    ),
    "a link": (link, "no regular file"),
    "a pipe": (pipe, "no regular file"),
    "nothing of what the checkpoint lacks": (
        lambda path: resigned(path, lambda content: content.update(unsaved=True)),
        "is damaged: .*unsaved",
    ),
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


# ------------------------------------------------------------------ by who knows the format


@pytest.fixture(scope="module")
def with_traps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = Program(tmp_path_factory.mktemp("trapped"), traps=rx.debug.Traps(bits=True))
    with program.recorder as recorder:
        for batch in program.data:
            program.step(*batch)
            program.w.assign(program.w * 0.5)
        return Path(recorder.save(2))


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in value if isinstance(value, dict) else range(len(value) if is_list(value) else 0):
        yield from places_in(value[key], (*path, key))


def is_list(value: object) -> bool:
    return isinstance(value, list)


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    changed = value.copy()
    changed[path[0]] = replaced(value[path[0]], path[1:], by)
    return changed


OTHERS = (None, -1, 10**30, 1.5, "zz", [], [[]], {}, {"a": [1]}, "\x1b[2J", [0, 0, 0], 2**52)


def test_values_of_other_types_are_refused_or_harmless(with_traps: Path, tmp_path: Path):
    program = Program(tmp_path / "again", traps=rx.debug.Traps(bits=True))
    program.recorder.close()
    iterator = iter(program.data)
    before = program.w.numpy()
    name = "worker-0/steps.jsonl"
    lines = [json.loads(line) for line in (with_traps / name).read_bytes().splitlines()]
    whole = {name: lines, "recording.json": None}
    whole["recording.json"] = json.loads((with_traps / "worker-0/recording.json").read_bytes())
    random = np.random.default_rng(0)
    places = [place for place in places_in(whole) if len(place) > 1]
    refused = 0
    for number in range(EVERYTHING * 2000 or 120):
        path = tmp_path / "capsule"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(with_traps, path)
        place = places[random.integers(len(places))]
        changed = replaced(whole, place, OTHERS[number % len(OTHERS)])
        steps = b"".join(json.dumps(each).encode() + b"\n" for each in changed[name])
        put(path, name, steps)
        put(path, "worker-0/recording.json", json.dumps(changed["recording.json"]).encode())
        try:
            capsule = rx.debug.load(path)
        except rx.errors.DataLossError as error:
            assert str(path) in str(error)
            refused += 1
            continue
        assert str(capsule).replace("\n", "").isprintable()
        try:
            for step in capsule.steps:
                capsule.recorded_results(step)
            compared(1, np.float32(1), FIGURES, [capsule._recorded.steps[0][1]])
            replay = Replay(
                capsule._recorded, program.checkpoint, lambda *_: (None, {}), lambda *_: ([], [])
            )
            replay.inputs_of(1)
            assert all(isinstance(each, str) for each in replay.prepare(2))
            program.w.assign(before)
        except rx.errors.DataLossError:
            refused += 1
    assert refused > 20
    assert np.array_equal(program.w.numpy(), before), "nothing was run"
    del iterator


FIGURES = {"largest": np.zeros((2, 2), np.float32), "bits": np.zeros((2, 2), np.uint32)}


def test_bytes_that_were_flipped_anywhere_are_seen(with_traps: Path, tmp_path: Path):
    random = np.random.default_rng(1)
    path = tmp_path / "capsule"
    shutil.copytree(with_traps, path, copy_function=shutil.copyfile)
    files = sorted(each for each in path.rglob("*") if each.is_file())
    for file in files:
        data = file.read_bytes()
        for _ in range(3 if data else 0):
            flipped = bytearray(data)
            flipped[random.integers(len(data))] ^= 1 << int(random.integers(8))
            file.write_bytes(flipped)
            with pytest.raises(rx.errors.DataLossError, match=re.escape(str(path))):
                rx.debug.load(path)
        file.write_bytes(data)
    rx.debug.load(path)


def test_what_a_capsule_holds_is_listed(
    capsule: Path, with_traps: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["replay", str(capsule), "--list"]) == 0
    printed = capsys.readouterr().out
    assert "worker-0/step-1-0-0.npy: argument 0 of step 1: rows of data, float32[1000]" in printed
    assert "checkpoint: w" in printed
    listed = rx.debug.load(capsule).contents
    files = {str(each.relative_to(capsule)) for each in capsule.rglob("*") if each.is_file()}
    assert {each for each in files if not each.startswith("checkpoint/")} <= listed.keys()
    assert not any("rows of data" in text for text in rx.debug.load(with_traps).contents.values())
    assert main(["replay", str(capsule)]) == 2
    assert "name the script" in capsys.readouterr().err


def test_a_path_may_go_up_from_a_link(
    capsule: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "link").symlink_to(capsule)
    for path in (f"../{capsule.name}", "../.."):
        assert main(["replay", f"{tmp_path}/link/{path}", "--list"]) == 0
        assert "checkpoint: w" in capsys.readouterr().out


# ------------------------------------------------------------------ recordings


def test_a_capsule_never_takes_the_place_of_something(capsule: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(FileExistsError):
        write_capsule(str(capsule.parent.parent), str(tmp_path / "mine"), 1)
    assert (tmp_path / "mine" / "file").read_text() == "mine"


def test_a_damaged_recording(tmp_path: Path):
    program = Program(tmp_path, rows=True)
    with program.recorder:
        program.train(epochs=1, save_every=100)
    folder = tmp_path / "recording"
    (segment,) = (folder / "worker-0").glob("segment-*")
    lines = segment.read_bytes().splitlines(keepends=True)
    for damage in (b"no JSON\n", b"[1]\n", b"\xff\xfe\n"):
        segment.write_bytes(b"".join([*lines[:2], damage, *lines[3:]]))
        with pytest.raises(rx.errors.DataLossError, match="segment-00000001.jsonl is damaged"):
            write_capsule(str(folder), str(tmp_path / "capsule"), 2)
        assert not (tmp_path / "capsule").exists()
    leading_out = {"step": 1, "inputs": [["files", "numpy", [["uint8", [1], "../../secret"]]]]}
    segment.write_bytes(lines[0] + json.dumps(leading_out).encode() + b"\n")
    with pytest.raises(rx.errors.DataLossError, match="no sound array"):
        write_capsule(str(folder), str(tmp_path / "capsule"), 2)
    segment.write_bytes(b"no JSON\n")
    with pytest.raises(rx.errors.DataLossError, match="no checkpoint from before it"):
        write_capsule(str(folder), str(tmp_path / "capsule"), 2)
    again = Program(tmp_path)  # and a program that goes on is not kept from it
    with again.recorder as recorder:
        again.train(epochs=1, save_every=100)
        assert rx.debug.load(recorder.save(3)).step == 3


def test_two_programs_do_not_record_into_one_folder(tmp_path: Path):
    w = rx.Variable(jnp.zeros(1000))
    step = rx.function(lambda x: w.assign_add(x))
    checkpoint = rx.train.Checkpoint(w=w)
    with rx.debug.Recorder(checkpoint, step, tmp_path / "r"):
        for _ in range(3):
            step(jnp.ones(1000))
        with pytest.raises(rx.errors.FailedPreconditionError, match="Another recorder writes to"):
            rx.debug.Recorder(checkpoint, rx.function(lambda: None), tmp_path / "r")
    earlier = tmp_path / "r" / "worker-0" / "step-3-0-0.npy"
    with rx.debug.Recorder(checkpoint, step, tmp_path / "r") as recorder:
        step(jnp.ones(1000))
        recorder.save()
        assert earlier.exists(), "until there is a checkpoint of this program"
        checkpoint.write(tmp_path / "new")
        step(jnp.ones(1000))
        recorder.save()
        assert not earlier.exists()


def test_a_recorder_that_is_forgotten_lets_others_record(tmp_path: Path):
    def record() -> Any:
        w = rx.Variable(jnp.zeros(3))
        step = rx.function(lambda x: w.assign_add(x))
        recorder = rx.debug.Recorder(rx.train.Checkpoint(w=w), step, tmp_path / "r")
        return recorder._ring._release

    release = record()
    gc.collect()
    assert not release.alive
    assert record() is not release
