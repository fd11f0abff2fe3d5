"""Checkpoints that somebody has made up, with checksums that fit: refused, and nothing is set."""

import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.checkpoints import _arrays, _folder, _manifest

pytestmark = pytest.mark.timeout(600)  # a pipe or an endless device may not hold anybody up

SEED = int(os.environ.get("REPLICAX_FUZZ_SEED", "0"))
SAMPLES = int(os.environ.get("REPLICAX_FUZZ_SAMPLES", "150"))  # of the thousands of positions
WRONG = [None, True, -1, 7, 2**70, 0.5, math.nan, "", "x", [], ["x"], {}, {"x": 1}, [[[[]]]]]


class Objects:
    """Something of every kind that a checkpoint can hold."""

    def __init__(self) -> None:
        self.w = rx.Variable([1.0, 2.0])
        self.optimizer = rx.Optimizer(optax.adam(0.1))
        self.optimizer.build([self.w])
        self.iterator = iter(rx.data.Dataset.range(100).shuffle(100, seed=1).batch(4))
        self.holder: dict[str, Any] = {"array": np.ones(3), "key": jax.random.key(3), "n": 5}
        self.holder |= {"complex": 1 + 2j, "numpy": np.float32(0.5)}
        self.checkpoint = rx.train.Checkpoint(
            w=self.w, optimizer=self.optimizer, iterator=self.iterator, holder=self.holder
        )

    def move(self) -> None:
        """To where no checkpoint is."""
        self.w.assign([8.0, 9.0])
        self.optimizer.apply_gradients([(jnp.ones(2), self.w)])
        next(self.iterator, None)  # a made-up position may be at the end
        self.holder |= {"array": np.zeros(3), "key": jax.random.key(4), "n": 6}
        self.holder |= {"complex": 0j, "numpy": np.float32(0.25)}

    def state(self) -> str:
        """All values, for comparisons."""
        values = {**self.holder, "key": jax.random.key_data(self.holder["key"])}
        slots = [each.numpy().tolist() for *_, each in self.optimizer._slots()]
        return repr([self.w.numpy().tolist(), slots, self.iterator.get_state(), values])


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def path(objects: Objects, tmp_path: Path) -> Path:
    made = Path(objects.checkpoint.write(tmp_path / "run" / "ckpt-2"))
    objects.move()
    return made


