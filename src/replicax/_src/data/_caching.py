"""How elements are read, which stay the same: cache, prefetch, with_options."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Sequence
from typing import Any, final

from replicax._src._typing import override
from replicax._src.data import _cache_file
from replicax._src.data._blocks import Block, Held
from replicax._src.data._elements import Structure, map_leaves, own, read_only
from replicax._src.data._leaf_columns import check_can_be_kept
from replicax._src.data._node import (
    Node,
    OneInput,
    Reader,
    ReaderOfOne,
    Slices,
    drawing_nodes,
    walk,
)
from replicax._src.data._options import Options
from replicax._src.data._run import Run


@final
class Store:
    """The elements of a cache, once a walk has reached the end."""

    def __init__(self) -> None:
        self.block: Block | None = None
        self.seeds: dict[int, int] = {}  # `Run.other_seeds` of that walk
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Store, ()  # the other process fills its own


class KeepsInFiles(OneInput):
    """An operation that keeps elements in files, whose order was decided by the seeds there."""

    def seeds_of_file(self) -> dict[int, int]:
        """Returns the seeds with which files were written, by those that the nodes drew."""
        raise NotImplementedError

    def seeds_in(self, run: Run) -> tuple[int, ...]:
        """Returns the seeds of the operations before this one, as a walk has them."""
        return tuple(run.seed_of(node.drawn) for node in drawing_nodes(self.input))


@final
class Cache(KeepsInFiles, keeps_elements=True, passes_on=True):
    """The elements, computed in the first walk and kept, in memory or in a file.

    Shuffles before it may draw their seeds. A walk that continues a state has those of the state:
    what was kept with others is in another order, and not used.
    """

    filename: str
    store: Store = dataclasses.field(default_factory=Store, init=False)

    @override
    def open(self, run: Run) -> Reader:
        folder = os.path.dirname(self.filename)
        if self.filename and not os.path.isdir(folder):
            raise FileNotFoundError(
                f"cache({self.filename!r}): there is no folder {folder!r} to keep the elements in."
            )
        with self.store.lock:
            block = self._kept(run)
        if block is not None:
            return Slices(block)
        # What is computed once must not depend on the iteration in which that happens.
        return CacheReader(self, self.input.open(run.from_the_start()), run)

    def _kept(self, run: Run) -> Block | None:
        """Returns what is kept of a walk with the seeds of this one."""
        store = self.store
        if store.block is not None and store.seeds == self._other_seeds(run):
            return store.block
        if self.filename and os.path.exists(self.filename):
            elements = _cache_file.read(self.filename, self.seeds_in(run), lambda: self.input.spec)
            if elements is not None:
                store.block, store.seeds = Kept(elements), self._other_seeds(run)
                return store.block
        return None

    def keep(self, elements: list[Any], run: Run) -> None:
        """Keeps the elements of a walk that has reached the end."""
        with self.store.lock:
            if self._kept(run) is None:
                if self.filename:
                    _cache_file.tidy(os.path.dirname(self.filename))
                    _cache_file.write(self.filename, elements, self.seeds_in(run))
                self.store.block, self.store.seeds = Kept(elements), self._other_seeds(run)

    @override
    def seeds_of_file(self) -> dict[int, int]:
        drawing = drawing_nodes(self.input)
        if not drawing or not self.filename or not os.path.exists(self.filename):
            return {}
        seeds = _cache_file.read_seeds(self.filename)
        if len(seeds) != len(drawing):  # the file is of another pipeline
            return {}
        return {node.drawn: seed for node, seed in zip(drawing, seeds)}

    def _other_seeds(self, run: Run) -> dict[int, int]:
        return run.other_seeds if drawing_nodes(self.input) else {}

    @override
    def details(self) -> str:
        return self.filename or "in memory"


@final
class Kept(Held):
    """Elements that are handed out again and again, each time in containers of their own."""

    __slots__ = ()

    @override
    def rows(self) -> list[Any]:
        if not self.elements:
            return []
        structure = Structure(self.elements[0])
        return [structure.build(row) for row in zip(*structure.columns(self.elements))]


@final
class CacheReader(ReaderOfOne):
    """The first walk, which fills the cache if it is not broken off."""

    def __init__(self, node: Cache, reader: Reader, run: Run):
        self._node = node
        super().__init__(reader)
        self._run = run
        self._elements: list[Any] = []
        self._whole = not run.is_preview

    @override
    def take(self, count: int) -> Block:
        try:
            rows = [map_leaves(read_only, own(row)) for row in self._reader.take(count).rows()]
            if rows and not self._elements and self._node.filename:
                check_can_be_kept(rows[0])
        except BaseException:
            self._whole = False  # an element is missing
            raise
        if rows:
            self._elements += rows
        elif self._whole:
            self._node.keep(self._elements, self._run)
        return Kept(rows)


def seeds_of_files(nodes: Sequence[Node]) -> dict[int, int]:
    """Returns the seeds with which files of caches were written, for iterations to have them."""
    seeds: dict[int, int] = {}
    for node in nodes:
        for each in walk(node):
            if isinstance(each, KeepsInFiles):
                seeds |= each.seeds_of_file()
    return seeds


class _PassedOn(OneInput, keeps_elements=True, passes_on=True):
    """The same elements, read as they are."""

    @override
    def open(self, run: Run) -> Reader:
        return self.input.open(run)


@final
class Prefetch(_PassedOn):
    """The same elements; at the end of a pipeline, read ahead by a thread.

    Further up it changes nothing: what stands at the end reads ahead for the whole pipeline.
    """

    buffer_size: int

    @override
    def details(self) -> str:
        return str(self.buffer_size) if self.buffer_size >= 0 else "AUTOTUNE"


@final
class WithOptions(_PassedOn, label="OptionsDataset"):
    """The same elements, with options for those who distribute them."""

    options: Options

    @override
    def details(self) -> str:
        return f"auto_shard_policy {self.options.experimental_distribute.auto_shard_policy.name}"


def options_of(node: Node) -> Options:
    """Returns the options of a pipeline: those nearest to the sink count."""
    options = Options()
    for each in node.inputs:
        options = options.merge(options_of(each))
    return options.merge(node.options) if isinstance(node, WithOptions) else options
