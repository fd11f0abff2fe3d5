"""Loads the compiled helper, if it was built; everything works without it, only slower.

`_build.py` compiles `_native.c` when replicax is installed, if there is a C compiler. Here
NumPy arrays become the pointers that its functions take, and the results get back the form that the
Python functions give.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from replicax._src.records._records import Records

LIBRARY = Path(__file__).with_name("librecords.so")  # as in `_build.py`, a script of its own
_VERSION = 2  # of the functions in the library; one that was built from older source is not used
_ROOM = 8192  # records that are found in one call
_PROBLEMS = (None, "length", "content")


@functools.cache
def _load() -> Library | None:
    if sys.byteorder != "little" or not LIBRARY.exists():
        return None
    try:
        return Library(LIBRARY)
    except (OSError, AttributeError):  # of another platform, or from another version of the source
        return None


def library(wanted: bool | None) -> Library | None:
    """The compiled helper, or None: if it is not there, or not `wanted`.

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
        self._find_frames = _typed(functions.replicax_find_frames, "pnin ppnpp", "n")
        self._find_lists = _typed(functions.replicax_find_lists, "pnppn ppn pppp", "")
        self._read_rows = _typed(functions.replicax_read_rows, "pnppn ppn ppp", "i")
        self._join = _typed(functions.replicax_join, "pnppn p", "i")
        self._read_varints = _typed(functions.replicax_read_varints, "pnppn ppp", "n")
        self._find_bytes = _typed(functions.replicax_find_bytes, "pnppn ppnpp", "n")
        self.crc = _typed(functions.replicax_crc, "pn", "u")
        self.crc_by_table = _typed(functions.replicax_crc_by_table, "pn", "u")
        if _typed(functions.replicax_version, "", "i")() != _VERSION:
            raise AttributeError(f"{path} was built from another version of _native.c")
        _typed(functions.replicax_start, "", "")()

    def find_frames(
        self, piece: bytes, verify: bool, unverified: int
    ) -> tuple[np.ndarray, np.ndarray, int, str | None]:
        """The fields of `_frames.Frames`."""
        return self.find_frames_in(np.frombuffer(piece, np.uint8), verify, unverified)

    def find_frames_in(
        self, piece: np.ndarray, verify: bool, unverified: int
    ) -> tuple[np.ndarray, np.ndarray, int, str | None]:
        """The same for an array of uint8."""
        found, room = np.empty((2, _ROOM), np.int64), _ROOM
        parts: list[np.ndarray] = []
        end, problem = ctypes.c_int64(0), ctypes.c_int32()
        while room == _ROOM:  # until there is room left
            room = self._find_frames(
                _at(piece),
                piece.size,
                verify,
                max(0, unverified - _ROOM * len(parts)),
                _at(found[0]),
                _at(found[1]),
                _ROOM,
                ctypes.byref(end),
                ctypes.byref(problem),
            )
            parts.append(found[:, :room].copy())
        starts, lengths = np.concatenate(parts, axis=1)
        return starts, lengths, end.value, _PROBLEMS[problem.value]

    def find_lists(
        self,
        buffer: np.ndarray,
        record_starts: np.ndarray,
        record_lengths: np.ndarray,
        keys: Sequence[bytes],
        odd: np.ndarray,
        kinds: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
    ) -> None:
        """Fills the arrays of `_layout.Lists`, which come full of zeros."""
        key_sizes = np.array([len(key) for key in keys], np.int64)
        self._find_lists(
            _at(buffer),
            buffer.size,
            _at(record_starts),
            _at(record_lengths),
            record_starts.size,
            (ctypes.c_char_p * len(keys))(*keys),
            _at(key_sizes),
            len(keys),
            _at(odd),
            _at(kinds),
            _at(starts),
            _at(lengths),
        )

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

    def join(self, buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Pieces of the buffer, one after the other; uint8."""
        joined = np.empty(int(lengths.sum()), np.uint8)
        places = _at(starts), _at(lengths), starts.size
        if not self._join(_at(buffer), buffer.size, *places, _at(joined)):
            raise IndexError("a piece is not in the buffer")
        return joined

    def read_varints(
        self, buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The fields of `_values.Values` for lists of integers."""
        room = int(lengths.sum())
        flat = np.empty(room, np.int64)
        counts, odd = np.empty(starts.size, np.int64), np.empty(starts.size, np.bool_)
        places = _at(starts), _at(lengths), starts.size
        total = self._read_varints(
            _at(buffer), buffer.size, *places, _at(flat), _at(counts), _at(odd)
        )
        if total < 0:
            return flat[:0], counts, odd
        # Integers of many bytes have taken much less room than there was: give it back.
        return flat[:total].copy() if 2 * total < room else flat[:total], counts, None

    def find_bytes(
        self, buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Where the strings in lists of bytes are, how long, how many, and which lists are odd."""
        counts, odd = np.empty(starts.size, np.int64), np.empty(starts.size, np.bool_)
        places = _at(buffer), buffer.size, _at(starts), _at(lengths), starts.size
        total, room = self._find_bytes(*places, None, None, 0, _at(counts), _at(odd)), 0
        first = sizes = np.empty(0, np.int64)
        while total > room:  # once, if nobody changes the buffer meanwhile
            room = total
            first, sizes = np.empty(room, np.int64), np.empty(room, np.int64)
            arrays = _at(first), _at(sizes), room, _at(counts), _at(odd)
            total = self._find_bytes(*places, *arrays)
        found = max(0, total)
        return first[:found], sizes[:found], counts, odd if total < 0 else None


class Plan:
    """What to look for in every record, as C arrays; made once for many batches."""

    def __init__(self, keys: Sequence[bytes], kinds: Sequence[int], value_counts: Sequence[int]):
        count = len(keys)
        self.keys = (ctypes.c_char_p * count)(*keys)
        self.key_sizes = (ctypes.c_int64 * count)(*map(len, keys))
        self.kinds = (ctypes.c_int8 * count)(*kinds)
        self.value_counts = (ctypes.c_int64 * count)(*value_counts)


_TYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "i": ctypes.c_int32, "u": ctypes.c_uint32}


def _typed(function: Any, arguments: str, result: str) -> Any:
    function.argtypes = [_TYPES[letter] for letter in arguments.replace(" ", "")]
    function.restype = _TYPES.get(result)
    return function


def _at(array: np.ndarray) -> int:
    """The address of a contiguous array."""
    return array.__array_interface__["data"][0]
