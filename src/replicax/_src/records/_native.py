"""Loads the compiled helper, if it was built; everything works without it, only slower.

`_build.py` compiles `_native.c` when replicax is installed, if there is a C compiler. Here
NumPy arrays become the pointers that its functions take, and the results become arrays.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from replicax._src.records._features import Kind
from replicax._src.records._records import Records

LIBRARY = Path(__file__).with_name("librecords.so")  # as in `_build.py`, a script of its own
_VERSION = 4  # of the functions in the library; one that was built from older source is not used
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

    def find_lists(self, records: Records, keys: Sequence[bytes]) -> Lists | None:
        """Finds the lists of the features named by `keys`; returns None if a record is odd."""
        shape = len(keys), len(records)
        found = Lists(
            np.zeros(shape, np.int8), np.empty(shape, np.int64), np.empty(shape, np.int64)
        )
        key_sizes = np.array([len(key) for key in keys], np.int64)
        buffer = records.bytes_of_buffer
        regular = self._find_lists(
            _at(buffer),
            buffer.size,
            _at(records.starts),
            _at(records.lengths),
            len(records),
            (ctypes.c_char_p * len(keys))(*keys),
            _at(key_sizes),
            len(keys),
            *map(_at, found),
        )
        return found if regular else None

    def read_rows(self, records: Records, plan: Plan, columns: Sequence[np.ndarray]) -> bool:
        """Fills the columns of features of fixed length, if all records are as usual."""
        buffer = records.bytes_of_buffer
        addresses = [_at(column) for column in columns]
        return bool(
            self._read_rows(
                _at(buffer),
                buffer.size,
                _at(records.starts),
                _at(records.lengths),
                records.starts.size,
                plan.keys,
                plan.key_sizes,
                len(columns),
                plan.kinds,
                plan.value_counts,
                (ctypes.c_void_p * len(columns))(*addresses),
            )
        )

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
        values = np.empty(shape, np.float32 if kind is Kind.FLOAT else np.int64)
        counts = np.empty(starts.size, np.int64)
        places = _at(buffer), buffer.size, _at(starts), _at(lengths), starts.size
        total = self._read_lists(*places, kind, _at(values), room, _at(counts))
        if total < 0:
            return None
        # Integers of many bytes have taken much less room than there was: give it back.
        found = values[..., :total]
        return found.copy() if 2 * total < room else found, counts


# Bytes that a value of a list takes at least: what a list can hold follows from its length.
_LEAST_BYTES = {Kind.BYTES: 2, Kind.FLOAT: 4, Kind.INT: 1}


class Lists(NamedTuple):
    """Where lists of values are in the buffer of records. Rows are features, columns are records.

    Attributes:
      kinds: Members of `Kind`; int8.
      starts: Where a list starts: its first number, or the message of byte strings; int64. Any
        number where the feature is missing.
      lengths: How many bytes it has; int64.
    """

    kinds: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


@final
class Plan:
    """What to look for in every record, as C arrays; made once for many batches."""

    def __init__(self, keys: Sequence[bytes], kinds: Sequence[int], value_counts: Sequence[int]):
        count = len(keys)
        self.keys = (ctypes.c_char_p * count)(*keys)
        self.key_sizes = (ctypes.c_int64 * count)(*map(len, keys))
        self.kinds = (ctypes.c_int8 * count)(*kinds)
        self.value_counts = (ctypes.c_int64 * count)(*value_counts)


_TYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "i": ctypes.c_int32, "u": ctypes.c_uint32}


def _typed(function: _Function, arguments: str, result: str) -> _Function:
    """Says which types a function takes and returns, by the letters of `_TYPES`; returns it."""
    function.argtypes = [_TYPES[letter] for letter in arguments.replace(" ", "")]
    function.restype = _TYPES.get(result)
    return function


def _at(array: np.ndarray) -> int:
    """Returns the address of a contiguous array."""
    return array.__array_interface__["data"][0]
