"""Reads files without frames: records that all have the same length, and lines of text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from replicax._src._errors import DataLossError
from replicax._src.records._records import Records
from replicax._src.records._source import BLOCK_BYTES, FileName, Source, check_blocks


def scan_fixed(
    path: FileName,
    record_bytes: int,
    header_bytes: int = 0,
    footer_bytes: int = 0,
    compression_type: str | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Records]:
    """Yields the records of a file in blocks of about `block_bytes`.

    Args:
      path: The file.
      record_bytes: The length of a record.
      header_bytes: How many bytes come before the first record.
      footer_bytes: How many bytes come after the last record.
      compression_type: None, "", "GZIP" or "ZLIB".
      block_bytes: About how many bytes to read at once. A record may be larger.

    Raises:
      DataLossError: If the file without header and footer is not a whole number of records. In a
        compressed file that shows at its end; otherwise at the beginning, as in TensorFlow.
      FileNotFoundError: If there is no such file.
    """
    check_blocks(block_bytes)
    if record_bytes < 1 or min(header_bytes, footer_bytes) < 0:
        raise ValueError(
            "`record_bytes` must be at least 1, `header_bytes` and `footer_bytes` at least 0. "
            f"Received record_bytes={record_bytes}, header_bytes={header_bytes}, "
            f"footer_bytes={footer_bytes}."
        )
    with Source(path, compression_type) as source:
        if source.size is not None:
            _check(source, source.size, record_bytes, header_bytes, footer_bytes)
        offset = header_bytes
        wanted = max(1, block_bytes // record_bytes) * record_bytes + footer_bytes
        at_end = False
        while not at_end:
            piece = source.read(offset, wanted)
            at_end = len(piece) < wanted
            count = max(0, len(piece) - footer_bytes) // record_bytes
            if count:
                starts = np.arange(count, dtype=np.int64) * record_bytes
                yield Records(piece, starts, np.full(count, record_bytes))
            offset += count * record_bytes
        source.raise_if_damaged()
        if source.size is None:
            _check(source, source.end, record_bytes, header_bytes, footer_bytes)


def _check(
    source: Source, size: int, record_bytes: int, header_bytes: int, footer_bytes: int
) -> None:
    body = size - header_bytes - footer_bytes
    if body >= 0 and body % record_bytes == 0:
        return
    offset = max(0, size - footer_bytes - max(0, body) % record_bytes)
    raise DataLossError(
        f"{source.path}: {size} bytes, less {header_bytes} of header and {footer_bytes} of footer, "
        f"leave {body} for records of {record_bytes}, which is no whole number of them; the first "
        f"byte too many is number {offset}. Is the file complete, and are the sizes right?",
        source.path,
        offset,
    )


def scan_lines(
    path: FileName, compression_type: str | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[list[bytes]]:
    r"""Yields the lines of a text file without their ends, in lists of about `block_bytes`.

    As in `tf.data.TextLineDataset`, lines end with `\n`, the last one may do without, and every
    `\r` is left out, wherever it stands.

    Args:
      path: The file.
      compression_type: None, "", "GZIP" or "ZLIB".
      block_bytes: About how many bytes to read at once. A line may be longer.

    Raises:
      DataLossError: If compressed data is cut off or cannot be decompressed.
      FileNotFoundError: If there is no such file.
    """
    check_blocks(block_bytes)
    with Source(path, compression_type) as source:
        offset = 0
        begun: list[bytes] = []  # the pieces of a line that has not ended yet
        while piece := source.read(offset, block_bytes):
            offset += len(piece)
            if b"\r" in piece:
                piece = piece.replace(b"\r", b"")
            lines = piece.split(b"\n")
            if len(lines) == 1:
                begun.append(piece)
                continue
            lines[0] = b"".join((*begun, lines[0]))
            begun = [lines.pop()]
            yield lines
        source.raise_if_damaged()  # before a last line that is not whole
        if last := b"".join(begun):
            yield [last]
