"""The data, in NumPy and plain files: every library reads the same numbers.

Only NumPy is needed here, as other interpreters import this file too. The files of records are
written by hand, so that no library that is measured has a say in what it will read.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FEATURES, LABEL, PAYLOAD = "features", "label", "payload"
MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32)
DEVIATION = np.array([0.2470, 0.2435, 0.2616], np.float32)

Columns = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Rows:
    """Rows in memory. An epoch is a whole number of batches, so that its sum can be checked."""

    batch: int
    batches: int
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def count(self) -> int:
        return self.batch * self.batches

    @functools.cached_property
    def columns(self) -> Columns:
        """Returns the values, and a label for each row."""
        rng = np.random.default_rng(self.batch)
        if self.dtype == "uint8":
            values = rng.integers(0, 256, (self.count, *self.shape), np.uint8)
        else:
            values = rng.standard_normal((self.count, *self.shape), np.float32)
        return values, rng.integers(0, 10, self.count).astype(np.int32)


@dataclass(frozen=True)
class Records:
    """Files of records: a `tf.train.Example` of some floats, an integer and some bytes."""

    batch: int
    files: int
    per_file: int
    floats: int = 196
    payload: int = 200

    @property
    def batches(self) -> int:
        return -(-self.files * self.per_file // self.batch)

    def paths(self, folder: Path) -> list[str]:
        return [str(folder / f"{i:02d}.tfrecord") for i in range(self.files)]

    def write(self, folder: Path) -> None:
        rng = np.random.default_rng(self.batch)
        for path in self.paths(folder):
            floats = rng.standard_normal((self.per_file, self.floats), np.float32)
            labels = rng.integers(0, 100, self.per_file)
            payload = rng.integers(0, 256, (self.per_file, self.payload), np.uint8)
            Path(path).write_bytes(framed(examples(floats, labels, payload)))


@dataclass(frozen=True)
class Lines:
    """Files of text, in lines of 20 to 60 letters."""

    batch: int
    files: int
    per_file: int

    @property
    def batches(self) -> int:
        return -(-self.files * self.per_file // self.batch)

    def paths(self, folder: Path) -> list[str]:
        return [str(folder / f"{i:02d}.txt") for i in range(self.files)]

    def write(self, folder: Path) -> None:
        rng = np.random.default_rng(self.batch)
        for path in self.paths(folder):
            ends = np.cumsum(rng.integers(21, 62, self.per_file))
            text = rng.integers(ord("a"), ord("z") + 1, ends[-1]).astype(np.uint8)
            text[ends - 1] = ord("\n")
            Path(path).write_bytes(text.tobytes())


@dataclass(frozen=True)
class Data:
    """What all cases read."""

    a: Rows
    b: Rows
    c: Rows
    d: Records
    e: Lines
    folder: Path

    def write(self) -> None:
        self.d.write(self.folder)
        self.e.write(self.folder)


def data_of(quick: bool, folder: str | Path) -> Data:
    """Returns what is read, which is in files of a folder once it is written."""
    if quick:
        return Data(
            Rows(32, 4, (784,)),
            Rows(64, 4, (16,)),
            Rows(16, 4, (32, 32, 3), "uint8"),
            Records(16, 4, 40),
            Lines(64, 4, 200),
            Path(folder),
        )
    return Data(
        Rows(256, 234, (784,)),
        Rows(1024, 98, (16,)),
        Rows(128, 100, (32, 32, 3), "uint8"),
        Records(256, 8, 5000),
        Lines(1024, 8, 50_000),
        Path(folder),
    )


# Normalising images


def scale_and_offset(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns arrays of a whole image: NumPy is ten times slower if it broadcasts three numbers."""
    scale, offset = 1 / (255 * DEVIATION), -MEAN / DEVIATION
    scale, offset = np.broadcast_to(scale, shape), np.broadcast_to(offset, shape)
    return np.ascontiguousarray(scale), np.ascontiguousarray(offset)


# Records


def examples(floats: np.ndarray, labels: np.ndarray, payload: np.ndarray) -> np.ndarray:
    """Returns serialized `tf.train.Example`s, one in each row: all have the same length."""
    # Bytes that stand for a value until it is filled in, and that occur nowhere else.
    fillers = (b"\xf1" * 4 * floats.shape[1], b"\xf2", b"\xf3" * payload.shape[1])
    kinds = (2, 3, 1)  # FloatList, Int64List and BytesList, by their numbers in a Feature
    entries = b""
    for name, kind, filler in zip((FEATURES, LABEL, PAYLOAD), kinds, fillers):
        feature = _field(kind, _field(1, filler))
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    template = _field(1, entries)
    rows = np.tile(np.frombuffer(template, np.uint8), (len(floats), 1))
    columns = (np.ascontiguousarray(floats).view(np.uint8), labels[:, None], payload)
    for filler, column in zip(fillers, columns):
        start = template.index(filler)
        rows[:, start : start + len(filler)] = column
    return rows


def _field(number: int, content: bytes) -> bytes:
    """Returns a protocol buffer field of bytes: its tag, its length, its content."""
    length, size = len(content), b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def framed(rows: np.ndarray) -> bytes:
    """Returns the content of a TFRecord file: length, its checksum, the record, its checksum."""
    count, size = rows.shape
    length = np.frombuffer(np.array([size], "<u8").tobytes(), np.uint8)
    lengths = np.tile(length, (count, 1))
    parts = [lengths, _checksums(lengths), rows, _checksums(rows)]
    return np.concatenate(parts, axis=1).tobytes()


def _checksums(rows: np.ndarray) -> np.ndarray:
    """Returns the masked CRC-32C of each row, as its four bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)
    return masked.astype("<u4")[:, None].view(np.uint8)
