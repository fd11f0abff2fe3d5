"""The file of `cache(filename)`: everything that elements hold comes back; nothing in it is run."""

import collections
import json
import os
import pickle
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import replicax as rx
from tests.pipelines import Dataset, elements

Pair = collections.namedtuple("Pair", "left right")
FIRST_LINE = b"replicax cache 1\n"


def read_again(dataset: Any, name: Path) -> tuple[list[Any], list[Any]]:
    """The elements as they are computed, and as the file has them."""
    kept = dataset.cache(name)
    return list(kept), list(dataset.cache(name))


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other):
            assert_same(a, b)
    elif isinstance(one, bytes):
        assert one == other
    else:
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tolist() == other.tolist()


def from_list(items: list[Any]) -> Any:
    return Dataset.from_generator(lambda: iter(items))


DTYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"]


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([np.arange(6).reshape(2, 3).astype(each) for each in DTYPES], id="dtypes"),
        pytest.param([np.array([1, 2], ml_dtypes.bfloat16)], id="bfloat16"),
        pytest.param([np.array([1, 2], ml_dtypes.int4)], id="int4"),
        pytest.param([np.float32(1.5), np.bool_(True), np.int64(2**40)], id="scalars"),
        pytest.param([np.array(3), np.array(4.5)], id="0-d"),
        pytest.param([np.zeros((0, 3)), np.zeros((2, 0)), np.zeros(0, "int32")], id="empty"),
        pytest.param([np.zeros(n) for n in (3, 1, 3, 2, 1)], id="lengths"),
        pytest.param([b"", b"a\0", b"long" * 999], id="bytes"),
        pytest.param([np.array([[b"a", b""], [b"\0", b"bc"]], object)], id="texts"),
        pytest.param([np.array([b"a"], object), np.array([], object)], id="no texts"),
        pytest.param([(1, {"a": (2.5, b"x"), "": np.arange(3)})] * 3, id="nested"),
        pytest.param([{"z": 1, "a": 2}] * 2, id="order of keys"),
        pytest.param([{3: 1, "a": 2}] * 2, id="keys that are no text"),
        pytest.param([Pair(1, (2, 3))] * 2, id="named tuple"),
        pytest.param([np.asfortranarray(np.arange(6).reshape(2, 3))], id="order of bytes"),
        pytest.param([], id="none"),
    ],
)
def test_elements_come_back_as_they_were(tmp_path: Path, items: list[Any]):
    if not items:
        dataset: Any = Dataset.range(0)
    else:
        dataset = from_list(items)
    computed, read = read_again(dataset, tmp_path / "kept")
    assert len(computed) == len(read) == len(items)
    for one, other in zip(computed, read):
        assert_same(one, other)


def test_sparse_values_come_back(tmp_path: Path):
    sparse = rx.io.SparseTensor(np.array([[0], [2]]), np.array([5, 6]), np.array([3]))
    dataset = Dataset.range(2).map(lambda x: {"s": sparse})
    computed, read = read_again(dataset, tmp_path / "kept")
    assert type(read[0]["s"]) is rx.io.SparseTensor
    assert_same(computed[1], read[1])


def test_records_come_back(tmp_path: Path):
    with rx.io.TFRecordWriter(str(tmp_path / "r")) as writer:
        for record in (b"one", b"", b"three"):
            writer.write(record)
    dataset = rx.data.TFRecordDataset(str(tmp_path / "r")).batch(2)
    computed, read = read_again(dataset, tmp_path / "kept")
    assert_same(computed[0], read[0])
    assert read[1].tolist() == [b"three"]


def test_arrays_of_a_file_cannot_be_written_to(tmp_path: Path):
    for item in (np.arange(3), np.array([b"a"], object)):
        name = tmp_path / item.dtype.name
        _, (read,) = read_again(from_list([item]), name)
        with pytest.raises(ValueError, match="read-only"):
            read[0] = read[0]


def test_what_has_no_place_in_a_file_is_refused_at_the_first_element(tmp_path: Path):
    name = tmp_path / "kept"
    with pytest.raises(TypeError, match=r"windows of window.*flat_map.*batch"):
        next(iter(Dataset.range(6).window(2).cache(name)))
    rows = np.zeros(3, [("a", "i4"), ("b", "f4")])
    with pytest.raises(TypeError, match=r"numbers and of text.*Take it apart in map"):
        next(iter(Dataset.from_tensor_slices(rows).cache(name)))
    assert not name.exists()
    assert len(list(Dataset.range(6).window(2).cache())) == 3


# ------------------------------------------------------------------ files of others


class Payload:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path):
    name, mark = tmp_path / "kept", tmp_path / "mark"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        name.write_bytes(pickle.dumps([Payload(mark)], protocol))
        with pytest.raises(ValueError, match="no cache file.*Delete it"):
            list(Dataset.range(2).cache(name))
    assert not mark.exists()


