"""Where a row of a batch came from: which record of which file, or which row of which arrays.

Blocks that are not computed yet know that by themselves. A record that was shuffled is only bytes:
it is looked for in the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import numpy as np

from replicax._src.data._blocks import Block, Held, Numbered, RecordRows, Rows
from replicax._src.data._combining import Interleave
from replicax._src.data._composed_blocks import Batched, Joined, Mapped, Zipped
from replicax._src.data._elements import Structure
from replicax._src.data._indexed import Fetched
from replicax._src.data._node import Node, Reader, walk
from replicax._src.data._run import Run
from replicax._src.data._sources import Files, file_name

_MOST_SECONDS = 20.0  # for files that a record is looked for in


class Whence(NamedTuple):
    """Where a row came from.

    Attributes:
      text: in words; "" if it cannot be told.
      leaves: the arrays of the row, as the pipeline makes them: the same, if it is the right one.
    """

    text: str
    leaves: list[np.ndarray]


def whence(rows: Block, row: int, node: Node) -> Whence:
    """Returns where a row of a block came from, that a data set has made."""
    one = rows.select(slice(row, row + 1))
    if len(one) == 0:
        return Whence("", [])
    element = one.rows()[0]
    leaves = [np.asarray(each) for each in Structure(element).leaves(element)]
    source, index = _innermost(one, 0)
    if isinstance(source, Rows):
        return Whence(f"row {index} of the arrays", leaves)
    if isinstance(source, Fetched):
        return Whence(f"element {index} of {source.source.kind}", leaves)
    if isinstance(source, bytes):
        return Whence(_place_of(source, node), leaves)
    return Whence("", leaves)


def rows_of(block: Block) -> Block | None:
    """Returns the rows of one batch, which functions may have been applied to; None if unknown."""
    while isinstance(block, Mapped):
        block = block.inner
    return block.inner if isinstance(block, Batched) and len(block) == 1 else None


def _innermost(block: Block, row: int) -> tuple[Block | bytes | None, int]:
    """Returns what an element of a block was made of, and its number there."""
    while True:
        match block:
            case Mapped():
                block = block.inner
            case Joined():
                block, row = block.parts[int(block.which[row])], int(block.indices[row])
            case Zipped():
                found = [_innermost(part, row) for part in block.parts]
                known = [each for each in found if isinstance(each[0], bytes | Rows | Fetched)]
                return known[0] if known else (None, 0)
            case Numbered():
                return block, int(block.indices[row])
            case RecordRows():
                return block.records.select(slice(row, row + 1)).to_list()[0], 0
            case Held():
                element = block.elements[row]
                return (element, 0) if isinstance(element, bytes) else (None, 0)
            case _:
                return None, 0


def _place_of(record: bytes, node: Node) -> str:
    """Returns the first place of a record in the files that a data set reads."""
    end = time.monotonic() + _MOST_SECONDS
    for name, scan in _files_of(node):
        number = 0
        for block in scan(name):
            for each in block.rows():
                if each == record:
                    return f"record {number} of {os.path.basename(name)} (records from 0)"
                number += 1
            if time.monotonic() > end:
                return ""
    return ""


def _files_of(node: Node) -> Generator[tuple[str, Callable[[str], Iterator[Block]]]]:
    """Yields the names of the files that a data set reads, and what reads one."""
    for each in walk(node):
        if isinstance(each, Files):
            for name in _elements(each.names.open(Run())):
                yield file_name(name), each.scan
        elif isinstance(each, Interleave):
            for element in _elements(each.input.open(Run())):
                yield from _files_of(each.data_set_of(element))


def _elements(reader: Reader) -> Generator[object]:
    try:
        while len(block := reader.take(1)):
            yield block.rows()[0]
    finally:
        reader.close()
