"""TensorFlow's checkpoints as files: an index of named tensors, and their bytes in shards.

`PREFIX.index` is a table: under each name where the bytes are, their dtype, shape and checksum.
`PREFIX.data-00000-of-00002` has the bytes. Only the index is held; a tensor is read when it is
asked for, into the array that is returned. No number of a file is trusted: what a tensor claims to
be must fit what is there before memory is taken for it.
"""

from __future__ import annotations

import math
import os
import stat
import struct
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import ml_dtypes
import numpy as np

from replicax._src._arrays import STRING
from replicax._src._checksums import checksum_of, masked
from replicax._src._local_path import made_absolute
from replicax._src.checkpoints._problems import CheckpointNotFoundError, DamagedCheckpointError
from replicax._src.checkpoints.foreign._messages import parsed
from replicax._src.checkpoints.foreign._slices import Part, overlap, part_of
from replicax._src.checkpoints.foreign._table import TableError, read_table, read_varint

INDEX = ".index"
NO_ARRAY = "no array"  # for a dtype
_PIECE = 8 << 20  # bytes that are read and checked at once
_SMALL = 64 << 10  # bytes up to which some more are read with a tensor
_AHEAD = 256 << 10
_MOST_INDEX = 1 << 30
_BIG_ENDIAN = 1

# The numbers that TensorFlow gives to dtypes; the bytes of others (resources, variants) are not
# those of arrays.
_DTYPES: dict[int, np.dtype] = {
    number: np.dtype(dtype)
    for number, dtype in {
        1: np.float32,
        2: np.float64,
        3: np.int32,
        4: np.uint8,
        5: np.int16,
        6: np.int8,
        7: STRING,
        8: np.complex64,
        9: np.int64,
        10: np.bool_,
        11: np.int8,  # quantized
        12: np.uint8,
        13: np.int32,
        14: ml_dtypes.bfloat16,
        15: np.int16,
        16: np.uint16,
        17: np.uint16,
        18: np.complex128,
        19: np.float16,
        22: np.uint32,
        23: np.uint64,
        24: ml_dtypes.float8_e5m2,
        25: ml_dtypes.float8_e4m3fn,
        29: ml_dtypes.int4,
        30: ml_dtypes.uint4,
    }.items()
}


