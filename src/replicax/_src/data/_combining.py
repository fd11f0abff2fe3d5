"""Elements of several data sets, or with their numbers: concatenate, zip, enumerate."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any, final

import numpy as np

from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import PyTree, override
from replicax._src.data._blocks import EMPTY, Block, Broken
from replicax._src.data._composed_blocks import Zipped, concatenate
from replicax._src.data._elements import DatasetBase, Element, Structure
from replicax._src.data._mapping import call, name_of, seen_spec
from replicax._src.data._node import (
    INFINITE,
    UNKNOWN,
    Generated,
    Node,
    NoElements,
    OneInput,
    Reader,
    ReaderOfOne,
    Slices,
    chunk_of,
    drawing_nodes,
    first_elements,
    merged_specs,
    take_all,
)
from replicax._src.data._ordering import EnumerateReader
from replicax._src.data._run import Run, derived, draw


@final
class Concatenate(Node):
    """The elements of one data set, then those of the next."""

    parts: tuple[Node, ...]
    merged: Any = None  # the spec of all parts: not to merge them again for each that is added

    @classmethod
    def of(cls, first: Node, second: Node) -> Concatenate:
        merged = None
        with contextlib.suppress(NoElements):  # of nothing, nothing can be said
            merged = merged_specs(first.spec, second.spec)
            if merged is None:
                raise TypeError(
                    "concatenate() takes a data set with elements of the same structure and "
                    f"dtypes: these are {first.spec!r}, those are {second.spec!r}."
                )
        parts = first.parts if isinstance(first, Concatenate) else (first,)
        return cls((*parts, second), merged)

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

    @classmethod
    def of(cls, nest: PyTree) -> Zip:
        if isinstance(nest, list):
            raise TypeError(
                "Dataset.zip takes data sets, or a tuple or dict of them; got a list. Write "
                "zip(*datasets)."
            )
        structure = Structure(nest)
        parts = structure.leaves(nest)
        for part in parts:
            if not isinstance(part, DatasetBase):
                raise TypeError(f"Dataset.zip takes data sets; got {part!r}.")
        return cls(tuple(part._data_set_node for part in parts), structure)

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
class Interleave(Generated, runs_user_code=True, pulls_user_code=True):
    """The elements of the data sets that a function makes of each element, taking turns.

    With a `cycle_length` of 1, one after the other: `flat_map`.
    """

    fn: Callable[..., Any]
    cycle_length: int
    block_length: int
    operation: str
    spec_of_all: Callable[[], Any] | None = None  # where more is known than some elements show
    drawn: int = dataclasses.field(default_factory=draw)

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        slots: list[_Slot | None] = [None] * self.cycle_length
        opened, slot, taken = 0, 0, 0
        more = True
        try:
            while more or any(slots):
                if slot == taken == 0 and (woven := self._woven(slots, more)) is not None:
                    yield woven
                    continue
                current = slots[slot]
                if current is None and more:
                    block = reader.take(1)
                    more = len(block) > 0
                    if more:
                        opened += 1
                        try:
                            node = self.data_set_of(block.rows()[0])
                        except Exception as error:
                            yield Broken(error)
                            continue
                        inner = node.open(self._inner_run(run, node, opened - 1))
                        current = slots[slot] = _Slot(inner, chunk_of(node))
                if current is None:
                    taken = self.block_length
                else:
                    alone = self.cycle_length == 1
                    block = current.take(current.chunk if alone else self.block_length - taken)
                    taken += len(block)
                    if len(block):
                        yield block
                    else:
                        current.close()
                        slots[slot] = None
                        taken = self.block_length
                if taken >= self.block_length and (self.cycle_length > 1 or slots[0] is None):
                    slot, taken = (slot + 1) % self.cycle_length, 0
        finally:
            for each in slots:
                if each is not None:
                    each.close()

    def _woven(self, slots: Sequence[_Slot | None], more: bool) -> Block | None:
        """Returns many turns of all slots at once; None where a slot has too few elements for that.

        Args:
          slots: some may be empty, if there is nothing to fill them with.
          more: whether there is.
        """
        open_slots = [each for each in slots if each is not None]
        if len(slots) == 1 or not open_slots or (more and len(open_slots) < len(slots)):
            return None
        if any(each.chunk == 1 for each in open_slots):
            return None
        wanted = max(_AT_ONCE // (len(open_slots) * self.block_length), 1) * self.block_length
        turns = min(each.waiting(wanted) // self.block_length for each in open_slots)
        if turns < 2:
            return None
        count = turns * self.block_length
        blocks = [take_all(each, count).detached() for each in open_slots]
        order = np.arange(len(blocks) * count).reshape(len(blocks), turns, self.block_length)
        return concatenate(blocks).select(order.transpose(1, 0, 2).ravel())

    @property
    @override
    def draws(self) -> bool:
        return True

    def _inner_run(self, run: Run, node: Node, number: int) -> Run:
        """Returns the run of one element's data set: its shuffles have one seed in all runs."""
        seed = run.seed_of(self.drawn)
        seeds = {
            each.drawn: derived(seed, number, index)
            for index, each in enumerate(drawing_nodes(node))
        }
        return run.in_epoch(number).with_inner_seeds(seeds).restarted()

    def data_set_of(self, element: Element) -> Node:
        made = call(self.fn, element, self.operation)
        if not isinstance(made, DatasetBase):
            raise TypeError(
                f"{name_of(self.fn)}, the function of {self.operation}, must return a data set for "
                f"each element (rx.data.Dataset); got {made!r}."
            )
        return made._data_set_node

    @functools.cached_property
    def first_made(self) -> Node | None:
        """The data set of the first element, to see what they are like."""
        elements = first_elements(self.input, 1)
        return self.data_set_of(elements[0]) if elements else None

    @override
    def _spec(self) -> Any:
        if self.spec_of_all is not None:
            return self.spec_of_all()
        return seen_spec(self.input, lambda element: self.data_set_of(element).spec, self)

    @override
    def settings(self) -> str:
        return f"{self.cycle_length} {self.block_length}"

    @override
    def details(self) -> str:
        cycle = f", {self.cycle_length} at a time" if self.cycle_length > 1 else ""
        return name_of(self.fn) + cycle


_AT_ONCE = 512  # elements


@final
class _Slot(ReaderOfOne):
    """The walk of one data set, of which some elements may wait."""

    def __init__(self, reader: Reader, chunk: int):
        super().__init__(reader)
        self._waiting = Slices(EMPTY)
        self.chunk = chunk

    def waiting(self, count: int) -> int:
        """Returns how many elements, up to `count`, there are; they are read."""
        if self._waiting.left < count:
            rest = self._waiting.take(count)
            more = take_all(self._reader, count - len(rest))
            self._waiting = Slices(concatenate([rest, more]))
        return min(self._waiting.left, count)

    @override
    def take(self, count: int) -> Block:
        block = self._waiting.take(count)
        return block if len(block) else self._reader.take(count)
