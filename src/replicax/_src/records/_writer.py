"""Writes TFRecord files, as `tf.io.TFRecordWriter`; read them with `_tfrecord.py`."""

from __future__ import annotations

import contextlib
import os
import struct
import weakref
import zlib
from dataclasses import dataclass
from typing import Any

from replicax._src._checksums import crc32c, masked
from replicax._src._local_path import naming
from replicax._src._typing import override
from replicax._src.records._source import Closed, FileName, check_compression_type, check_path

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class TFRecordOptions:
    """How to compress a TFRecord file. Names and order are those of `tf.io.TFRecordOptions`.

    Args:
      compression_type: None, "", "GZIP" or "ZLIB".
      flush_mode: How `flush` ends the compressed data, as in zlib; None: `zlib.Z_SYNC_FLUSH`.
      input_buffer_size: Has no effect here; taken so that calls can stay as they are.
      output_buffer_size: Has no effect here.
      window_bits: As in zlib, without the 16 that stands for GZIP.
      compression_level: 0 to 9, or -1 or None for zlib's own choice.
      compression_method: As in zlib; there is one, `zlib.DEFLATED`.
      mem_level: 1 to 9, as in zlib.
      compression_strategy: As in zlib.

    Raises:
      ValueError: If the compression type is not known, or a number is not one of zlib's.
    """

    compression_type: str | None = None
    flush_mode: int | None = None
    input_buffer_size: int | None = None
    output_buffer_size: int | None = None
    window_bits: int | None = None
    compression_level: int | None = None
    compression_method: int | None = None
    mem_level: int | None = None
    compression_strategy: int | None = None

    def __post_init__(self) -> None:
        check_compression_type(self.compression_type)
        try:
            self.compressor()
        except (ValueError, zlib.error, TypeError) as error:
            raise ValueError(f"zlib does not take these options: {self}. {error}") from None

    def compressor(self) -> Any:
        """Returns a new `zlib.compressobj`, or None if nothing is to be compressed."""
        compression = check_compression_type(self.compression_type)
        if not compression:
            return None
        bits = zlib.MAX_WBITS if self.window_bits is None else abs(self.window_bits)
        return zlib.compressobj(
            _or(self.compression_level, zlib.Z_DEFAULT_COMPRESSION),
            _or(self.compression_method, zlib.DEFLATED),
            bits % 16 + 16 if compression == "GZIP" else bits,
            _or(self.mem_level, zlib.DEF_MEM_LEVEL),
            _or(self.compression_strategy, zlib.Z_DEFAULT_STRATEGY),
        )


class TFRecordWriter(Closed):
    """Writes byte strings to a TFRecord file; `tf.data` and `rx.data` read it.

    >>> import os, tempfile
    >>> from replicax._src.records import scan_tfrecords
    >>> path = os.path.join(tempfile.mkdtemp(), "two.tfrecord")
    >>> with TFRecordWriter(path) as writer:
    ...     writer.write(b"first")
    ...     writer.write(b"second")
    >>> [records.to_list() for records in scan_tfrecords(path)]
    [[b'first', b'second']]

    Args:
      path: The file. One that exists is overwritten.
      options: `TFRecordOptions`, or just a compression type: None, "", "GZIP" or "ZLIB".
    """

    def __init__(self, path: FileName, options: TFRecordOptions | str | None = None) -> None:
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(options)
        self._path = check_path(path)
        self._options = options
        self._compressor = options.compressor()
        self._crc = crc32c()
        self._file = open(self._path, "wb")
        self._is_idle = False  # in a forked child that has written nothing: its parent goes on
        _writers.add(self)

    def write(self, record: bytes) -> None:
        """Appends one record.

        Raises:
          TypeError: If it is not `bytes`.
          ValueError: If the writer has been closed.
        """
        if not isinstance(record, bytes | bytearray):
            remedy = "Write `record.encode()`." if isinstance(record, str) else _REMEDY
            raise TypeError(
                f"A record is `bytes`. Received {type(record).__name__}: {record!r:.80}. {remedy}"
            )
        if self._file.closed:
            raise ValueError(f"The writer of {self._path!r} has been closed.")
        self._is_idle = False
        crc = self._crc
        length = _LENGTH.pack(len(record))
        frame = b"".join(
            (length, _CRC.pack(masked(crc(length))), record, _CRC.pack(masked(crc(record))))
        )
        try:
            self._file.write(self._compressor.compress(frame) if self._compressor else frame)
        except OSError as error:  # as `naming`, which takes as long as all else here
            error.filename = error.filename or self._path
            raise

    def flush(self) -> None:
        """Hands everything written so far to the operating system: others can read it."""
        with naming(self._path):
            if self._compressor and not self._file.closed and not self._is_idle:
                mode = self._options.flush_mode
                self._file.write(self._compressor.flush(_or(mode, zlib.Z_SYNC_FLUSH)))
            self._file.flush()

    @override
    def close(self) -> None:
        """Completes the file. Closing twice does nothing."""
        if self._file.closed:
            return
        with naming(self._path):
            try:
                if self._compressor and not self._is_idle:
                    self._file.write(self._compressor.flush(zlib.Z_FINISH))
            finally:
                self._file.close()

    def _before_fork(self) -> None:
        """Writes what is held back: a child that ends would write it as well."""
        with contextlib.suppress(OSError, ValueError):
            self._file.flush()


_writers: weakref.WeakSet[TFRecordWriter] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(
        before=lambda: [each._before_fork() for each in list(_writers)],
        after_in_child=lambda: [setattr(each, "_is_idle", True) for each in list(_writers)],
    )


_REMEDY = (
    "To store arrays, write `rx.train.Example(features=...).SerializeToString()`, or "
    "`array.tobytes()` if you know its shape and dtype."
)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
