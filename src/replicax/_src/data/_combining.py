"""Elements of several data sets, or with their numbers: concatenate, zip, enumerate."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import numpy as np

from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import override
from replicax._src.data._blocks import EMPTY, Block, Counted, Zipped
from replicax._src.data._elements import Structure
from replicax._src.data._node import (
    INFINITE,
    UNKNOWN,
    Node,
    NoElements,
    OneInput,
    Reader,
    ReaderOfOne,
    merged_specs,
    take_all,
)
from replicax._src.data._run import Run


@final
class Concatenate(Node):
    """The elements of one data set, then those of the next."""

    parts: tuple[Node, ...]
    merged: Any = None  # the spec of all parts: not to merge them again for each that is added
    label: ClassVar[str] = "ConcatenateDataset"

    @override
    def with_inputs(self, inputs: Sequence[Node]) -> Concatenate:
        return Concatenate(tuple(inputs))  # which may look different

    @override
    def open(self, run: Run) -> Reader:
        return ConcatenateReader([lambda part=part: part.open(run) for part in self.parts])

    @override
    def _cardinality(self) -> int:
        sizes = [part.cardinality for part in self.parts]
        if INFINITE in sizes:
            return INFINITE
        return UNKNOWN if UNKNOWN in sizes else sum(sizes)

    @property
    @override
    def spec_is_known(self) -> bool:
        return self.merged is not None or super().spec_is_known

    @override
    def _spec(self) -> Any:
        if self.merged is not None:
            return self.merged
        known: list[Any] = []
        for part in self.parts:
            with contextlib.suppress(NoElements):
                known.append(part.spec)
        return functools.reduce(merged_specs, known) if known else self.parts[0].spec


@final
class ConcatenateReader(Reader):
    """One walk after the other."""

    def __init__(self, openers: list[Callable[[], Reader]]):
        self._waiting = list(reversed(openers))
        self._reader: Reader | None = None

    @override
    def take(self, count: int) -> Block:
        while self._open():
            try:
                block = self._reader.take(count)  # type: ignore[union-attr]
            except Exception:
                self._waiting.clear()  # the rest of this one is not to be left out silently
                raise
            if len(block):
                return block
            self.close()
        return EMPTY

    @override
    def skip(self, count: int) -> int:
        skipped = 0
        while skipped < count and self._open():
            now = self._reader.skip(count - skipped)  # type: ignore[union-attr]
            skipped += now
            if skipped < count:
                self.close()
        return skipped

    def _open(self) -> bool:
        if self._reader is None and self._waiting:
            self._reader = self._waiting.pop()()
        return self._reader is not None

    @override
    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


@final
class Zip(Node):
    """The elements of several data sets side by side, as many as the shortest has."""

    parts: tuple[Node, ...]
    structure: Structure
    label: ClassVar[str] = "ZipDataset"

    @override
    def open(self, run: Run) -> Reader:
        return ZipReader([part.open(run) for part in self.parts], self.structure)

    @override
    def _cardinality(self) -> int:
        sizes = [part.cardinality for part in self.parts]
        finite = [size for size in sizes if size != INFINITE]
        if not finite:
            return INFINITE
        return UNKNOWN if UNKNOWN in finite else min(finite)

    @override
    def _spec(self) -> Any:
        return self.structure.build([part.spec for part in self.parts])


@final
class ZipReader(Reader):
    """Several walks in step."""

    def __init__(self, readers: list[Reader], structure: Structure):
        self._readers = readers
        self._structure = structure
        self._ended = False

    @override
    def take(self, count: int) -> Block:
        blocks: list[Block] = []
        for reader in self._readers:
            if self._ended:
                return EMPTY
            block = take_all(reader, count)
            count = min(count, len(block))
            self._ended = count == 0
            blocks.append(block)
        if self._ended:
            return EMPTY
        same = [block if len(block) == count else block.select(slice(count)) for block in blocks]
        return Zipped(same, self._structure)

    @override
    def skip(self, count: int) -> int:
        return min(reader.skip(count) for reader in self._readers)

    @override
    def close(self) -> None:
        for reader in self._readers:
            reader.close()


@final
class Enumerate(OneInput):
    """Each element with its number."""

    start: int
    label: ClassVar[str] = "EnumerateDataset"

    @override
    def open(self, run: Run) -> Reader:
        return EnumerateReader(self.input.open(run), self.start)

    @override
    def _spec(self) -> Any:
        return (TensorSpec.on_host((), np.int64), self.input.spec)

    @override
    def details(self) -> str:
        return f"from {self.start}" if self.start else ""


@final
class EnumerateReader(ReaderOfOne):
    """A walk that counts."""

    _pair = Structure((0, 0))

    def __init__(self, reader: Reader, start: int):
        super().__init__(reader)
        self._next = start

    @override
    def take(self, count: int) -> Block:
        block = self._reader.take(count)
        numbers = range(self._next, self._next + len(block))
        self._next = numbers.stop
        return Zipped([Counted(np.dtype(np.int64), numbers), block], self._pair)

    @override
    def skip(self, count: int) -> int:
        skipped = self._reader.skip(count)
        self._next += skipped
        return skipped
