"""Loads the compiled helper, if it was built; everything works without it, only slower.

`_build.py` compiles `_native.c` when replicax is installed, if there is a C compiler. Here
NumPy arrays become the pointers that its functions take, and the results become arrays.

It reads examples that are regular and as the features say. If anything is out of the ordinary,
nothing is said about it: protobuf reads the batch again (`_by_protobuf.py`), and finds either
another form that is allowed or the error to raise. So there is one meaning of a record, the one
that protobuf gives it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from replicax._src._arrays import STRING
from replicax._src.records._features import KIND_OF, Column, FeatureConfig, FixedLenFeature, Kind
from replicax._src.records._records import Records, slices_of

LIBRARY = Path(__file__).with_name("librecords.so")  # as in `_build.py`, a script of its own
_VERSION = 5  # of the functions in the library; one that was built from older source is not used
_ROOM = 8192  # records that are found in one call


@functools.cache
def _load() -> Library | None:
    if sys.byteorder != "little" or not LIBRARY.exists():
        return None
    try:
        return Library(LIBRARY)
    except (OSError, AttributeError):  # of another platform, or from another version of the source
        return None


def library(wanted: bool | None) -> Library | None:
    """Returns the compiled helper, or None: if it is not there, or not `wanted`.

    Raises:
      RuntimeError: If it is `wanted` and not there.
    """
    if wanted is False:
        return None
    loaded = _load()
    if loaded is None and wanted:
        raise RuntimeError(
            "The compiled helper for records is not there: there was no C compiler when replicax "
            "was installed. Install one and run `python -m replicax._src.records._build`, or leave "
            "`native` out."
        )
    return loaded


class _Function(Protocol):
    """A function of a shared library."""

    argtypes: Any
    restype: Any

    def __call__(self, *args: Any) -> Any: ...


class Library:
    """The functions of the compiled helper, on arrays.

    Args:
      path: The shared library.

    Raises:
      OSError: If it cannot be loaded.
      AttributeError: If it was built from another version of the source.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        functions = ctypes.CDLL(str(path))
        self._find_frames = _typed(functions.replicax_find_frames, "pni ppnpp", "n")
        self._find_lists = _typed(functions.replicax_find_lists, "pnppn ppn ppp", "i")
        self._read_rows = _typed(functions.replicax_read_rows, "pnppn ppn ppp", "i")
        self._read_lists = _typed(functions.replicax_read_lists, "pnppn ipnp", "n")
        self._find_sequences = _typed(functions.replicax_find_sequences, "pnppn ppn pppp", "i")
        self._read_steps = _typed(functions.replicax_read_steps, "pnppn ipnpn", "n")
        self.crc = _typed(functions.replicax_crc, "pn", "u")
        self.crc_by_table = _typed(functions.replicax_crc_by_table, "pn", "u")
        if _typed(functions.replicax_version, "", "i")() != _VERSION:
            raise AttributeError(f"{path} was built from another version of _native.c")
        _typed(functions.replicax_start, "", "")()

    def find_frames(
        self, piece: np.ndarray, verify: bool
    ) -> tuple[np.ndarray, np.ndarray, int, int]:
        """Returns the fields of `_frames.Frames`, with a number for the problem."""
        found, room = np.empty((2, _ROOM), np.int64), _ROOM
        parts: list[np.ndarray] = []
        end, problem = ctypes.c_int64(0), ctypes.c_int32()
        while room == _ROOM:  # until there is room left
            room = self._find_frames(
                _at(piece),
                piece.size,
                verify,
                _at(found[0]),
                _at(found[1]),
                _ROOM,
                ctypes.byref(end),
                ctypes.byref(problem),
            )
            parts.append(found[:, :room].copy())
        starts, lengths = np.concatenate(parts, axis=1)
        return starts, lengths, end.value, problem.value

    def read_rows(
        self, records: Records, features: Mapping[str, FeatureConfig]
    ) -> dict[str, np.ndarray] | None:
        """Reads features of fixed length that are all there, in one call of the library.

        Every step of `read_columns` costs a few microseconds for a batch, whatever its size.

        Returns:
          What `parse_example` returns; None if it is not as simple as that.
        """
        fixed = [each for each in features.values() if isinstance(each, FixedLenFeature)]
        if len(fixed) < len(features):
            return None
        count = len(records)
        columns: list[np.ndarray] = [
            np.empty((2, count * feature.size), np.int64)
            if feature.dtype == STRING
            else np.empty((count, *feature.shape), feature.dtype)
            for feature in fixed
        ]
        plan = _plan(tuple((name, f.dtype, f.size) for name, f in zip(features, fixed)))
        addresses = (ctypes.c_void_p * len(columns))(*map(_at, columns))
        if not self._read_rows(*_places(records), *plan, addresses):
            return None
        for number, feature in enumerate(fixed):
            if feature.dtype == STRING:
                strings = _strings(records, *columns[number])
                columns[number] = strings.reshape(count, *feature.shape)
        return dict(zip(features, columns))

    def read_columns(
        self, records: Records, features: Mapping[str, FeatureConfig]
    ) -> list[Column] | None:
        """Reads the values of each feature; returns None if protobuf must read them."""
        # Where the lists of values are. Rows are features, columns are records.
        shape = len(features), len(records)
        kinds = np.zeros(shape, np.int8)
        starts, lengths = np.empty(shape, np.int64), np.empty(shape, np.int64)
        names = _names([name.encode() for name in features])
        if not self._find_lists(*_places(records), *names, *map(_at, (kinds, starts, lengths))):
            return None
        columns: list[Column] = []
        for number, feature in enumerate(features.values()):
            kind, present = KIND_OF[feature.dtype], None
            where, sizes = starts[number], lengths[number]
            if not (kinds[number] == kind).all():
                present = kinds[number] == kind
                if (kinds[number][~present] != Kind.MISSING).any():
                    return None
                where, sizes = where[present], sizes[present]
            found = self.read_lists(records.bytes_of_buffer, where, sizes, kind)
            if found is None:
                return None
            values, counts = found
            if kind is Kind.BYTES:
                values = _strings(records, *values)
            columns.append(Column(values, counts, present))
        return columns

    def find_sequences(self, records: Records, names: Sequence[str]) -> Sequences | None:
        """Finds the sequences of sequence examples; returns None if protobuf must read them."""
        shape = len(names), len(records)
        contexts = np.empty(len(records), np.int64)
        starts, lengths, steps = (np.empty(shape, np.int64) for _ in range(3))
        keys = _names([name.encode() for name in names])
        arrays = map(_at, (contexts, starts, lengths, steps))
        if not self._find_sequences(*_places(records), *keys, *arrays):
            return None
        return Sequences(Records(records.buffer, records.starts, contexts), starts, lengths, steps)

    def read_steps(
        self, records: Records, found: Sequences, number: int, dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Reads the values of a sequence of all records.

        Returns:
          All values, and how many each step has; None if protobuf must read them.
        """
        kind, there = KIND_OF[dtype], found.steps[number] >= 0
        starts, lengths = found.starts[number][there], found.lengths[number][there]
        room = int(lengths.sum()) // _LEAST_BYTES[kind]
        values = np.empty((2, room) if kind is Kind.BYTES else room, _DTYPES[kind])
        counts = np.empty(int(found.steps[number][there].sum()), np.int64)
        buffer = records.bytes_of_buffer
        places = _at(buffer), buffer.size, _at(starts), _at(lengths), starts.size
        total = self._read_steps(*places, kind, _at(values), room, _at(counts), counts.size)
        if total < 0:
            return None
        if kind is Kind.BYTES:
            return _strings(records, *values[:, :total]), counts
        return _trimmed(values, total), counts

    def read_lists(
        self, buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray, kind: Kind
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Reads lists of values of one kind.

        Returns:
          All values, and how many each list has; None if a list is odd. Strings are not copied:
          the values are a row of where they start, and one of how long they are.
        """
        room = int(lengths.sum()) // _LEAST_BYTES[kind]
        shape = (2, room) if kind is Kind.BYTES else (room,)
        values = np.empty(shape, _DTYPES[kind])
        counts = np.empty(starts.size, np.int64)
        places = _at(buffer), buffer.size, _at(starts), _at(lengths), starts.size
        total = self._read_lists(*places, kind, _at(values), room, _at(counts))
        if total < 0:
            return None
        return _trimmed(values, total), counts


# Bytes that a value of a list takes at least: what a list can hold follows from its length.
_LEAST_BYTES = {Kind.BYTES: 2, Kind.FLOAT: 4, Kind.INT: 1}
# What the library writes of them: of strings, where they are.
_DTYPES = {Kind.BYTES: np.int64, Kind.FLOAT: np.float32, Kind.INT: np.int64}


class Sequences(NamedTuple):
    """Where the sequences of sequence examples are: rows are sequences, columns are records.

    Attributes:
      context: What comes before them in each record, which has the form of an `Example`.
      starts, lengths: The places in the buffer of the records.
      steps: How many steps there are; -1 where a sequence is missing.
    """

    context: Records
    starts: np.ndarray
    lengths: np.ndarray
    steps: np.ndarray


def _trimmed(values: np.ndarray, total: int) -> np.ndarray:
    """Returns the first values of an array that was made for more."""
    # Integers of many bytes have taken much less room than there was: give it back.
    found = values[..., :total]
    return found.copy() if 2 * total < values.shape[-1] else found


def _names(keys: Sequence[bytes]) -> tuple[Any, ...]:
    """Returns the names of features as C arrays: the names, how long they are, and how many."""
    count = len(keys)
    return (ctypes.c_char_p * count)(*keys), (ctypes.c_int64 * count)(*map(len, keys)), count


@functools.lru_cache(maxsize=64)
def _plan(wanted: tuple[tuple[str, np.dtype, int], ...]) -> tuple[Any, ...]:
    """Returns what to look for in every record, as C arrays; made once for many batches."""
    names, dtypes, sizes = zip(*wanted)
    kinds = (ctypes.c_int8 * len(names))(*[KIND_OF[dtype] for dtype in dtypes])
    counts = (ctypes.c_int64 * len(names))(*sizes)
    return *_names([name.encode() for name in names]), kinds, counts


def _places(records: Records) -> tuple[int, int, int, int, int]:
    """Returns the buffer of records, and where they are in it, as the library takes them."""
    buffer, starts = records.bytes_of_buffer, records.starts
    return _at(buffer), buffer.size, _at(starts), _at(records.lengths), starts.size


def _strings(records: Records, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    strings = np.empty(len(starts), STRING)
    strings[:] = slices_of(records.buffer, starts, lengths)
    return strings


_TYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "i": ctypes.c_int32, "u": ctypes.c_uint32}


def _typed(function: _Function, arguments: str, result: str) -> _Function:
    """Says which types a function takes and returns, by the letters of `_TYPES`; returns it."""
    function.argtypes = [_TYPES[letter] for letter in arguments.replace(" ", "")]
    function.restype = _TYPES.get(result)
    return function


def _at(array: np.ndarray) -> int:
    """Returns the address of a contiguous array."""
    return array.__array_interface__["data"][0]
