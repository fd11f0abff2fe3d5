"""Data sets made of elements: flat_map and interleave."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, final

import numpy as np

from replicax._src._typing import override
from replicax._src.data._blocks import EMPTY, Block, Broken, concatenate
from replicax._src.data._elements import DatasetBase, Element
from replicax._src.data._mapping import call, name_of, seen_spec
from replicax._src.data._node import (
    UNKNOWN,
    Node,
    OneInput,
    Pulled,
    Reader,
    ReaderOfOne,
    Slices,
    chunk_of,
    drawing_nodes,
    first_elements,
    take_all,
)
from replicax._src.data._run import Run, derived, draw


@final
class Interleave(OneInput):
    """The elements of the data sets that a function makes of each element, taking turns.

    With a `cycle_length` of 1, one after the other: `flat_map`.
    """

    fn: Callable[..., Any]
    cycle_length: int
    block_length: int
    operation: str
    drawn: int = dataclasses.field(default_factory=draw)
    label: ClassVar[str] = "InterleaveDataset"
    runs_user_code: ClassVar[bool] = True
    pulls_user_code: ClassVar[bool] = True

    @override
    def open(self, run: Run) -> Reader:
        return Pulled(self._blocks(self.input.open(run), run))

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
            reader.close()
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
    def _cardinality(self) -> int:
        return UNKNOWN

    @override
    def _spec(self) -> Any:
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
