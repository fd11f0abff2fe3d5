"""One block of several: `concatenate`, which computes nothing where it can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from replicax._src._typing import override
from replicax._src.data._blocks import (
    EMPTY,
    Batched,
    Block,
    Columns,
    Counted,
    Held,
    Indices,
    Mapped,
    RecordRows,
    Rows,
    Zipped,
)
from replicax._src.records import Records

_MOST_PARTS = 32  # in one block, before they are computed after all


@final
class Joined(Block):
    """Elements of blocks of different kinds: the last batch, which is smaller, among the others."""

    __slots__ = ("indices", "parts", "which")

    def __init__(self, parts: Sequence[Block], which: np.ndarray, indices: np.ndarray):
        """
        Args:
          parts: the blocks.
          which: for each element, the block that it is in.
          indices: and its place there.
        """
        self.parts = parts
        self.which = which
        self.indices = indices

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Joined:
        parts: list[Block] = []
        which: list[np.ndarray] = []
        indices: list[np.ndarray] = []
        for block in blocks:
            if isinstance(block, Joined):
                which.append(block.which + len(parts))
                indices.append(block.indices)
                parts += block.parts
            else:
                which.append(np.full(len(block), len(parts)))
                indices.append(np.arange(len(block)))
                parts.append(block)
        return cls(parts, np.concatenate(which), np.concatenate(indices))

    @override
    def __len__(self) -> int:
        return len(self.which)

    @override
    def select(self, indices: Indices) -> Block:
        which, places = self.which[indices], self.indices[indices]
        used = np.unique(which)
        if len(used) == 1:
            return self.parts[used[0]].select(places)
        # Blocks of which nothing is left must not be kept.
        return Joined([self.parts[i] for i in used], np.searchsorted(used, which), places)

    @override
    def detached(self) -> Joined:
        return Joined([part.detached() for part in self.parts], self.which, self.indices)

    @override
    def rows(self) -> list[Any]:
        rows: list[Any] = [None] * len(self)
        for number, part in enumerate(self.parts):
            (mine,) = np.nonzero(self.which == number)
            for place, row in zip(mine.tolist(), part.select(self.indices[mine]).rows()):
                rows[place] = row
        return rows


def concatenate(blocks: Sequence[Block]) -> Block:
    """Returns one block of the elements of several; where of one kind, still not computed."""
    blocks = [block for block in blocks if len(block)]
    if len(blocks) < 2:
        return blocks[0] if blocks else EMPTY
    first: Any = blocks[0]
    same: Any = [block for block in blocks if type(block) is type(first)]
    if len(same) == len(blocks):
        joined = _joined(first, same)
        if joined is not None:
            return joined
    if sum(len(getattr(block, "parts", (block,))) for block in blocks) <= _MOST_PARTS:
        return Joined.of(blocks)
    return Held([element for block in blocks for element in block.rows()])


def _joined(first: Any, blocks: Sequence[Any]) -> Block | None:
    if hasattr(first, "joined"):
        return first.joined(blocks)
    match first:
        case Held():
            return Held([element for block in blocks for element in block.elements])
        case Rows() if all(block.table is first.table for block in blocks):
            return Rows(first.table, _joined_indices([block.indices for block in blocks]))
        case Counted() if all(block.dtype == first.dtype for block in blocks):
            return Counted(_joined_indices([block.numbers for block in blocks]), first.dtype)
        case RecordRows():
            return RecordRows(Records.concatenate([block.records for block in blocks]))
        case Zipped() if all(block.structure is first.structure for block in blocks):
            parts = zip(*[block.parts for block in blocks])
            return Zipped([concatenate(part) for part in parts], first.structure)
        case Mapped() if all(block.function is first.function for block in blocks):
            return Mapped(first.function, concatenate([block.inner for block in blocks]))
        case Batched() if all(block.size == first.size for block in blocks):
            return Batched(concatenate([block.inner for block in blocks]), first.size)
        case Columns() if all(_same_columns(block, first) for block in blocks):
            columns = zip(*[block.columns for block in blocks])
            return Columns([np.concatenate(column) for column in columns], first.structure)
    return None


def _same_columns(one: Columns, other: Columns) -> bool:
    return one.structure == other.structure and all(
        a.shape[1:] == b.shape[1:] and a.dtype == b.dtype
        for a, b in zip(one.columns, other.columns)
    )


def _joined_indices(parts: Sequence[range | np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.int64) for part in parts])
