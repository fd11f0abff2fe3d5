"""Iterating over a data set on the host, and taking the position along."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, Self, final

from replicax._src._errors import OutOfRangeError
from replicax._src._typing import override
from replicax._src.context import world
from replicax._src.data._ahead import Failed, ReadAhead
from replicax._src.data._caching import Prefetch, WithOptions, seeds_of_files
from replicax._src.data._combining import Interleave
from replicax._src.data._elements import Element, ElementSpec, as_element, plain
from replicax._src.data._node import Node, Reader, chunk_of, drawing_nodes, spec_of, walk
from replicax._src.data._parsed_records import yields_records
from replicax._src.data._run import Run
from replicax._src.data._whence import Whence, rows_of, whence
from replicax._src.functions import NotOneProgram


def refuse_in_trace() -> None:
    """Raises `NotOneProgram` while a function is compiled: reading is Python's work."""
    world().refuse_in_program(lambda: NotOneProgram("it reads from a data set"))


class Feed(Protocol):
    """Where an iterator gets its values."""

    def get(self) -> Any:
        """Returns the next value, or `Failed` in its place; raises StopIteration at the end."""
        ...

    def close(self) -> None: ...


_live: weakref.WeakKeyDictionary[PositionedIterator, None] = weakref.WeakKeyDictionary()

delivery_watchers: list[Callable[[PositionedIterator, Any], None]] = []
"""They are told of each element that an iterator hands to the user: who records a program."""


def live_iterators() -> list[PositionedIterator]:
    """Returns the iterators of the program, in the order in which they were made."""
    return list(_live)


def positions_now() -> weakref.WeakKeyDictionary[PositionedIterator, int]:
    """Returns where each iterator of the program is."""
    return weakref.WeakKeyDictionary({each: each.position for each in tuple(_live)})


