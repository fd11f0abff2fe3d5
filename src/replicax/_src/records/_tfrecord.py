"""Reads TFRecord files: a block of records at a time, checked against their checksums.

A record in the file is its length (8 bytes), the checksum of that, its bytes, and their checksum.
`_frames.py` finds the records in a piece of the file; here pieces follow each other, and damage
becomes an error that says where it is. `_writer.py` writes such files.
"""

from __future__ import annotations

from collections.abc import Iterator

from replicax._src._errors import DataLossError
from replicax._src.records._frames import (
    HEADER_BYTES,
    OVERHEAD,
    FrameProblem,
    find_frames,
    length_at,
)
from replicax._src.records._records import Records
from replicax._src.records._source import BLOCK_BYTES, FileName, Source, check_blocks


def scan_tfrecords(
    path: FileName,
    compression_type: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    verify: bool = True,
    native: bool | None = None,
) -> Iterator[Records]:
    """Yields the records of a TFRecord file, in blocks of about `block_bytes`.

    All records before some damage are yielded; then the error is raised. TensorFlow takes a file
    that is cut off within the first 12 bytes of a record for complete; here that is an error too.

    Args:
      path: The file.
      compression_type: None, "", "GZIP" or "ZLIB".
      block_bytes: About how many bytes to read at once. A record may be larger.
      verify: Whether to compare the checksums.
      native: Whether to use the compiled helper; None: if it is there.

    Raises:
      DataLossError: If the file is cut off or corrupted; it names the file and the byte offset.
      FileNotFoundError: If there is no such file.
    """
    check_blocks(block_bytes)
    with Source(path, compression_type) as source:
        yield from _scan(source, block_bytes, verify, native)


def _scan(source: Source, block_bytes: int, verify: bool, native: bool | None) -> Iterator[Records]:
    offset = number = 0  # of the first record that has not been dealt with
    wanted = block_bytes
    while piece := source.read(offset, wanted):
        at_end = len(piece) < wanted
        frames = find_frames(piece, verify, native)
        if len(frames.starts):
            yield Records(piece, frames.starts, frames.lengths)
        offset += frames.end
        number += len(frames.starts)
        left = len(piece) - frames.end
        if frames.problem:
            raise _corrupted(source, frames.problem, offset, number)
        if at_end and left:
            source.raise_if_damaged()
            raise _cut_off(source, offset, number)
        wanted = block_bytes
        if left >= HEADER_BYTES and not at_end:
            wanted = max(block_bytes, OVERHEAD + length_at(piece, frames.end))
        elif not at_end:
            wanted = max(block_bytes, HEADER_BYTES)
    source.raise_if_damaged()


def _corrupted(source: Source, problem: FrameProblem, offset: int, number: int) -> DataLossError:
    hint = "Copy or write the file again, or leave it out."
    if number == 0 and problem is FrameProblem.LENGTH:
        hint = (
            "It is the first one: is this a TFRecord file at all, and is its `compression_type` "
            f"{source.compression or None!r}?"
        )
    return DataLossError(
        f"{source.path}: the record number {number}, at byte {offset}"
        f"{_in_what(source)}, is corrupted: its {problem.value} does not match its checksum. "
        f"{hint}",
        source.path,
        offset,
    )


def _cut_off(source: Source, offset: int, number: int) -> DataLossError:
    return DataLossError(
        f"{source.path}: the file ends in the middle of the record number {number}, which begins "
        f"at byte {offset}{_in_what(source)}. Was it copied or written to its end?",
        source.path,
        offset,
    )


def _in_what(source: Source) -> str:
    return " of the decompressed data" if source.compression else ""
