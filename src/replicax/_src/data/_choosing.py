"""Elements of several data sets, one of them chosen for each: choose and sample; random numbers."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import numpy as np

from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import DTypeLike, override
from replicax._src.data._arguments import as_count, as_weights
from replicax._src.data._blocks import EMPTY, Block, Columns
from replicax._src.data._composed_blocks import concatenate
from replicax._src.data._elements import DatasetBase, Structure
from replicax._src.data._node import (
    INFINITE,
    UNKNOWN,
    Node,
    NoElements,
    OneInput,
    Reader,
    ReaderOfOne,
    Seeded,
    merged_specs,
    take_all,
)
from replicax._src.data._ordering import Take
from replicax._src.data._run import Run, draw

T = TypeVar("T")
_ALONE = Structure(0)


@final
class Choose(Node, label="DirectedInterleaveDataset"):
    """The next element of one of `parts`, again and again: `selector` has the number of which."""

    selector: Node
    parts: tuple[Node, ...]
    stop_on_empty: bool
    operation: str

    @classmethod
    def of(
        cls, datasets: Sequence[DatasetBase], choice_dataset: DatasetBase, stop_on_empty: bool
    ) -> Choose:
        operation = "choose_from_datasets()"
        parts = _nodes_of(datasets, operation)
        if not isinstance(choice_dataset, DatasetBase):
            raise TypeError(f"{operation} takes choices as a data set; got {choice_dataset!r}.")
        choices = choice_dataset.element_spec
        if getattr(choices, "shape", None) != () or choices.dtype != np.int64:
            raise TypeError(
                f"{operation} takes choices that are single int64 numbers; these are {choices!r}."
            )
        return cls(choice_dataset._data_set_node, parts, stop_on_empty, operation)

    @override
    def open(self, run: Run) -> Reader:
        return ChooseReader(
            self.selector.open(run),
            [part.open(run) for part in self.parts],
            self.stop_on_empty,
            self.operation,
        )

    @override
    def _cardinality(self) -> int:
        # As TensorFlow has it, also where the choices end earlier.
        return INFINITE if any(p.cardinality == INFINITE for p in self.parts) else UNKNOWN

    @override
    def _spec(self) -> Any:
        return common_spec(self.parts, self.operation)

    @override
    def details(self) -> str:
        return "until one is empty" if self.stop_on_empty else ""


def sampled(
    datasets: Sequence[DatasetBase],
    weights: Sequence[float] | np.ndarray | DatasetBase | None,
    seed: int | None,
    draws_again: bool,
    stop_on_empty: bool,
) -> Node:
    """Returns the next element of a data set that is drawn by weights, again and again."""
    operation = "sample_from_datasets()"
    parts = _nodes_of(datasets, operation)
    if isinstance(weights, DatasetBase):
        numbers = RandomNumbers(seed, draws_again)
        selector = WeightedChoices(weights._data_set_node, numbers, len(parts))
        return Choose(selector, parts, stop_on_empty, operation)
    given = as_weights(weights, len(parts), operation)
    drawn = [(part, weight) for part, weight in zip(parts, given) if weight > 0]
    if len(drawn) <= 1:
        return drawn[0][0] if drawn else Take(parts[0], 0)
    choices = RandomChoices(seed, draws_again, tuple(weight for _, weight in drawn))
    return Choose(choices, tuple(part for part, _ in drawn), stop_on_empty, operation)


def _nodes_of(datasets: Sequence[DatasetBase], operation: str) -> tuple[Node, ...]:
    """Returns the nodes of data sets that look alike."""
    for each in datasets:
        if not isinstance(each, DatasetBase):
            raise TypeError(f"{operation} takes a list of data sets; it has {each!r}.")
    if len(datasets) == 0:
        raise ValueError(f"{operation} takes at least one data set; the list is empty.")
    nodes = tuple(each._data_set_node for each in datasets)
    with contextlib.suppress(NoElements):
        common_spec(nodes, operation)
    return nodes


def common_spec(parts: Sequence[Node], operation: str) -> Any:
    """Returns the spec of the elements of several data sets.

    Raises:
      TypeError: their elements do not look alike.
      NoElements: none of them has elements, so that nothing is known.
    """
    merged: Any = None
    for part in parts:
        with contextlib.suppress(NoElements):
            spec = part.spec
            both = spec if merged is None else merged_specs(merged, spec)
            if both is None:
                raise TypeError(
                    f"{operation} takes data sets whose elements have the same structure and "
                    f"dtypes: the first are {merged!r}, others are {spec!r}."
                )
            merged = both
    return parts[0].spec if merged is None else merged


def _skip(reader: Reader, count: int) -> int:
    return reader.skip(count)


@final
class ChooseReader(Reader):
    """One walk over each of several data sets, in the order that another walk says."""

    def __init__(
        self, selector: Reader, readers: list[Reader], stop_on_empty: bool, operation: str
    ):
        self._selector = selector
        self._readers = readers
        self._stop_on_empty = stop_on_empty
        self._operation = operation
        self._left = set(range(len(readers)))  # those that have not ended
        self._ended = False

    @override
    def take(self, count: int) -> Block:
        while len(choices := self._choices(count)):
            blocks, order = self._advance(choices, take_all, len)
            if len(order):
                return concatenate(blocks).select(order)
        return EMPTY

    @override
    def skip(self, count: int) -> int:
        skipped = 0
        while skipped < count and len(choices := self._choices(min(count - skipped, 65536))):
            _, order = self._advance(choices, _skip, int)
            skipped += len(order)
        return skipped

    def _choices(self, count: int) -> np.ndarray:
        """Returns which data sets come next; none at the end."""
        if self._ended or not self._left:
            return np.empty(0, np.int64)
        block = self._selector.take(count)
        if len(block) == 0:
            self._ended = True
            return np.empty(0, np.int64)
        choices = np.asarray(block.stacked())
        wrong = (choices < 0) | (choices >= len(self._readers))
        if wrong.any():
            self._ended = True
            raise ValueError(
                f"{self._operation} was told to take from the data set number "
                f"{int(choices[wrong][0])}, and there are {len(self._readers)}, counted from 0."
            )
        return choices

    def _advance(
        self,
        choices: np.ndarray,
        go: Callable[[Reader, int], T],
        length: Callable[[T], int],
    ) -> tuple[list[T], np.ndarray]:
        """Goes on in all walks as the choices say.

        Returns:
          What `go` gave for each of the walks, and the order of their elements, one after the
          other: an index for each choice that there was an element for.
        """
        gone: list[T] = []
        order = np.full(len(choices), -1, np.int64)
        end, before = len(choices), 0
        for which in np.unique(choices).tolist():
            (places,) = np.nonzero(choices == which)
            if which not in self._left:
                continue
            gone.append(go(self._readers[which], len(places)))
            found = length(gone[-1])
            order[places[:found]] = np.arange(before, before + found)
            before += found
            if found < len(places):
                self._left.discard(which)
                end = min(end, int(places[found]))
        if self._stop_on_empty and end < len(choices):
            self._ended = True
            order = order[:end]
        return gone, order[order >= 0]

    @override
    def close(self) -> None:
        for reader in (self._selector, *self._readers):
            reader.close()


# ------------------------------------------------------------------ random sources


class _Random(Seeded, Node):
    """A source of random numbers: the same in each iteration unless told otherwise."""

    seed: int | None
    rerandomize: bool
    drawn: int = dataclasses.field(default_factory=draw, kw_only=True)

    def of(self, run: Run) -> np.random.Generator:
        """Returns the generator of one walk."""
        return self.random(run, not self.rerandomize)

    @override
    def _cardinality(self) -> int:
        return INFINITE

    @override
    def _spec(self) -> Any:
        return TensorSpec.on_host((), np.int64)

    @override
    def details(self) -> str:
        seed = "" if self.seed is None else f"seed {self.seed}"
        return seed + (", others each time" if self.rerandomize else "")


@final
class RandomNumbers(_Random, label="RandomDataset"):
    """Integers from 0 to 2**32 - 1, without end."""

    @override
    def open(self, run: Run) -> Reader:
        bits = self.of(run).bit_generator
        return _Drawn(lambda count: (bits.random_raw(count) >> np.uint64(32)).astype(np.int64))


@final
class RandomChoices(_Random, label="RandomChoices"):
    """Numbers of data sets, each as often as its weight says, without end."""

    weights: tuple[float, ...]

    @override
    def open(self, run: Run) -> Reader:
        random, limits = (
            self.of(run),
            np.cumsum(self.weights) / sum(self.weights),
        )
        most = len(limits) - 1  # the last limit may be a little below 1

        def choose(count: int) -> np.ndarray:
            return np.minimum(np.searchsorted(limits, random.random(count), "right"), most)

        return _Drawn(choose)


@final
class _Drawn(Reader):
    """A walk over random numbers: how many are taken at a time makes no difference."""

    def __init__(self, draw_some: Callable[[int], np.ndarray]):
        self._draw = draw_some

    @override
    def take(self, count: int) -> Block:
        return Columns([self._draw(count)], _ALONE)


@final
class WeightedChoices(OneInput, label="RandomChoices"):
    """Numbers of data sets, by weights that change: an element of the input has those of one."""

    random: RandomNumbers
    count: int

    @override
    def open(self, run: Run) -> Reader:
        return _WeightedReader(self.input.open(run), self.random.of(run), self.count)

    @override
    def _spec(self) -> Any:
        return TensorSpec.on_host((), np.int64)


@final
class _WeightedReader(ReaderOfOne):
    """A walk over choices by weights that another walk has."""

    def __init__(self, reader: Reader, random: np.random.Generator, count: int):
        super().__init__(reader)
        self._random = random
        self._count = count

    @override
    def take(self, count: int) -> Block:
        block = self._reader.take(count)
        if len(block) == 0:
            return EMPTY
        weights = np.asarray(block.stacked(), np.float64)
        if weights.ndim != 2 or weights.shape[1] != self._count:
            raise ValueError(
                "sample_from_datasets() takes weights as a data set whose elements have a weight "
                f"for each of the {self._count} data sets; got the shape {weights.shape[1:]}."
            )
        limits = np.cumsum(np.maximum(weights, 0), axis=1)
        wanted = self._random.random(len(block))[:, None] * limits[:, -1:]
        return Columns([np.minimum((limits <= wanted).sum(axis=1), self._count - 1)], _ALONE)

    @override
    def skip(self, count: int) -> int:
        skipped = self._reader.skip(count)
        self._random.random(skipped)
        return skipped


@final
class CountUp(Node, label="CounterDataset"):
    """Numbers without end: `start`, `start + step`, and so on."""

    start: Any
    step: Any
    dtype: np.dtype

    @classmethod
    def of(cls, start: float, step: float, dtype: DTypeLike) -> CountUp:
        kind = np.dtype(dtype)
        for value, what in ((start, "start"), (step, "step")):
            if kind.kind in "iu":
                as_count(value, f"counter({what}=...)")
            elif kind.kind != "f":
                raise TypeError(f"counter() yields integers or floats; got dtype={dtype!r}.")
        return cls(start, step, kind)

    @override
    def open(self, run: Run) -> Reader:
        return _CountReader(self)

    @override
    def _cardinality(self) -> int:
        return INFINITE

    @override
    def _spec(self) -> Any:
        return TensorSpec.on_host((), self.dtype)

    @override
    def details(self) -> str:
        return f"from {self.start} by {self.step}"


@final
class _CountReader(Reader):
    """A walk over numbers without end."""

    def __init__(self, node: CountUp):
        self._node = node
        self._position = 0

    @override
    def take(self, count: int) -> Block:
        node = self._node
        places = np.arange(self._position, self._position + count)
        self._position += count
        exact = places if node.dtype.kind in "iu" else places.astype(np.float64)
        numbers = np.asarray(exact * node.step + node.start)
        return Columns([numbers.astype(node.dtype)], _ALONE)

    @override
    def skip(self, count: int) -> int:
        self._position += count
        return count