def test_a_file_of_an_older_version_is_refused_with_what_to_do(tmp_path: Path):
    name = tmp_path / "kept"
    name.write_bytes(pickle.dumps([np.int64(0), np.int64(1)], pickle.HIGHEST_PROTOCOL))
    with pytest.raises(ValueError, match="pickle, as older versions.*Delete it, so that the"):
        list(Dataset.range(2).cache(name))
    name.unlink()
    assert elements(Dataset.range(2).cache(name)) == [0, 1]


def test_every_changed_byte_is_found(tmp_path: Path):
    name = tmp_path / "kept"
    rows = {"x": np.arange(4.0).reshape(2, 2), "t": ["a", "bc"]}
    dataset = Dataset.from_tensor_slices(rows)
    wanted = elements(dataset.cache(name))
    whole = name.read_bytes()
    unnoticed = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x41
        name.write_bytes(bytes(changed))
        try:
            assert elements(dataset.cache(name)) == wanted  # a byte between two sections
            unnoticed += 1
        except ValueError as error:
            assert "no cache file" in str(error)
    assert unnoticed < 64 * 5
    for length in range(len(whole)):
        name.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="no cache file"):
            list(dataset.cache(name))


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str):
    name = tmp_path / "kept"
    if kind == "folder":
        name.mkdir()
    elif kind == "pipe":
        os.mkfifo(name)
    else:
        name.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="no regular file.*name another file"):
        list(Dataset.range(2).cache(name))


def written(description: Any, sections: Sequence[bytes] = ()) -> bytes:
    """A file with valid checksums."""
    if isinstance(description, dict):
        description = {
            "elements": 1,
            "structure": [],
            "seeds": [],
            "columns": [[["array", "int64", []]]],
            "sections": [[len(each), zlib.crc32(each)] for each in sections],
        } | description
    text = description if isinstance(description, bytes) else json.dumps(description).encode()
    whole = FIRST_LINE + struct.pack("<QI", len(text), zlib.crc32(text)) + text
    for section in sections:
        whole += bytes(-len(whole) % 64) + section
    return whole


ONE = struct.pack("<i", 0)
NUMBER = struct.pack("<q", 7)


def test_a_file_of_this_form_is_read(tmp_path: Path):
    name = tmp_path / "kept"
    name.write_bytes(written({}, [ONE, NUMBER]))
    assert elements(Dataset.range(1).cache(name)) == [7]


def column(*look: Any) -> dict[str, Any]:
    return {"columns": [[list(look)]]}


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a length of 2**63": lambda: FIRST_LINE + struct.pack("<QI", 2**63, 0) + b"{}",
    "no JSON": lambda: written(b"\xff"),
    "no dict": lambda: written(b"[]"),
    "no keys": lambda: written(b"{}"),
    "nested deeply": lambda: written(b"[" * 200_000),
    "a structure nested deeply": lambda: written(
        b'{"elements": 1, "seeds": [], "columns": [[["array", "int64", []]]], "sections": [],'
        b'"structure": ' + b'["tuple", ' * 900 + b"[]" + b"]" * 900 + b"}"
    ),
    "a number of 9,999 digits": lambda: written(b'{"elements": ' + b"9" * 9999 + b"}"),
    "elements below 0": lambda: written({"elements": -1}, [ONE, NUMBER]),
    "elements of no type": lambda: written({"elements": True}, [ONE, NUMBER]),
    "2**62 elements": lambda: written({"elements": 2**62}, [ONE, NUMBER]),
    "2**62 elements without columns": lambda: written({"elements": 2**62, "columns": []}),
    "elements without a structure": lambda: written({"structure": None}, [ONE, NUMBER]),
    "an unknown container": lambda: written({"structure": ["os.system", []]}, [ONE, NUMBER]),
    "a class": lambda: written({"structure": "Payload(.)"}, [ONE, NUMBER]),
    "a key that is no text": lambda: written({"structure": ["dict", [1, []]]}, [ONE, NUMBER]),
    "more leaves than columns": lambda: written({"structure": ["tuple", [], []]}, [ONE, NUMBER]),
    "a sparse value of one leaf": lambda: written({"structure": ["sparse", []]}, [ONE, NUMBER]),
    "an object dtype": lambda: written(column("array", "object", []), [ONE, NUMBER]),
    "a dtype by expression": lambda: written(column("array", "i4,O", []), [ONE, NUMBER]),
    "a dtype of dates": lambda: written(column("array", "datetime64", []), [ONE, NUMBER]),
    "a dtype that is a list": lambda: written(column("array", ["i4"], []), [ONE, NUMBER]),
    "an unknown kind": lambda: written(column("pickle", "int64", []), [ONE, NUMBER]),
    "a size below 0": lambda: written(column("array", "int64", [-1]), [ONE, NUMBER]),
    "a size that is no integer": lambda: written(column("array", "int64", [1.0]), [ONE, NUMBER]),
    "a shape of 2**62": lambda: written(column("array", "int64", [2**62]), [ONE, NUMBER]),
    "a shape that overflows": lambda: written(column("array", "int64", [2**63, 2]), [ONE, NUMBER]),
    "an impossible shape": lambda: written(column("array", "int64", [0, 2**80]), [ONE, b""]),
    "too many dimensions": lambda: written(column("array", "int64", [1] * 200), [ONE, NUMBER]),
    "too few bytes": lambda: written({}, [ONE, NUMBER[:7]]),
    "too few sections": lambda: written({}, [ONE]),
    "too many sections": lambda: written({}, [ONE, NUMBER, NUMBER]),
    "a section of 2**62 bytes": lambda: written({"sections": [[4, 0], [2**62, 0]]}, [ONE, NUMBER]),
    "a look that there is not": lambda: written({}, [struct.pack("<i", 1), NUMBER]),
    "a look below 0": lambda: written({}, [struct.pack("<i", -1), NUMBER]),
    "a bool of 2": lambda: written(column("scalar", "bool", []), [ONE, b"\2"]),
    "a text of 2**62 bytes": lambda: written(
        column("bytes", "string", []), [ONE, struct.pack("<q", 2**62)]
    ),
    "a text below 0": lambda: written(
        column("array", "string", [2]), [ONE, struct.pack("<qq", -1, 2) + b"a"]
    ),
    "texts whose lengths overflow": lambda: written(
        column("array", "string", [3]), [ONE, struct.pack("<qqq", 2**62, 2**62, 2**63 - 1)]
    ),
    "bytes of numbers": lambda: written(column("bytes", "int64", []), [ONE, NUMBER]),
    "a scalar with a shape": lambda: written(column("scalar", "int64", [1]), [ONE, NUMBER]),
    "seeds that are texts": lambda: written({"seeds": ["1"]}, [ONE, NUMBER]),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_give_one_error(tmp_path: Path, kind: str):
    name = tmp_path / "kept"
    name.write_bytes(HOSTILE[kind]())
    with pytest.raises(ValueError, match="kept' is no cache file.*Delete it"):
        list(Dataset.range(1).cache(name))


