"""Reads text files, many lines at a time."""

from __future__ import annotations

from collections.abc import Iterator

from replicax._src.records._source import BLOCK_BYTES, FileName, Source, check_blocks


def scan_lines(
    path: FileName,
    compression_type: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    skip: int = 0,
) -> Iterator[list[bytes]]:
    r"""Yields the lines of a text file without their ends, in lists of about `block_bytes`.

    As in `tf.data.TextLineDataset`, lines end with `\n`, the last one may do without, and every
    `\r` is left out, wherever it stands.

    Args:
      path: The file.
      compression_type: None, "", "GZIP" or "ZLIB".
      block_bytes: About how many bytes to read at once. A line may be longer.
      skip: How many lines to leave out at the beginning.

    Raises:
      DataLossError: If compressed data is cut off or cannot be decompressed.
      FileNotFoundError: If there is no such file.
    """
    check_blocks(block_bytes, skip)
    with Source(path, compression_type) as source:
        offset = 0
        begun: list[bytes] = []  # the pieces of a line that has not ended yet
        while piece := source.read(offset, block_bytes):
            offset += len(piece)
            if b"\r" in piece:
                piece = piece.replace(b"\r", b"")
            if skip and (ends := piece.count(b"\n")) <= skip:
                skip -= ends
                begun = [] if ends else begun
                begun.append(piece[piece.rfind(b"\n") + 1 :])
                continue
            lines = piece.split(b"\n")
            if len(lines) == 1:
                begun.append(piece)
                continue
            lines[0] = b"".join((*begun, lines[0]))
            begun = [lines.pop()]
            if skip:
                del lines[:skip]
                skip = 0
            yield lines
        source.raise_if_damaged()  # before a last line that is not whole
        if not skip and (last := b"".join(begun)):
            yield [last]
