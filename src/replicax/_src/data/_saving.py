"""Data sets from and into folders: what `load` reads, and what `snapshot` writes once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, final

import numpy as np

from replicax._src._errors import NotFoundError
from replicax._src._typing import override
from replicax._src.data import _saved
from replicax._src.data._blocks import EMPTY, Block, Held
from replicax._src.data._caching import KeepsInFiles, Kept
from replicax._src.data._elements import (
    DatasetBase,
    Element,
    ElementSpec,
    map_leaves,
    own,
    read_only,
)
from replicax._src.data._iterator import fingerprint
from replicax._src.data._mapping import call, name_of
from replicax._src.data._node import (
    DatasetSpec,
    Node,
    NoElements,
    Reader,
    ReaderOfOne,
    Slices,
    drawing_nodes,
)
from replicax._src.data._run import Run
from replicax._src.data._saved import Index, Part
from replicax._src.data._sources import BlockNode

ReaderFunction = Callable[[Any], Any]


@final
class Saved(Node, label="LoadDataset"):
    """The elements of some parts of a saved data set."""

    index: Index
    parts: tuple[Part, ...]
    element_spec: Any

    @override
    def open(self, run: Run) -> Reader:
        return SavedReader(self)

    def elements(self, part: Part) -> list[Any]:
        """Returns the elements of one of the parts."""
        return self.index.elements(part, lambda: self.element_spec)

    @override
    def _cardinality(self) -> int:
        return sum(part.elements for part in self.parts)

    @override
    def _spec(self) -> Any:
        return self.element_spec

    @override
    def details(self) -> str:
        return self.index.folder

    @override
    def settings(self) -> str:
        return ""  # the folder may have moved


@final
class SavedReader(Reader):
    """A walk over parts, one of which is in memory at a time."""

    def __init__(self, node: Saved):
        self._node = node
        self._waiting = list(reversed(node.parts))
        self._now = Slices(EMPTY)

    @override
    def take(self, count: int) -> Block:
        while self._now.left == 0 and self._waiting:
            elements = self._node.elements(self._waiting[-1])
            self._waiting.pop()
            self._now = Slices(Kept(elements))
        return self._now.take(count) if self._now.left else EMPTY

    @override
    def skip(self, count: int) -> int:
        skipped = self._now.skip(count)
        while self._waiting and skipped + self._waiting[-1].elements <= count:
            skipped += self._waiting.pop().elements  # without a look at it
        return skipped + super().skip(count - skipped)


def loaded(
    index: Index,
    element_spec: ElementSpec,
    reader_func: ReaderFunction | None,
    make_data_set: Callable[[Node], Any],
) -> Any:
    """Returns the data set in a folder: shard after shard, or as `reader_func` says."""
    spec = index.spec() if element_spec is None else element_spec
    if element_spec is not None and not _saved.specs_fit(element_spec, index):
        raise ValueError(
            f"The elements in {index.folder!r} are {index.leaves!r}, in the structure "
            f"{index.structure!r}, which element_spec={element_spec!r} does not describe."
        )
    if reader_func is None:
        return make_data_set(Saved(index, tuple(index.parts), spec))
    shards = [
        make_data_set(Saved(index, tuple(index.shards[number]), spec))
        for number in sorted(index.shards)
    ]
    made = reader_func(make_data_set(BlockNode(Held(shards), DatasetSpec(spec))))
    if not isinstance(made, DatasetBase):
        raise TypeError(
            f"{name_of(reader_func)}, the reader_func, must return a data set; got {made!r}."
        )
    return made


def shard_number(shard_func: Callable[..., Any] | None) -> Callable[[Element], int]:
    """Returns what says into which shard an element goes: one for all, without a function."""

    def number(element: Element) -> int:
        if shard_func is None:
            return 0
        found = np.asarray(call(shard_func, element, "save()"))
        if found.dtype.kind not in "iu" or found.size != 1 or not 0 <= found.item() < 2**63:
            raise ValueError(
                f"{name_of(shard_func)}, the shard_func, must return one integer, 0 or more, for "
                f"an element; got {found!r}."
            )
        return int(found.item())

    return number


def is_compressed(compression: str | None, operation: str) -> bool:
    """Returns whether to compress, as TensorFlow's argument says it."""
    if compression in (None, "", "NONE", "AUTO"):
        return False
    if compression == "GZIP":
        return True
    raise ValueError(f"{operation} takes compression=None, 'AUTO' or 'GZIP'; got {compression!r}.")