def seal(path: Path, content: Any) -> None:
    """Writes a manifest with the right checksum."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    checksum = _manifest.checksum_of(body)
    (path / "manifest.json").write_bytes(body + b"\n%08x\n" % checksum)


def manifest_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "manifest.json").read_bytes().split(b"\n")[0])


def seal_files(path: Path) -> None:
    """Makes the manifest fit whatever the files are now."""
    content = manifest_of(path)
    content["files"] = {}
    for name in sorted(os.listdir(path)):
        if name != "manifest.json":
            content["files"] |= _folder.sync_and_list(str(path), name)
    seal(path, content)


def refused(objects: Objects, path: Path, words: str = "is damaged") -> None:
    before = objects.state()
    with pytest.raises(rx.errors.DataLossError, match=words) as caught:
        objects.checkpoint.read(path)
    assert isinstance(caught.value, rx.errors.CheckpointError) and str(path) in str(caught.value)
    assert objects.state() == before


def mutations(tree: Any) -> Iterator[Any]:
    """The tree with something else at each position, and without it."""
    for wrong in WRONG:
        if json.dumps(wrong) != json.dumps(tree):
            yield wrong
    if isinstance(tree, dict):
        for key, inner in tree.items():
            yield {k: v for k, v in tree.items() if k != key}
            for other in mutations(inner):
                yield {**tree, key: other}
    elif isinstance(tree, list):
        for index, inner in enumerate(tree):
            yield tree[:index] + tree[index + 1 :]
            for other in mutations(inner):
                yield [*tree[:index], other, *tree[index + 1 :]]


# --- things that are no files ---------------------------------------------------------------------


def pipe(file: Path) -> None:
    os.mkfifo(file)


def endless(file: Path) -> None:
    file.symlink_to("/dev/zero")


def link_out(file: Path) -> None:
    shutil.copy(file.with_name(file.name + ".real"), file.parents[1] / "outside")
    file.symlink_to(file.parents[1] / "outside")


def link_in(file: Path) -> None:
    file.symlink_to(file.name + ".real")


def folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize("make", [pipe, endless, link_out, link_in, folder])
@pytest.mark.parametrize("name", ["manifest.json", "objects.json", "arrays/manifest.ocdbt"])
def test_only_regular_files_are_read(
    make: Callable[[Path], None], name: str, objects: Objects, path: Path
):
    good = objects.checkpoint.write(path.with_name("ckpt-1"))
    seal(path, {**manifest_of(path), "sequence": 99})
    file = path / name
    file.rename(file.with_name(file.name + ".real"))
    make(file)
    refused(objects, path)
    with pytest.warns(UserWarning, match=r"(?s)passed over.*ckpt-2 is damaged"):
        assert rx.train.latest_checkpoint(path.parent) == good
    with pytest.raises(rx.errors.CheckpointError):
        rx.train.list_variables(path)


def test_what_is_not_in_the_manifest_may_not_be_a_pipe_either(objects: Objects, path: Path):
    """TensorStore opens files by itself."""
    os.mkfifo(path / "arrays" / "d" / "data")
    refused(objects, path, "arrays/d/data is not a regular file")


def test_a_folder_that_is_a_link(objects: Objects, path: Path):
    shutil.move(path / "arrays", path.parents[1] / "elsewhere")
    (path / "arrays").symlink_to(path.parents[1] / "elsewhere")
    refused(objects, path, "arrays is not a regular file")


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/hostname", "arrays/../../outside", "", ".", "a\0b", "\ud800"]
)
def test_names_that_lead_out(name: str, objects: Objects, path: Path):
    (path.parent / "outside").write_bytes(b"secret")
    content = manifest_of(path)
    content["files"][name] = [6, _manifest.checksum_of(b"secret")]
    seal(path, content)
    refused(objects, path, r"(?s)the file .*is missing")


def test_a_checkpoint_behind_a_link_is_fine(objects: Objects, path: Path):
    (path.parent / "latest").symlink_to("ckpt-2")
    objects.checkpoint.read(path.parent / "latest").assert_consumed()
    assert objects.holder["n"] == 5


# --- sizes ----------------------------------------------------------------------------------------


def test_a_size_that_lies_is_found_before_anything_is_read(
    objects: Objects, path: Path, monkeypatch: pytest.MonkeyPatch
):
    os.truncate(path / "objects.json", 1 << 40)  # a sparse file, which takes no room
    refused(objects, path, "objects.json has 1099511627776 bytes and should have")


def test_a_manifest_without_end(objects: Objects, path: Path):
    os.truncate(path / "manifest.json", 1 << 40)
    refused(objects, path, "manifest.json has more than")


@pytest.mark.parametrize("piece", [1 << 20, 1 << 30])
def test_an_array_that_claims_more_than_is_there(piece: int, objects: Objects, path: Path):
    """2 kB that say to be 4 GB: what is not stored would be read as zeros."""
    import tensorstore

    shutil.rmtree(path / "arrays")
    wanted = {"shape": [1 << 30], "chunks": [piece], "dtype": "<f4", "compressor": None}
    spec = {**_arrays._spec(str(path / "arrays"), "w"), "metadata": wanted}
    tensorstore.open(spec, create=True, open=False).result()
    seal_files(path)
    for read in (
        lambda: rx.train.Checkpoint(w=objects.w).read(path),
        lambda: rx.train.load_variable(path, "w"),
    ):
        with pytest.raises(rx.errors.DataLossError, match="arrays claim to have 4294967296 bytes"):
            read()
    assert objects.w.numpy()[0] != 0


def test_a_piece_that_claims_more_than_its_array(objects: Objects, path: Path):
    import tensorstore

    shutil.rmtree(path / "arrays")
    wanted = {"shape": [2], "chunks": [1 << 30], "dtype": "<f4", "compressor": {"id": "zlib"}}
    spec = {**_arrays._spec(str(path / "arrays"), "w"), "metadata": wanted}
    tensorstore.open(spec, create=True, open=False).result()
    seal_files(path)
    with pytest.raises(rx.errors.DataLossError, match="arrays claim to have 4294967296 bytes"):
        rx.train.Checkpoint(w=objects.w).read(path)


def test_arrays_that_are_not_what_they_are_said_to_be(objects: Objects, path: Path):
    for array in (np.ones(3), np.ones((2, 2), np.float32), np.ones(2, np.int8), np.ones(())):
        shutil.rmtree(path / "arrays")
        names = [each["path"] for each in read_objects(path)["objects"] if "shape" in each]
        _arrays.write_arrays(str(path / "arrays"), dict.fromkeys(names, array))
        seal_files(path)
        refused(objects, path, "arrays cannot be read")


def test_empty_arrays_have_room(tmp_path: Path):
    v = rx.Variable(np.zeros((0, 100_000), np.float32))
    checkpoint = rx.train.Checkpoint(v=v, w=rx.Variable(np.zeros((100_000, 0), np.float32)))
    checkpoint.read(checkpoint.write(tmp_path / "ckpt")).assert_consumed()


# --- types ----------------------------------------------------------------------------------------


def read_objects(path: Path) -> dict[str, Any]:
    return json.loads((path / "objects.json").read_bytes())


def test_every_position_of_the_manifest_with_wrong_types(objects: Objects, path: Path):
    content = manifest_of(path)
    good = str(path.with_name("good"))
    shutil.copytree(path, good)
    checked = 0
    for mutated in mutations(content):
        seal(path, mutated)
        before = objects.state()
        try:
            _folder.verify(str(path))
        except (rx.errors.DataLossError, rx.errors.CheckpointError) as error:
            assert isinstance(error, rx.errors.DataLossError) or "Use the replicax" in str(error)
            assert good in [found for found, _ in _folder.checkpoints_in(str(path.parent))]
        else:  # another number, or a file less to look at
            assert type(mutated["sequence"]) is type(mutated["workers"]) is int
        assert objects.state() == before
        checked += 1
    assert checked > 200


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b"1" * 5000, b"\xff", b"{}", b'"x"'])
def test_manifests_that_are_no_json(body: bytes, objects: Objects, path: Path):
    seal(path, body)
    refused(objects, path)


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b'{"objects": ' + b"1" * 5000, b"\xff"])
def test_objects_that_are_no_json(body: bytes, objects: Objects, path: Path):
    (path / "objects.json").write_bytes(body)
    seal_files(path)
    refused(objects, path, "objects.json has no list of objects")


@pytest.mark.filterwarnings("ignore:A checkpoint is passed over")
def test_positions_of_the_objects_with_wrong_types(objects: Objects, path: Path):
    """Refused, without a change; or, where another type is as good, restored."""
    refusals = 0
    everything = list(mutations(read_objects(path)))
    for mutated in random.Random(SEED).sample(everything, min(SAMPLES, len(everything))):
        (path / "objects.json").write_text(json.dumps(mutated))
        seal_files(path)
        before = objects.state()
        try:
            objects.checkpoint.read(path)
        except rx.errors.CheckpointError:
            assert objects.state() == before
            refusals += 1
        else:
            objects.move()
        assert rx.train.latest_checkpoint(path.parent) in (None, str(path))
    assert refusals > min(SAMPLES, len(everything)) // 2
