"""Tables whose checksums fit, made by somebody else: each odd one is refused, and none hangs."""

import random
import struct
from pathlib import Path

import pytest

import replicax as rx
from replicax._src._checksums import checksum_of, masked
from replicax._src.checkpoints.foreign._messages import parsed
from replicax._src.checkpoints.foreign._slices import Part
from replicax._src.checkpoints.foreign._table import TableError, read_table
from tests.checkpoints.foreign.recordings import NAMES


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def entries(pairs: list[tuple[bytes, bytes]]) -> bytes:
    block = b"".join(
        varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in pairs
    )
    return block + struct.pack("<II", 0, 1)


def table(pairs: list[tuple[bytes, bytes]], kind: int = 0) -> bytes:
    """A table of one block, with checksums that fit."""
    return _table_of(entries(pairs), kind)


def _table_of(block: bytes, kind: int = 0) -> bytes:
    def stored(block: bytes, kind: int = 0) -> bytes:
        body = block + bytes([kind])
        return body + struct.pack("<I", masked(checksum_of(body)))

    data = stored(block, kind)
    handle = varint(0) + varint(len(data) - 5)
    index = stored(entries([(b"\xff", handle)]))
    footer = varint(0) + varint(0) + varint(len(data)) + varint(len(index) - 5)
    return data + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def test_a_table_gives_its_keys_and_values():
    pairs = [(b"a", b"1"), (b"ab", b""), (b"b", b"3" * 300)]
    assert list(read_table(table(pairs))) == pairs


def test_keys_that_share_a_long_beginning_take_no_memory():
    key = b"k" * 20_000
    block = varint(0) + varint(len(key)) + varint(0) + key
    for number in range(2000):
        end = number.to_bytes(2, "big")
        block += varint(len(key)) + varint(2) + varint(0) + end
    with pytest.raises(TableError, match="too long for its size"):
        list(read_table(_table_of(block + struct.pack("<II", 0, 1))))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut off, or no table"),
        (b"x" * 100, "cut off, or no table"),
        (table([(b"b", b""), (b"a", b"")]), "not in order"),
        (table([(b"a", b"")], kind=1), "compressed"),
        (table([(b"a", b"")])[:-60] + table([(b"a", b"")])[-48:], "beyond its end|checksum"),
    ],
)
def test_odd_tables_are_refused(content: bytes, words: str):
    with pytest.raises(TableError, match=words):
        list(read_table(content))


def bundle(folder: Path, **entry: object) -> Path:
    """A checkpoint of one tensor, of which the index says this; there are 16 bytes of data."""
    header = parsed("BundleHeader", b"")
    header.num_shards = 1
    said = parsed("BundleEntry", b"")
    said.dtype, said.size = 1, 16
    shape = parsed("Shape", b"")
    for size in entry.pop("shape", [4]):  # type: ignore[union-attr]
        shape.dim.add(size=size)
    said.shape = shape.SerializeToString()
    for name, value in entry.items():
        setattr(said, name, value)
    content = table([(b"", header.SerializeToString()), (b"w", said.SerializeToString())])
    (folder / "ckpt.index").write_bytes(content)
    (folder / "ckpt.data-00000-of-00001").write_bytes(bytes(16))
    return folder / "ckpt"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"shape": [1 << 40]}, "has 16 bytes and should have"),
        ({"shape": [1 << 40], "size": 1 << 42}, "the file ends at 16 bytes"),
        ({"shape": [-4]}, "has the shape"),
        ({"offset": -8}, "no place there"),
        ({"offset": 8}, "the file ends at 16 bytes"),
        ({"shard_id": 3}, "is in file 3 of 1"),
        ({"dtype": 7, "shape": [1 << 50]}, "so many texts"),
        ({"dtype": 7, "shape": [3]}, "checksum of the lengths"),
        ({}, "checksum does not fit"),
        ({"dtype": 21}, "only TensorFlow reads"),
        ({"shape": [1] * 65}, "has the shape"),
    ],
)
def test_claims_that_do_not_fit_the_files_are_refused(
    tmp_path: Path, entry: dict[str, object], words: str
):
    path = bundle(tmp_path, **entry)
    with pytest.raises(rx.errors.CheckpointError, match=words):
        rx.train.load_variable(path, "w")


def test_random_messages_with_fitting_checksums_never_crash(tmp_path: Path):
    pairs = list(read_table(Path(f"{NAMES}.index").read_bytes()))
    chance = random.Random(5)
    for file in NAMES.parent.glob("model.ckpt-1.data*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for _ in range(150):
        changed = list(pairs)
        for _ in range(chance.choice([1, 3])):
            index = chance.randrange(len(changed))
            key, value = changed[index]
            odd = bytearray(value or b"\0")
            odd[chance.randrange(len(odd))] ^= 1 << chance.randrange(8)
            changed[index] = key, bytes(odd)
        (tmp_path / "model.ckpt-1.index").write_bytes(table(changed))
        try:
            reader = rx.train.load_checkpoint(tmp_path / "model.ckpt-1")
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
        except rx.errors.CheckpointError:
            pass


@pytest.mark.parametrize("number", [0, 63, 64, -1, -64, -65, 8191, 8192, 1 << 20, 1 << 40, 1 << 62])
def test_keys_of_slices_are_in_the_order_of_what_they_stand_for(number: int):
    one, next_one = (Part((n,), (1,)).key("w") for n in (number, number + 1))
    assert one < next_one