# ------------------------------------------------------------------ the order that was kept


def shuffled(name: Any = "", count: int = 40) -> Any:
    return Dataset.range(count).shuffle(count).cache(name)


def test_a_state_of_another_order_does_not_continue_in_what_is_kept(tmp_path: Path):
    for name in ("", tmp_path / "kept"):
        other = iter(shuffled())  # that was not walked to its end
        begun = [int(next(other)) for _ in range(15)]
        state, rest = other.get_state(), [int(each) for each in other]
        dataset = shuffled(name)
        mine = elements(dataset)  # what is kept, in an order of its own
        assert mine != begun + rest
        iterator = iter(dataset)
        iterator.set_state(state)
        assert elements(iterator) == rest
        assert elements(dataset) == begun + rest  # as would have followed


def test_a_state_of_the_order_that_is_kept_continues_in_it(tmp_path: Path):
    for name in ("", tmp_path / "kept"):
        dataset = shuffled(name)
        first = iter(dataset)
        begun = [int(next(first)) for _ in range(7)]
        state, rest = first.get_state(), [int(each) for each in first]
        second = iter(dataset)
        second.set_state(state)
        assert elements(second) == rest and elements(dataset) == begun + rest


def test_a_file_is_used_by_later_programs_with_the_order_in_it(tmp_path: Path):
    name = tmp_path / "kept"
    wanted = elements(shuffled(name))
    later = iter(shuffled(name))
    at_start = later.get_state()
    assert [int(next(later)) for _ in range(9)] == wanted[:9]
    state = later.get_state()
    name.unlink()
    for kept_state, position in ((at_start, 0), (state, 9)):
        resumed = iter(shuffled(tmp_path / f"other-{position}"))  # which has the seeds of the state
        resumed.set_state(kept_state)
        assert elements(resumed) == wanted[position:]


def test_the_order_of_a_cached_set_inside_flat_map_is_that_of_the_state():
    def make() -> Any:
        common = Dataset.range(6).shuffle(6).cache()
        return Dataset.range(3).flat_map(lambda _: common)

    one = iter(make())
    begun = [int(next(one)) for _ in range(8)]
    state, rest = one.get_state(), elements(one)
    whole = begun + rest
    assert whole[:6] == whole[6:12] == whole[12:]  # computed once
    other = make()
    elements(other)
    resumed = iter(other)
    resumed.set_state(state)
    assert elements(resumed) == rest


def test_others_may_read_the_file_as_the_umask_says(tmp_path: Path):
    before = os.umask(0o022)
    try:
        list(Dataset.range(3).cache(str(tmp_path / "cache")))
    finally:
        os.umask(before)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o644
