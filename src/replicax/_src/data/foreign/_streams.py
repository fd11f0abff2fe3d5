"""Streams: iterables that cannot be read from the middle, and iterators, which are read once."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, final

from replicax._src._typing import override
from replicax._src.data._blocks import Block
from replicax._src.data._elements import as_element, own
from replicax._src.data._indexed import of_any_length
from replicax._src.data._node import (
    UNKNOWN,
    Pulled,
    Reader,
    Slices,
    merged_specs,
    observed_spec,
    spec_of,
)
from replicax._src.data._run import Run
from replicax._src.data._sources import PythonIterator


class Stream(PythonIterator):
    """The elements of an iterable that cannot be read from the middle."""

    # Starts without the first elements, where the library can leave them out faster.
    start_at: Callable[[int], Iterator[Any]] | None = None
    one_size: bool = False  # whether all batches are known to have as many rows
    seen: list[Any] = dataclasses.field(default_factory=list)  # the specs of the first elements

    @property
    @override
    def label(self) -> str:
        return self.source

    @override
    def open(self, run: Run) -> Reader:
        return StreamReader(self, run)

    def blocks(self, run: Run, start: int = 0) -> Generator[Block]:
        """Returns the blocks of one walk, without the first elements."""
        if start == 0 or self.start_at is None:
            return self._blocks(run)
        start_at = self.start_at
        return dataclasses.replace(self, make=lambda: start_at(start))._blocks(run)

    @override
    def _checked(self, value: object, index: int) -> Any:
        element = super()._checked(value, index)
        # To open another walk only to look could disturb this one: some loaders allow one.
        if self.signature is None and len(self.seen) < 2:
            self.seen.append(spec_of(element))
        return element

    @override
    def _spec(self) -> Any:
        if self.signature is not None:
            return self.signature
        spec = observed_spec(self) if not self.seen else self.seen[0]
        for other in self.seen[1:]:
            spec = merged_specs(spec, other) or spec
        return spec if self.one_size else of_any_length(spec)

    @override
    def details(self) -> str:
        return "from the start"


@final
class StreamReader(Pulled):
    """A walk over a stream."""

    def __init__(self, node: Stream, run: Run):
        super().__init__(node.blocks(run))
        self._node = node
        self._run = run
        self._fresh = True

    @override
    def take(self, count: int) -> Block:
        self._fresh = False
        return super().take(count)

    @override
    def skip(self, count: int) -> int:
        if count and self._fresh and self._node.start_at is not None:
            blocks = self._node.blocks(self._run, count)
            first = next(blocks, None)
            if first is not None:
                self._fresh, self._blocks, self._rest = False, blocks, Slices(first)
                return count
        return super().skip(count)  # also to count them, where there are fewer


@final
class Once:
    """An iterator, which can be read once.

    Its first two elements are kept, so that they can be read again, and so is what was only looked
    at.
    """

    _KEPT = 2
    # Two data sets may be made of one iterator, and must not take elements from each other.
    _made: weakref.WeakValueDictionary[int, Once] = weakref.WeakValueDictionary()

    @classmethod
    def of(cls, iterator: Iterator[Any]) -> Once:
        once = cls._made.get(id(iterator))
        if once is None:
            once = cls._made[id(iterator)] = cls(iterator)
        return once

    def __init__(self, iterator: Iterator[Any]):
        self._iterator = iterator
        self._first: list[Any] = []
        self._failure: Exception | None = None
        self._ended = False
        self._reader: object = None  # the walk that went past the first elements

    def __call__(self) -> Iterator[Any]:
        self._claim(None)
        return self._walk(self._KEPT)

    def preview(self) -> Iterator[Any]:
        """Returns a walk that takes nothing away, however far it goes."""
        self._claim(None)
        return self._walk(sys.maxsize)

    def _claim(self, reader: object) -> None:
        if self._reader is not None and self._reader is not reader:
            raise RuntimeError(
                "This data set was made of an iterator, which was read already. To read the data "
                "more than once, pass something that can start again: "
                "rx.data.Dataset.from_generator(function_that_returns_an_iterator)."
            )
        self._reader = reader

    def _walk(self, kept: int) -> Generator[Any]:
        me = object()
        try:
            for number in itertools.count():
                if number < len(self._first):
                    yield self._first[number]
                    continue
                self._claim(None if number < kept else me)
                if number >= kept:
                    self._first.clear()
                if self._ended:
                    return
                value = self._next()
                if self._ended:
                    return
                if number < kept:
                    value = _kept(value)
                    self._first.append(value)
                yield value
        finally:
            if self._reader is me and hasattr(self._iterator, "close"):
                self._iterator.close()  # type: ignore[attr-defined]

    def _next(self) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._iterator)
        except StopIteration:
            self._ended = True
        except Exception as error:
            self._failure = error  # the second time it would seem to be the end
            raise


def _kept(value: object) -> Any:
    """Returns the same value, also when the iterator fills its buffer again."""
    try:
        return own(as_element(value))
    except (TypeError, ValueError):
        return value  # which is refused where it is looked at


def iterable(
    source: Iterable[Any], kind: str, convert: Callable[[Any], Any] | None = None, **known: Any
) -> Stream:
    def make() -> Iterator[Any]:
        return iter(source) if convert is None else map(convert, source)

    return Stream(make, source=kind, **{"size": size_of(source), **known})


def size_of(source: object) -> int:
    try:
        return len(source)  # type: ignore[arg-type]
    except Exception:  # torch raises what it likes for data sets without a length
        return UNKNOWN


def is_a(source: object, module: str, name: str) -> bool:
    """Returns whether `source` is of a class of this name, from a module of another package."""
    return any(
        kind.__name__ == name and f"{kind.__module__}.".startswith(module)
        for kind in type(source).__mro__
    )