# ------------------------------------------------------------------ snapshots


@final
class Snapshot(KeepsInFiles, keeps_elements=True, passes_on=True):
    """The elements, written to a folder in the first walk that ends, and read from there then.

    A pipeline has a folder of its own below the one that the user named. What is there counts if
    its elements came in the order of this walk: see `Cache`.
    """

    filename: str
    compress: bool
    shard_func: Callable[..., Any] | None
    reader_func: ReaderFunction | None
    make_data_set: Callable[[Node], Any]

    @property
    def _folder(self) -> str:
        return os.path.join(self.filename, fingerprint([self.input]))

    def _index(self) -> Index | None:
        with contextlib.suppress(NotFoundError):
            return _saved.read_index(self._folder)
        return None

    @override
    def open(self, run: Run) -> Reader:
        index = self._index()
        if index is not None and index.seeds == self.seeds_in(run):
            return self._read(index, run)
        reader = self.input.open(run.from_the_start())
        if run.is_preview or index is not None:
            return reader
        if self.shard_func is None and self.reader_func is None:
            return SnapshotReader(self, self._writer(), reader, run)
        # Read in another order than it is written, so that it is to be there first.
        writer = self._writer()
        walk = SnapshotReader(self, writer, reader, run)
        try:
            while len(walk.take(1)):
                pass
        finally:
            walk.close()
        index = self._index()
        if index is None:
            raise RuntimeError(f"snapshot({self.filename!r}): what was written is gone.")
        return self._read(index, run)

    def _writer(self) -> _saved.Writer:
        return _saved.Writer(
            self._folder, shard_number(self.shard_func), self.compress, "snapshot()", is_shared=True
        )

    def finish(self, writer: _saved.Writer, run: Run) -> None:
        """Makes what was written count."""
        spec = ()  # of no elements, which may look like anything
        with contextlib.suppress(NoElements):
            spec = self.input.spec
        writer.finish(spec, self.seeds_in(run))

    def _read(self, index: Index, run: Run) -> Reader:
        if not index.parts:
            return Slices(EMPTY)
        # Only the program knows its own classes; to ask it may run functions.
        spec = self.input.spec if isinstance(index.structure, str) else None
        made = loaded(index, spec, self.reader_func, self.make_data_set)
        return made._data_set_node.open(run)

    @override
    def seeds_of_file(self) -> dict[int, int]:
        drawing = drawing_nodes(self.input)
        index = self._index() if drawing else None
        if index is None or len(index.seeds) != len(drawing):
            return {}
        return {node.drawn: seed for node, seed in zip(drawing, index.seeds)}

    @override
    def details(self) -> str:
        return self.filename


@final
class SnapshotReader(ReaderOfOne):
    """The first walk, which writes what it hands on; if it is broken off, nothing was written."""

    def __init__(self, node: Snapshot, writer: _saved.Writer, reader: Reader, run: Run):
        super().__init__(reader)
        self._node = node
        self._writer: _saved.Writer | None = writer
        self._run = run

    @override
    def take(self, count: int) -> Block:
        try:
            rows = [map_leaves(read_only, own(row)) for row in self._reader.take(count).rows()]
            if self._writer is not None:
                for row in rows:
                    self._writer.add(row)
        except BaseException:
            self._give_up()  # an element is missing
            raise
        if not rows and self._writer is not None:
            writer, self._writer = self._writer, None
            self._node.finish(writer, self._run)
        return Kept(rows)

    def _give_up(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.give_up()

    @override
    def close(self) -> None:
        self._give_up()
        super().close()
