"""Folders of `save`, `load` and `snapshot`: whole or not there, ours alone, checked when read."""

import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import replicax as rx
from replicax._src.data import _saved
from tests.pipelines import Calls, Dataset, elements
from tests.scripts import run_python

INDEX = "replicax-dataset"


class Pair(NamedTuple):
    left: Any
    right: Any


def parts_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def rewrite_index(folder: Path, change: Any) -> None:
    """Changes the index as somebody would who knows its checksum."""
    first, _, text = (folder / INDEX).read_bytes().split(b"\n", 2)
    description = json.loads(text)
    change(description)
    text = json.dumps(description).encode()
    checksum = f"{zlib.crc32(text):08x}".encode()
    (folder / INDEX).write_bytes(b"\n".join([first, checksum, text]))


def test_large_data_sets_are_in_parts_and_skipping_reads_only_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_saved, "_PART_ELEMENTS", 4)
    Dataset.range(11).save(tmp_path / "saved")
    parts = parts_in(tmp_path / "saved")
    assert len(parts) == 3
    parts[0].unlink()
    loaded = Dataset.load(tmp_path / "saved")
    assert len(loaded) == 11
    assert elements(loaded.skip(5)) == [5, 6, 7, 8, 9, 10]
    iterator = iter(loaded)
    iterator.set_state({**iterator.get_state(), "position": 9})
    assert elements(iterator) == [9, 10]
    with pytest.raises(rx.errors.DataLossError, match="part-.*it is not there.*Copy the whole"):
        elements(loaded)


def test_everything_that_elements_hold_comes_back(tmp_path: Path):
    rows = Dataset.range(1, 5).map(lambda x: {"a": np.arange(x), "b": (b"x" * x, np.float32(x))})
    rows.ragged_batch(2).save(tmp_path / "ragged", compression="GZIP")
    first, last = Dataset.load(tmp_path / "ragged")
    assert type(first["a"]) is rx.io.PaddedRows
    assert first["a"].rows.tolist() == [[0, 0], [0, 1]]
    assert last["b"][0].tolist() == [b"xxx", b"xxxx"]
    assert first["a"].lengths.dtype == np.int64


def test_containers_of_a_program_are_named_by_it(tmp_path: Path):
    pairs = Dataset.range(3).map(lambda x: Pair(x, x + 1))
    pairs.save(tmp_path / "pairs")
    with pytest.raises(ValueError, match=r"load\(path, element_spec=...\)"):
        Dataset.load(tmp_path / "pairs")
    loaded = Dataset.load(tmp_path / "pairs", element_spec=pairs.element_spec)
    assert next(iter(loaded)) == Pair(0, 1)
    with pytest.raises(ValueError, match="does not describe"):
        Dataset.load(tmp_path / "pairs", element_spec=(*pairs.element_spec,))


def test_nothing_but_a_saved_data_set_is_replaced(tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="has other things in it: 'notes.txt'.*another path"):
        Dataset.range(3).save(folder)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file that it did not make"):
        Dataset.range(3).save(tmp_path / "file")
    (folder / "notes.txt").unlink()
    Dataset.range(3).save(folder)
    (folder / "notes.txt").write_text("mine")
    Dataset.range(5).save(folder)
    assert elements(Dataset.load(folder)) == [0, 1, 2, 3, 4]
    assert (folder / "notes.txt").read_text() == "mine"
    assert len(parts_in(folder)) == 1


def test_what_fails_on_the_way_leaves_what_was_there(tmp_path: Path):
    def fails(x: Any) -> Any:
        if x == 2:
            raise LookupError("on purpose")
        return x

    Dataset.range(3).save(tmp_path / "folder")
    for folder in (tmp_path / "folder", tmp_path / "new"):
        with pytest.raises(LookupError):
            Dataset.range(5).map(fails).save(folder)
    assert elements(Dataset.load(tmp_path / "folder")) == [0, 1, 2]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("which", ["index", "part"])