class PositionedIterator:
    """An iterator that knows how much of its data the user has received.

    That number, with the seeds, is its whole state: to continue is to skip, which every reader
    does without computing what it skips.
    """

    def __init__(self, nodes: Sequence[Node], run: Run, on_resume: Callable[[Run], None]):
        self._nodes = nodes
        self._run = run.with_defaults(seeds_of_files(nodes))
        self._on_resume = on_resume
        self._position = 0
        self.started_at = 0  # where `set_state` put it
        self._feed: Feed | None = None
        self._lock = threading.RLock()  # threads may share an iterator
        _live[self] = None

    def _start(self) -> Feed:
        """Starts a walk at `self._position`."""
        raise NotImplementedError

    @property
    def run(self) -> Run:
        """The walk that it is on; another one after `set_state`."""
        return self._run

    @functools.cached_property
    def gives_same_again(self) -> bool:
        """Whether its elements are those of files and arrays, and not of a Python iterator."""
        nodes = (each for node in self._nodes for each in walk(node))
        return not any(each.pulls_user_code and not each.inputs for each in nodes)

    def tied_to(self) -> dict[str, Any]:
        """Returns what else must be the same where a state is continued, by name."""
        return {}

    @property
    def element_spec(self) -> Any:
        """What the elements look like."""
        return self._nodes[0].spec

    def __iter__(self) -> Self:
        return self

    def _check_context(self) -> None:
        """Raises an error where no element can be taken: while a function is traced."""
        refuse_in_trace()

    def __next__(self) -> Any:
        self._check_context()
        with self._lock:
            try:
                if self._feed is None:
                    self._feed = self._start()
                value = self._feed.get()
                self._position += 1
                for watcher in delivery_watchers:
                    watcher(self, value)
            except Exception:
                raise
            except BaseException:  # Ctrl-C came somewhere: start again, from what was received
                feed, self._feed = self._feed, None
                if isinstance(feed, ReadAhead):
                    feed.close(wait=False)
                elif feed is not None:
                    feed.close()
                raise
        if isinstance(value, Failed):  # it is passed; what could not be read, above, is not
            raise value.error
        return value

    def get_next(self) -> Any:
        """Returns the next element; raises `rx.errors.OutOfRangeError` at the end."""
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(
                f"The data set has no more elements: all {self._position} were read."
            ) from None

    def get_next_as_optional(self) -> Optional:
        """Returns the next element, or an `rx.experimental.Optional` without a value at the end."""
        try:
            return Optional(next(self), lambda: self.element_spec)
        except StopIteration:
            return Optional(Optional._NOTHING, lambda: self.element_spec)

    @property
    def position(self) -> int:
        """How many elements the user has received."""
        return self._position

    @contextlib.contextmanager
    def as_of(self, position: int) -> Iterator[None]:
        """Lets `get_state` tell of an earlier position inside the block.

        For a checkpoint that is saved between taking a batch and using it.
        """
        with self._lock:
            now, self._position = self._position, position
            try:
                yield
            finally:
                self._position = now

    def whence(
        self, position: int, row: int, local: int, workers: int = 1, worker: int = 0
    ) -> Whence:
        """Returns where a row of an element came from, which is read again for that.

        Args:
          position: of the element; the first one is 1.
          row: among those of the replicas of a worker.
          local: how many replicas it has.
          workers: how many there are.
          worker: which of them it is.
        """
        sink = self._nodes[0]
        reader = sink.open(self._run.restarted())
        try:
            reader.skip(position - 1)
            rows = rows_of(reader.take(1))
        finally:
            reader.close()
        return Whence("", []) if rows is None else whence(rows, row, sink)

    def get_state(self) -> dict[str, Any]:
        """Returns where the user is: what was received, not what was read ahead.

        Small, and made of numbers and texts only: it can be written as JSON.
        """
        return state_of(self._nodes, self._run, self._position) | self.tied_to()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state of `get_state`: the same elements follow, in the same order.

        Also in another process. Later iterations over the data set are those that would have
        followed.
        """
        run, position = run_from(self._nodes, state)
        mine = self.tied_to()
        theirs = {name: state[name] for name in ("split", "replicas", "workers") if name in state}
        if mine != theirs:
            raise ValueError(
                f"The state cannot be continued here: it is of a data set with {theirs}, and this "
                f"one has {mine}. Only global batches of which every worker takes its part "
                "(AutoShardPolicy.DATA) can be continued by another number of replicas or workers, "
                "and batches that are split by one rule not by the other."
            )
        self.close()
        self._run, self._position = run, position
        self.started_at = position
        self._on_resume(run)

    def __reduce__(self) -> Any:
        raise TypeError(
            "An iterator over a data set cannot be pickled. Take its get_state() along, and give "
            "it to set_state() of an iterator over the same data set."
        )

    def close(self) -> None:
        """Closes files and generators, and ends the thread that reads ahead."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()


class DatasetIterator(PositionedIterator):
    """What `iter(dataset)` gives: elements as NumPy arrays.

    `get_state` and `set_state` take the position along, into another process too.
    """

    @override
    def _start(self) -> Feed:
        sink = self._nodes[0]
        ahead = 0
        while isinstance(sink, Prefetch | WithOptions):
            if isinstance(sink, Prefetch) and not ahead:
                ahead = sink.buffer_size if sink.buffer_size >= 0 else 2
            sink = sink.input
        reader = sink.open(self._run.restarted())
        feed = _Feed(reader, chunk_of(sink), self._position, _may_have_records(sink))
        return ReadAhead(feed.get, ahead, feed.close) if ahead else feed


@final
class _Feed:
    """Elements from blocks."""

    def __init__(self, reader: Reader, chunk: int, position: int, has_records: bool):
        self._reader = reader
        self._has_records = has_records  # whose batches are no plain arrays, for our own use
        self._chunk = chunk
        self._position = position  # to start at
        self._rows: list[Any] = []

    def get(self) -> Any:
        if not self._rows:
            if self._position:
                position, self._position = self._position, 0
                self._reader.skip(position)
            block = self._reader.take(self._chunk)
            if len(block) == 0:
                raise StopIteration
            try:
                self._rows = block.rows()
            except Exception as error:
                return Failed(error)
            self._rows.reverse()
        return plain(self._rows.pop()) if self._has_records else self._rows.pop()

    def close(self) -> None:
        self._reader.close()


