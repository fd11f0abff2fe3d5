"""How elements are read, which stay the same: cache, prefetch, with_options."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import tempfile
import threading
from typing import Any, ClassVar

from replicax.data._blocks import Block, Held
from replicax.data._elements import Structure, map_leaves, own, read_only
from replicax.data._node import Node, OneInput, Reader, Slices
from replicax.data._options import Options
from replicax.data._run import Run


class Store:
    """The elements of a cache, once a walk has reached the end."""

    def __init__(self) -> None:
        self.block: Block | None = None
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Store, ()  # the other process fills its own


@dataclasses.dataclass(frozen=True, eq=False)
class Cache(OneInput):
    """The elements, computed in the first walk and kept, in memory or in a file."""

    filename: str
    store: Store = dataclasses.field(default_factory=Store, init=False)
    label: ClassVar[str] = "CacheDataset"
    keeps_elements: ClassVar[bool] = True
    passes_on: ClassVar[bool] = True

    def open(self, run: Run) -> Reader:
        folder = os.path.dirname(os.path.abspath(self.filename))
        if self.filename and not os.path.isdir(folder):
            raise FileNotFoundError(
                f"cache({self.filename!r}): there is no folder {folder!r} to keep the elements in."
            )
        with self.store.lock:
            if self.store.block is None and self.filename and os.path.exists(self.filename):
                self.store.block = _load(self.filename)
        if self.store.block is not None:
            return Slices(self.store.block)
        # What is computed once must not depend on the iteration in which that happens.
        return CacheReader(self, self.input.open(run.from_the_start()))

    def keep(self, elements: list[Any]) -> None:
        """Called when a walk has reached the end."""
        with self.store.lock:
            if self.store.block is None:
                if self.filename:
                    _save(self.filename, elements)
                self.store.block = Kept(elements)

    def details(self) -> str:
        return self.filename or "in memory"


class Kept(Held):
    """Elements that are handed out again and again, each time in containers of their own."""

    __slots__ = ()

    def rows(self) -> list[Any]:
        if not self.elements:
            return []
        structure = Structure(self.elements[0])
        return [structure.build(row) for row in zip(*structure.columns(self.elements))]


class CacheReader(Reader):
    """The first walk, which fills the cache if it is not broken off."""

    def __init__(self, node: Cache, reader: Reader):
        self._node = node
        self._reader = reader
        self._elements: list[Any] = []
        self._whole = True

    def take(self, count: int) -> Block:
        try:
            rows = [map_leaves(read_only, own(row)) for row in self._reader.take(count).rows()]
        except BaseException:
            self._whole = False  # an element is missing
            raise
        if rows:
            self._elements += rows
        elif self._whole:
            self._node.keep(self._elements)
        return Kept(rows)

    def close(self) -> None:
        self._reader.close()


def _save(filename: str, elements: list[Any]) -> None:
    # Written aside and moved into place: a reader never sees half a file.
    folder = os.path.dirname(os.path.abspath(filename))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".rx-cache-")
    try:
        with os.fdopen(handle, "wb") as file:
            pickle.dump(elements, file, protocol=pickle.HIGHEST_PROTOCOL)
        os.replace(temporary, filename)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _load(filename: str) -> Block:
    with open(filename, "rb") as file:
        try:
            elements = pickle.load(file)
        except Exception as error:  # whatever pickle makes of other bytes
            elements = error
    if not isinstance(elements, list):
        raise ValueError(
            f"{filename!r} is no cache file of a data set: it holds {elements!r:.80}. Delete it, "
            "or name another file in cache()."
        )
    return Kept(elements)


@dataclasses.dataclass(frozen=True, eq=False)
class Prefetch(OneInput):
    """The same elements; at the end of a pipeline, read ahead by a thread.

    Further up it changes nothing: what stands at the end reads ahead for the whole pipeline.
    """

    buffer_size: int
    label: ClassVar[str] = "PrefetchDataset"
    keeps_elements: ClassVar[bool] = True
    passes_on: ClassVar[bool] = True

    def open(self, run: Run) -> Reader:
        return self.input.open(run)

    def details(self) -> str:
        return str(self.buffer_size) if self.buffer_size >= 0 else "AUTOTUNE"


@dataclasses.dataclass(frozen=True, eq=False)
class WithOptions(OneInput):
    """The same elements, with options for those who distribute them."""

    options: Options
    label: ClassVar[str] = "OptionsDataset"
    keeps_elements: ClassVar[bool] = True
    passes_on: ClassVar[bool] = True

    def open(self, run: Run) -> Reader:
        return self.input.open(run)

    def details(self) -> str:
        return f"auto_shard_policy {self.options.experimental_distribute.auto_shard_policy.name}"


def options_of(node: Node) -> Options:
    """The options of a pipeline: those nearest to the sink count."""
    options = Options()
    for each in node.inputs:
        options = options.merge(options_of(each))
    return options.merge(node.options) if isinstance(node, WithOptions) else options
