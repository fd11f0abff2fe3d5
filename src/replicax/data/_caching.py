"""Keeping elements and reading ahead: cache, prefetch, with_options."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import tempfile
import threading
from typing import Any, ClassVar

from replicax.data._blocks import Block, Held
from replicax.data._node import OneInput, Reader, Run, Slices
from replicax.data._options import Options


class Store:
    """The elements of a cache, once a walk has reached the end."""

    def __init__(self) -> None:
        self.block: Block | None = None
        self.lock = threading.Lock()


@dataclasses.dataclass(frozen=True, eq=False)
class Cache(OneInput):
    """The elements, computed in the first walk and kept, in memory or in a file."""

    filename: str
    store: Store = dataclasses.field(default_factory=Store, init=False)
    label: ClassVar[str] = "CacheDataset"
    keeps_elements: ClassVar[bool] = True

    def open(self, run: Run) -> Reader:
        with self.store.lock:
            if self.store.block is None and self.filename and os.path.exists(self.filename):
                self.store.block = _load(self.filename)
        if self.store.block is not None:
            return Slices(self.store.block)
        return CacheReader(self, self.input.open(run))

    def keep(self, elements: list[Any]) -> None:
        """Called when a walk has reached the end."""
        with self.store.lock:
            if self.store.block is None:
                if self.filename:
                    _save(self.filename, elements)
                self.store.block = Held(elements)

    def details(self) -> str:
        return self.filename or "in memory"


class CacheReader(Reader):
    """The first walk, which fills the cache if it is not broken off."""

    def __init__(self, node: Cache, reader: Reader):
        self._node = node
        self._reader = reader
        self._elements: list[Any] = []

    def take(self, count: int) -> Block:
        rows = self._reader.take(count).rows()
        if rows:
            self._elements += rows
        else:
            self._node.keep(self._elements)
        return Held(rows)

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
    try:
        with open(filename, "rb") as file:
            return Held(pickle.load(file))
    except (pickle.UnpicklingError, EOFError) as error:
        raise ValueError(
            f"{filename!r} is no cache file of a data set ({error}). Delete it, or name another "
            "file in cache()."
        ) from None


@dataclasses.dataclass(frozen=True, eq=False)
class Prefetch(OneInput):
    """The same elements; at the end of a pipeline, read ahead by a thread.

    Further up it changes nothing: what stands at the end reads ahead for the whole pipeline.
    """

    buffer_size: int
    label: ClassVar[str] = "PrefetchDataset"
    keeps_elements: ClassVar[bool] = True

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

    def open(self, run: Run) -> Reader:
        return self.input.open(run)

    def details(self) -> str:
        return f"auto_shard_policy {self.options.experimental_distribute.auto_shard_policy.name}"