def _may_have_records(node: Node) -> bool:
    """Returns whether records of files are read, also in data sets that are made on the way."""
    return any(isinstance(each, Interleave) or yields_records(each) for each in walk(node))


class Optional:
    """A value, or nothing: what `iterator.get_next_as_optional()` returns.

    >>> import replicax as rx
    >>> optional = rx.experimental.Optional.from_value(42)
    >>> optional.has_value(), optional.get_value()
    (True, 42)
    >>> rx.experimental.Optional.empty(None).has_value()
    False
    """

    _NOTHING = object()

    def __init__(self, value: Element, spec: Callable[[], Any]):
        self._value = value
        self._spec = spec  # asked when somebody wants it: it may have to be read

    @classmethod
    def from_value(cls, value: Element) -> Optional:
        """Returns an Optional that has this value."""
        return cls(value, lambda: spec_of(as_element(value)))

    @classmethod
    def empty(cls, element_spec: ElementSpec) -> Optional:
        """Returns an Optional without a value; `element_spec` is what that would look like."""
        return cls(cls._NOTHING, lambda: element_spec)

    def has_value(self, name: str | None = None) -> bool:
        """Returns whether there is a value."""
        return self._value is not self._NOTHING

    def get_value(self, name: str | None = None) -> Any:
        """Returns the value; raises a `ValueError` if there is none."""
        if not self.has_value():
            raise ValueError("The Optional has no value: ask has_value() first.")
        return self._value

    @property
    def element_spec(self) -> Any:
        """What the value looks like."""
        return self._spec()

    def __repr__(self) -> str:
        return f"Optional({self._value!r})" if self.has_value() else "Optional.empty"


# ------------------------------------------------------------------ what is saved of an iterator


VERSION = 1


def fingerprint(nodes: Sequence[Node]) -> str:
    """Returns a short text that differs for pipelines with different elements, as far as it shows.

    What functions do does not show, nor what is in files and arrays.
    """
    parts: list[str] = []
    for node in nodes:
        for each in walk(node):
            if each.passes_on:
                continue
            parts += [each.label, each.settings()]
            if not each.inputs:
                parts.append(str(each.cardinality))
    return hashlib.blake2s(" ".join(parts).encode(), digest_size=4).hexdigest()


def state_of(nodes: Sequence[Node], run: Run, position: int) -> dict[str, Any]:
    """Returns what an iterator over these pipelines has to remember."""
    state: dict[str, Any] = {
        "version": VERSION,
        "dataset": fingerprint(nodes),
        "position": position,
        "iteration": run.iteration,
    }
    seeds = [run.seed_of(each.drawn) for node in nodes for each in drawing_nodes(node)]
    return {**state, "seeds": seeds} if seeds else state


def run_from(nodes: Sequence[Node], state: object) -> tuple[Run, int]:
    """Returns the run and the position that a state describes."""
    if not isinstance(state, dict) or "version" not in state:
        raise TypeError(f"set_state takes what get_state returned, a dict; got {state!r}.")
    if state["version"] != VERSION:
        raise ValueError(
            f"The state has version {state['version']!r}, and this replicax reads version "
            f"{VERSION}. Use the replicax that wrote it."
        )
    drawing = [each for node in nodes for each in drawing_nodes(node)]
    seeds = state.get("seeds", [])
    if state.get("dataset") != fingerprint(nodes) or len(seeds) != len(drawing):
        raise ValueError(
            "The state is of another data set: its operations, batch sizes or number of elements "
            "are not those of this one. A state continues the same pipeline over the same data."
        )
    drawn = {each.drawn: int(seed) for each, seed in zip(drawing, seeds)}
    return Run(int(state["iteration"]), drawn), int(state["position"])