@final
class Tensor(NamedTuple):
    """What the index says of a tensor, or of a slice of one."""

    name: str
    dtype: np.dtype | None  # None: not one of arrays
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    slices: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the whole; of texts those in the file."""
        if self.dtype is None or self.dtype is STRING:
            return self.size
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def dtype_name(self) -> str:
        """The dtype as text."""
        if self.dtype is None:
            return NO_ARRAY
        return "string" if self.dtype is STRING else str(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype_name}[{','.join(map(str, self.shape))}]"


@final
class Bundle:
    """The tensors of a checkpoint, by name."""

    def __init__(self, prefix: str):
        """Reads the index.

        Args:
          prefix: the path of the checkpoint, without `.index`.
        """
        self.prefix = made_absolute(prefix)
        self.index = self.prefix + INDEX
        self.tensors: dict[str, Tensor] = {}
        self._parts: dict[bytes, Tensor] = {}
        self._order = "<"
        self._shards = 0
        self._sizes: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._opening = threading.Lock()
        self._ahead = (0, 0, b"")  # some bytes of a file, from there: most read all, in order
        content = _content_of(self.index)
        self.mark = f"{checksum_of(content):08x}-{len(content)}"
        try:
            self._take(read_table(content))
        except (ValueError, OverflowError) as error:  # `TableError` among them
            raise self._damaged(f"the index {self.index}: {error}") from None
        for tensor in self.tensors.values():
            self._require_sound(tensor)

    def _take(self, table: Iterator[tuple[bytes, bytes]]) -> None:
        key, value = next(table, (None, b""))
        if key != b"":
            raise TableError("it has no header")
        header = parsed("BundleHeader", value)
        self._shards = header.num_shards
        self._order = ">" if header.endianness == _BIG_ENDIAN else "<"
        if self._shards < 1:
            raise TableError(f"it says that there are {self._shards} files of data")
        shapes: dict[bytes, tuple[int, ...]] = {}  # most are there many times
        for key, value in table:
            tensor = _tensor(key, parsed("BundleEntry", value), shapes)
            if key.startswith(b"\x00"):
                self._parts[key] = tensor
            else:
                self.tensors[tensor.name] = tensor

    # ------------------------------------------------------------------ checks

    def _damaged(self, reason: str) -> DamagedCheckpointError:
        return DamagedCheckpointError(
            f"The TensorFlow checkpoint {self.prefix} is damaged: {reason}. Copy it again from "
            "where it was made, or take an earlier one.",
            path=self.prefix,
        )

    def _wrong(self, tensor: Tensor, reason: str) -> DamagedCheckpointError:
        where = self.index if tensor.slices else self.file_of(tensor.shard)
        return self._damaged(f"{tensor.name!r}, {tensor}, in {where}: {reason}")

    def file_of(self, shard: int) -> str:
        """Returns the path of a file of data."""
        return f"{self.prefix}.data-{shard:05d}-of-{self._shards:05d}"

    def _require_sound(self, tensor: Tensor) -> None:
        """Compares what a tensor claims with the files that are there."""
        if tensor.slices:
            self._require_covered(tensor)
            return
        if not 0 <= tensor.shard < self._shards:
            raise self._damaged(
                f"{tensor.name!r} is in file {tensor.shard} of {self._shards}, says {self.index}"
            )
        if tensor.offset < 0 or tensor.size < 0:
            raise self._wrong(tensor, "it has no place there")
        if tensor.dtype is STRING:
            if math.prod(tensor.shape) > tensor.size:  # each has a length, of a byte at least
                raise self._wrong(tensor, f"so many texts are not in {tensor.size} bytes")
        elif tensor.dtype is not None and tensor.nbytes != tensor.size:
            raise self._wrong(tensor, f"it has {tensor.size} bytes and should have {tensor.nbytes}")
        there = self._size_of(tensor)
        if tensor.offset + tensor.size > there:
            raise self._wrong(
                tensor,
                f"the file ends at {there} bytes, and the tensor at {tensor.offset + tensor.size}",
            )

    def _require_covered(self, tensor: Tensor) -> None:
        """Requires that the slices of a tensor are there, and as many items as it has."""
        items = 0
        places: list[tuple[slice, ...]] = []
        for part, stored in self._slices(tensor):
            where = part.within(tensor.shape)
            if where is None or stored.shape != tuple(each.stop - each.start for each in where):
                raise self._wrong(tensor, f"the slice {part} is not a part of it")
            if stored.dtype != tensor.dtype:
                raise self._wrong(tensor, f"the slice {part} is {stored}")
            self._require_sound(stored)
            places.append(where)
            items += math.prod(stored.shape)
        if items != math.prod(tensor.shape) or overlap(places):
            raise self._wrong(tensor, "its slices do not cover it")

    def _slices(self, tensor: Tensor) -> Iterator[tuple[Part, Tensor]]:
        for part in tensor.slices:
            stored = self._parts.get(part.key(tensor.name))
            if stored is None:
                raise self._wrong(tensor, f"the slice {part} is missing")
            yield part, stored._replace(name=f"{tensor.name}{part}")

    def _size_of(self, tensor: Tensor) -> int:
        size = self._sizes.get(tensor.shard)
        if size is None:
            file = self.file_of(tensor.shard)
            try:
                size = _regular_size(file)
            except FileNotFoundError:
                raise self._damaged(f"{tensor.name!r} is in {file}, which is missing") from None
            self._sizes[tensor.shard] = size
        return size

    # ------------------------------------------------------------------ reading

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor of which every byte is as it was written; texts are `bytes`."""
        tensor = self._array(name)
        if tensor.slices:
            whole = self._empty(tensor)
            for part, stored in self._slices(tensor):
                where = part.within(tensor.shape)
                assert where is not None
                whole[where] = self._read_one(stored)
            return whole
        return self._read_one(tensor)

    def verify(self, name: str) -> None:
        """Compares the checksums of a tensor; holds no more than a piece of it."""
        tensor = self._array(name)
        for each in [stored for _, stored in self._slices(tensor)] if tensor.slices else [tensor]:
            if each.dtype is STRING:
                self._read_one(each)
            else:
                buffer = np.empty(min(_PIECE, each.size), np.uint8)
                self._require_checksum(each, self._fill(each, buffer, again=True))

    def _array(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        if tensor.dtype is None:
            raise DamagedCheckpointError(
                f"{name!r} of the TensorFlow checkpoint {self.prefix} is not an array, but an "
                "object of TensorFlow (a variant or a resource), which only TensorFlow reads.",
                path=self.prefix,
            )
        return tensor

    def _empty(self, tensor: Tensor, raw: bool = False) -> np.ndarray:
        shape, dtype = (tensor.size, np.uint8) if raw else (tensor.shape, tensor.dtype)
        try:
            return np.empty(shape, dtype)
        except (ValueError, MemoryError) as error:
            raise self._wrong(tensor, str(error)) from None

    def _read_one(self, tensor: Tensor) -> np.ndarray:
        if tensor.dtype is STRING:
            return self._read_texts(tensor)
        assert tensor.dtype is not None
        raw = self._small(tensor) if tensor.size <= _SMALL else self._large(tensor)
        try:
            found = np.ndarray(tensor.shape, tensor.dtype, raw)
        except ValueError as error:  # such as of no items, in dimensions that nobody has
            raise self._wrong(tensor, str(error)) from None
        if self._order == ">":
            found.byteswap(inplace=True)
        return found

    def _small(self, tensor: Tensor) -> bytearray | np.ndarray:
        """Returns the bytes of a tensor; some more are read with it."""
        ahead, start, content = self._ahead
        place = tensor.offset - start
        if ahead != tensor.shard or not 0 <= place <= len(content) - tensor.size:
            place, content = 0, os.pread(self._file(tensor.shard), _AHEAD, tensor.offset)
            self._ahead = tensor.shard, tensor.offset, content
        found = bytearray(content[place : place + tensor.size])
        if len(found) < tensor.size:  # some file systems give less at once
            return self._large(tensor)
        self._require_checksum(tensor, checksum_of(found))
        return found

    def _large(self, tensor: Tensor) -> np.ndarray:
        """Returns the bytes of a tensor, read to where they stay."""
        found = self._empty(tensor, raw=True)
        self._require_checksum(tensor, self._fill(tensor, found))
        return found

    def _fill(self, tensor: Tensor, into: np.ndarray, again: bool = False) -> int:
        """Reads a tensor into a buffer of its size, or `again` and again into that of a piece.

        Returns the checksum of its bytes.
        """
        done = checksum = 0
        while done < tensor.size:
            start = 0 if again else done
            piece = into[start : start + min(_PIECE, tensor.size - done)]
            count = self._read_into(tensor.shard, piece, tensor.offset + done)
            if not count:
                raise self._wrong(tensor, "the file ended while it was read")
            checksum = checksum_of(piece[:count], checksum)
            done += count
        return checksum

    def _read_into(self, shard: int, piece: Any, offset: int) -> int:
        """Reads from a place of a file, which several threads may do at once; returns how much."""
        if hasattr(os, "preadv"):
            return os.preadv(self._file(shard), [piece], offset)
        content = os.pread(self._file(shard), len(piece), offset)
        piece[: len(content)] = np.frombuffer(content, np.uint8)
        return len(content)

    def _file(self, shard: int) -> int:
        """Returns the descriptor of a file of data, which stays open as long as this."""
        with self._opening:
            found = self._files.get(shard)
            if found is None:
                found = self._files[shard] = os.open(self.file_of(shard), _HOW)
                weakref.finalize(self, os.close, found)
        return found

    def _require_checksum(self, tensor: Tensor, checksum: int) -> None:
        if masked(checksum) != tensor.checksum:
            raise self._wrong(tensor, "its checksum does not fit its content")

    def _read_texts(self, tensor: Tensor) -> np.ndarray:
        """Reads the lengths of all texts, a checksum of these, and the texts."""
        buffer = self._empty(tensor, raw=True)
        self._fill(tensor, buffer)
        content = buffer.tobytes()
        lengths, position = [], 0
        try:
            for _ in range(math.prod(tensor.shape)):
                length, position = read_varint(content, position)
                lengths.append(length)
        except TableError as error:
            raise self._wrong(tensor, str(error)) from None
        plain = b"".join(
            struct.pack(self._order + ("I" if length < 1 << 32 else "Q"), length)
            for length in lengths
        )
        checksum = checksum_of(plain)
        stored = content[position : position + 4]
        if struct.pack(self._order + "I", masked(checksum)) != stored:
            raise self._wrong(tensor, "the checksum of the lengths of its texts does not fit")
        position += 4
        if position + sum(lengths) != len(content):
            raise self._wrong(tensor, "its texts are not as long as it says")
        checksum = checksum_of(content[position:], checksum_of(stored, checksum))
        self._require_checksum(tensor, checksum)
        texts = self._empty(tensor)
        flat = texts.reshape(-1)
        for index, length in enumerate(lengths):
            flat[index] = content[position : position + length]
            position += length
        return texts


def _tensor(key: bytes, entry: Any, shapes: dict[bytes, tuple[int, ...]]) -> Tensor:
    shape = shapes.get(entry.shape)
    if shape is None:
        shape = shapes[entry.shape] = _shape(parsed("Shape", entry.shape))
    return Tensor(
        key.decode("utf-8", "backslashreplace"),
        _DTYPES.get(entry.dtype),
        shape,
        entry.shard_id,
        entry.offset,
        entry.size,
        entry.crc32c,
        tuple(map(part_of, entry.slices)) if entry.slices else (),
    )


def _shape(message: Any) -> tuple[int, ...]:
    if message.unknown_rank:
        raise TableError("the shape of a tensor is not known")
    shape = tuple(dim.size for dim in message.dim)
    if any(size < 0 for size in shape) or len(shape) > 64:
        raise TableError(f"a tensor has the shape {list(shape)}")
    return shape


_HOW = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # never waits for somebody to write


def _regular_size(path: str) -> int:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise DamagedCheckpointError(f"{path} is not a regular file.", path=path)
    return status.st_size


def _content_of(path: str) -> bytes:
    try:
        size = _regular_size(path)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointNotFoundError(f"There is no checkpoint at {path}.") from None
    if size > _MOST_INDEX:
        raise DamagedCheckpointError(f"{path} has {size} bytes, too many for an index.", path=path)
    with open(os.open(path, _HOW), "rb", buffering=0) as file:
        return file.readall()
