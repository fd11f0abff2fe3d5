"""`Records`: many byte strings in one buffer, which is how files hold them.

A block of a file is read once and cut by numbers, not by copies: a thousand small `bytes` objects
would cost more than reading them. Scanners make `Records`, parsers and shuffles take them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
from numpy.typing import ArrayLike


@final
class Records:
    """Byte strings, each given by where it starts in a shared buffer and by its length.

    The buffer is never changed and never copied by `select`. The records need not be in its order,
    may overlap, and need not cover it.

    >>> records = Records.from_list([b"one", b"", b"three"])
    >>> len(records), records.select([2, 0]).to_list()
    (3, [b'three', b'one'])

    Attributes:
      buffer: `bytes`, or a one-dimensional read-only array of uint8.
      starts: Where each record starts in the buffer; int64.
      lengths: How many bytes each has; int64.
    """

    __slots__ = ("buffer", "lengths", "starts")

    def __init__(self, buffer: bytes | np.ndarray, starts: ArrayLike, lengths: ArrayLike) -> None:
        if not isinstance(buffer, bytes):
            buffer = _read_only_bytes(buffer)
        self.buffer = buffer
        self.starts = np.ascontiguousarray(starts, np.int64)
        self.lengths = np.ascontiguousarray(lengths, np.int64)
        if self.starts.ndim != 1 or self.starts.shape != self.lengths.shape:
            raise ValueError(
                "`starts` and `lengths` are lists of one length, a number for each record. "
                f"Received shapes {self.starts.shape} and {self.lengths.shape}."
            )
        if self.starts.size and not self._all_within():
            raise ValueError(
                f"Not all records lie within the buffer, which has {len(buffer)} bytes."
            )

    def _all_within(self) -> bool:
        size, starts, lengths = len(self.buffer), self.starts, self.lengths
        if starts.min() < 0 or lengths.min() < 0 or lengths.max() > size or starts.max() > size:
            return False
        return (starts + lengths).max() <= size  # a sum that cannot overflow any more

    def __len__(self) -> int:
        return self.starts.size

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.to_list())

    def __repr__(self) -> str:
        return f"Records({len(self)} records in a buffer of {len(self.buffer)} bytes)"

    @property
    def bytes_of_buffer(self) -> np.ndarray:
        """The buffer as an array of uint8, whichever it is."""
        if isinstance(self.buffer, bytes):
            return np.frombuffer(self.buffer, np.uint8)
        return self.buffer

    def select(self, which: slice | ArrayLike) -> Records:
        """Returns the records at the given indices or slice, which share the buffer."""
        if not isinstance(which, slice):
            which = np.asarray(which)
            if which.size == 0:
                which = which.astype(np.int64)
        new = Records.__new__(Records)  # the places were checked when these records were made
        new.buffer = self.buffer
        new.starts = np.ascontiguousarray(self.starts[which])
        new.lengths = np.ascontiguousarray(self.lengths[which])
        return new

    def to_list(self) -> list[bytes]:
        """Returns the records as `bytes` objects: a copy of each."""
        return slices_of(self.buffer, self.starts, self.lengths)

    @classmethod
    def from_list(cls, records: Sequence[bytes]) -> Records:
        """Returns records with the given contents, in a new buffer.

        Raises:
          TypeError: If one of them is not `bytes`.
        """
        try:
            buffer = b"".join(records)
        except TypeError:
            for number, record in enumerate(records):
                if not isinstance(record, bytes):
                    raise TypeError(
                        f"Records are `bytes`. Received {type(record).__name__} at index {number}: "
                        f"{record!r:.80}. Turn text into bytes with `.encode()`."
                    ) from None
            raise
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        ends = np.cumsum(lengths)
        return cls(buffer, ends - lengths, lengths)

    @classmethod
    def concatenate(cls, parts: Sequence[Records]) -> Records:
        """Returns the records of all parts, one part after the other.

        The buffers are copied into one, each once, unless there is only one anyway. Only the part
        of a buffer that its records touch is taken, so that ten records of a block do not hold on
        to the whole block.
        """
        filled = [part for part in parts if len(part)]
        if not filled:
            return cls(b"", [], [])
        if all(part.buffer is filled[0].buffer for part in filled):
            starts = [part.starts for part in filled]
            lengths = [part.lengths for part in filled]
            return cls(filled[0].buffer, np.concatenate(starts), np.concatenate(lengths))
        pieces, starts, position = [], [], 0
        for part in filled:
            first = int(part.starts.min())
            last = int((part.starts + part.lengths).max())
            pieces.append(view_of(part.buffer)[first:last])
            starts.append(part.starts + (position - first))
            position += last - first
        lengths = np.concatenate([part.lengths for part in filled])
        return cls(b"".join(pieces), np.concatenate(starts), lengths)


def slices_of(buffer: bytes | np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Returns copies of the given ranges of `buffer`, as `bytes`."""
    ends = (starts + lengths).tolist()
    if isinstance(buffer, bytes):
        return [buffer[start:end] for start, end in zip(starts.tolist(), ends)]
    view = view_of(buffer)
    return [bytes(view[start:end]) for start, end in zip(starts.tolist(), ends)]


def view_of(buffer: bytes | np.ndarray) -> memoryview:
    """Returns the buffer as a memoryview."""
    return memoryview(buffer) if isinstance(buffer, bytes) else buffer.data


def _read_only_bytes(buffer: ArrayLike) -> np.ndarray:
    array = np.asarray(buffer)
    if array.dtype != np.uint8 or array.ndim != 1:
        raise TypeError(
            "The buffer of `Records` is `bytes` or a one-dimensional array of uint8. "
            f"Received {type(buffer).__name__} with dtype {array.dtype} and shape {array.shape}."
        )
    if array.flags.writeable or not array.flags.c_contiguous:
        array = np.ascontiguousarray(array).view()
        array.flags.writeable = False
    return array


@final
class RecordArray(np.ndarray):
    """A one-dimensional array of `bytes`, and the `records` that they are."""

    records: Records | None = None

    @classmethod
    def of(cls, records: Records) -> RecordArray:
        values = np.empty(len(records), object)
        values[:] = records.to_list()
        new = values.view(cls)
        new.records = records
        new.flags.writeable = False  # or the records would not be what the array says
        return new

    def __array_finalize__(self, source: object) -> None:
        self.records = None  # a part of it, or something computed from it