@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_damage_is_found_and_named(tmp_path: Path, which: str, damage: str, compression: Any):
    Dataset.range(50).save(tmp_path / "saved", compression)
    path = tmp_path / "saved" / INDEX if which == "index" else parts_in(tmp_path / "saved")[0]
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    damaged = {"cut": content[: len(content) // 2], "changed": content, "empty": b""}[damage]
    path.write_bytes(bytes(damaged))
    with pytest.raises(rx.errors.DataLossError, match=path.name):
        elements(Dataset.load(tmp_path / "saved"))


HOSTILE = {
    "another folder": lambda d: d["shards"][0][1][0].__setitem__(0, "../../etc/passwd"),
    "another number": lambda d: d["shards"][0][1][0].__setitem__(1, 49),
    "a negative number": lambda d: d["shards"][0][1][0].__setitem__(1, -1),
    "a dtype of objects": lambda d: d["leaves"][0].__setitem__(1, "object"),
    "a size below 0": lambda d: d["leaves"][0].__setitem__(0, [-1]),
    "another structure": lambda d: d.__setitem__("structure", ["tuple", [], []]),
    "a structure that is none": lambda d: d.__setitem__("structure", ["os.system", []]),
    "no shards": lambda d: d.pop("shards"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_index_is_not_believed(tmp_path: Path, case: str):
    Dataset.range(50).save(tmp_path / "saved")
    rewrite_index(tmp_path / "saved", HOSTILE[case])
    with pytest.raises(rx.errors.DataLossError, match="saved"):
        elements(Dataset.load(tmp_path / "saved"))


def test_a_snapshot_is_computed_once(tmp_path: Path):
    calls = Calls()
    function = calls.of(lambda x: x + 1)
    make = lambda: Dataset.range(4).map(function).snapshot(tmp_path / "kept")  # noqa: E731
    dataset = make()
    iterator = iter(dataset)
    next(iterator)
    iterator.close()  # broken off: nothing is kept
    assert elements(dataset) == [1, 2, 3, 4]
    count = len(calls)
    assert elements(dataset) == elements(make()) == [1, 2, 3, 4]
    assert len(calls) == count
    assert elements(make().repeat(2)) == [1, 2, 3, 4] * 2
    other = Dataset.range(5).map(function).snapshot(tmp_path / "kept")
    assert elements(other) == [1, 2, 3, 4, 5]  # another pipeline has another folder


def test_a_snapshot_keeps_the_order_of_its_shuffle_for_other_programs(tmp_path: Path):
    make = lambda: Dataset.range(20).shuffle(20).snapshot(tmp_path / "kept")  # noqa: E731
    first = elements(make())
    assert elements(make()) == first
    assert sorted(first) == list(range(20))


def test_a_snapshot_is_read_as_its_functions_say_from_the_first_time_on(tmp_path: Path):
    dataset = Dataset.range(6).snapshot(
        tmp_path / "kept",
        shard_func=lambda x: x % 2,
        reader_func=lambda shards: shards.flat_map(lambda shard: shard),
    )
    assert elements(dataset) == elements(dataset) == [0, 2, 4, 1, 3, 5]


def test_arguments_that_have_no_meaning_here_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="takes no checkpoint_args"):
        Dataset.range(3).save(tmp_path / "saved", checkpoint_args={})
    with pytest.raises(TypeError, match=r"save\(\) cannot keep data sets"):
        Dataset.range(3).window(2).save(tmp_path / "saved")
    with pytest.raises(TypeError, match="reader_func, must return a data set"):
        Dataset.range(3).save(tmp_path / "saved")
        Dataset.load(tmp_path / "saved", reader_func=list)


FORKS = """
import os
import sys
import warnings

import replicax as rx

warnings.simplefilter("ignore")  # Python and JAX warn of forks


def numbers():
    for number in range(6):
        if number == 3 and not (child := os.fork()):
            sys.exit()
        yield number
    os.waitpid(child, 0)


made = rx.data.Dataset.from_generator(numbers, output_signature=rx.TensorSpec((), "int32"))
made.save("saved")
print(list(map(int, rx.data.Dataset.load("saved"))))
kept = made.snapshot("kept")
print(list(map(int, kept)))
print(list(map(int, kept)))
"""


def test_a_forked_child_removes_nothing_that_its_parent_writes(tmp_path: Path):
    lines = run_python(["-c", FORKS], tmp_path).splitlines()
    assert lines == ["[0, 1, 2, 3, 4, 5]"] * 3
