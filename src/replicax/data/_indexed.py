"""Sources that are read by index: those of other libraries, and ArrayRecord files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from replicax._errors import add_note
from replicax.data._blocks import Block, Columns, Indices, pick
from replicax.data._elements import Allocate, Structure, as_element
from replicax.data._node import Node, Reader, Run, Slices, observed_spec

Fetch = Callable[[Sequence[int]], list[Any]]


class Fetched(Block):
    """Elements of such a source, by number."""

    __slots__ = ("indices", "node")

    def __init__(self, node: Indexed, indices: range | np.ndarray):
        self.node = node
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def select(self, indices: Indices) -> Fetched:
        return Fetched(self.node, pick(self.indices, indices))

    def rows(self) -> list[Any]:
        if self.node.fetch_columns is not None:
            return self._columns().rows()
        numbers = [int(index) for index in self.indices]
        try:
            return [as_element(element) for element in self.node.fetch(numbers)]
        except Exception as error:
            add_note(error, f"Raised by {self.node.kind}, for the elements {_some(numbers)}.")
            raise

    def stacked(self, allocate: Allocate | None = None) -> Any:
        if self.node.fetch_columns is not None:
            return self._columns().stacked(allocate)
        return super().stacked(allocate)

    def _columns(self) -> Columns:
        element = as_element(self.node.fetch_columns([int(index) for index in self.indices]))  # type: ignore[misc]
        structure = Structure(element)
        return Columns(structure.leaves(element), structure)

    def joined(self, blocks: Sequence[Fetched]) -> Fetched | None:
        if any(block.node is not self.node for block in blocks):
            return None
        parts = [np.asarray(block.indices, np.int64) for block in blocks]
        return Fetched(self.node, np.concatenate(parts))


def _some(numbers: list[int]) -> str:
    return str(numbers) if len(numbers) <= 4 else f"{numbers[0]} to {numbers[-1]}"


@dataclasses.dataclass(frozen=True, eq=False)
class Indexed(Node):
    """A source with a length, of which any elements can be had."""

    fetch: Fetch
    size: int
    kind: str
    yields_records: bool = False
    # Many elements as one structure of arrays, where the source has a fast way.
    fetch_columns: Callable[[Sequence[int]], Any] | None = None
    runs_user_code: ClassVar[bool] = True

    @property
    def label(self) -> str:  # type: ignore[override]
        return self.kind

    def open(self, run: Run) -> Reader:
        return Slices(Fetched(self, range(self.size)))

    def _cardinality(self) -> int:
        return self.size

    def _spec(self) -> Any:
        return observed_spec(self)

    def details(self) -> str:
        return f"{self.size} elements by index"


def array_records(paths: list[str]) -> Indexed:
    """The records of ArrayRecord files; needs the package array_record."""
    try:
        from array_record.python import array_record_data_source  # pyright: ignore
    except ImportError:
        raise ImportError(
            "ArrayRecordDataset needs the package array-record, which is not installed. Run: pip "
            "install 'replicax[arrayrecord]'."
        ) from None
    source = array_record_data_source.ArrayRecordDataSource(paths)
    return Indexed(
        lambda indices: list(source.__getitems__(indices)),
        len(source),
        "ArrayRecordDataset",
        yields_records=True,
    )
