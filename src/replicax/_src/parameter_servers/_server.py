"""A parameter server: an actor that holds arrays, and updates them in the order of its calls."""

from __future__ import annotations

import collections
import functools
import os
import pickle
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import jax
import numpy as np

from replicax._src.parameter_servers._messages import (
    Assignment,
    Exchange,
    Key,
    LostError,
    OptimizerSpec,
    Pulled,
    Push,
    RowChange,
)
from replicax._src.parameter_servers._packing import unpacked
from replicax._src.parameter_servers._server_optimizer import ServerOptimizer
from replicax._src.parameter_servers._server_tasks import Tasks
from replicax._src.variable import Change, Scatter

_REMEMBERED = 100_000  # updates, that they may not be carried out twice


@final
class Held:
    """An array on a server, and how often it was changed."""

    __slots__ = ("_array", "_is_own", "version")

    def __init__(self, array: np.ndarray, version: int):
        self._array = array
        self._is_own = False  # somebody else may hold the array, so that it must not change
        self.version = version

    @property
    def array(self) -> np.ndarray:
        """The value."""
        return self._array

    @array.setter
    def array(self, value: np.ndarray) -> None:
        self._array = value
        self._is_own = False
        self.version += 1

    def shared(self) -> np.ndarray:
        """Returns the value, which stays as it is: a later change makes a copy."""
        self._is_own = False
        return self._array

    def writable(self) -> np.ndarray:
        """Returns the value, to change some of it in place."""
        if not self._is_own:
            self._array = np.array(self._array)
            self._is_own = True
        self.version += 1
        return self._array


@final
class ParameterServer:
    """Runs in a process of its own, one call after the other."""

    def __init__(self, index: int) -> None:
        jax.config.update("jax_platforms", "cpu")
        # Its programs are small: another thread costs more than it saves.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        os.environ.setdefault("KERAS_BACKEND", "jax")  # for what may be sent here
        self._index = index
        self._held: dict[Key, Held] = {}
        self._optimizers: dict[str, ServerOptimizer] = {}
        self._tasks = Tasks()
        self._updates = 0
        self._first_version = 0
        self._done: collections.OrderedDict[tuple[str, int], int] = collections.OrderedDict()

    def ready(self) -> int:
        """Returns the number of the process."""
        return os.getpid()

    def create(self, arrays: dict[Key, np.ndarray]) -> None:
        """Takes new arrays."""
        for key, array in arrays.items():
            # Versions of an earlier life are never given again.
            self._held[key] = Held(np.asarray(array), self._next_version())

    def _next_version(self) -> int:
        if not self._first_version:
            self._first_version = uuid.uuid4().int >> 66  # below 2**62
        self._first_version += 1
        return self._first_version

    def delete(self, keys: Iterable[Key]) -> None:
        """Drops arrays that nobody has any more."""
        for key in keys:
            self._held.pop(key, None)

    def build(self, name: str, spec: bytes) -> None:
        """Gets to know an optimizer, whose state is here already."""
        found: OptimizerSpec = unpacked(spec)
        self._optimizers[name] = ServerOptimizer(found)

    def pull(self, wanted: dict[Key, int], rows: Sequence[tuple[Key, np.ndarray]] = ()) -> Pulled:
        """Returns arrays that have another version than the given one, and rows of arrays."""
        self._require([*wanted, *(key for key, _ in rows)])
        values = {
            key: (held.version, held.array)
            for key, known in wanted.items()
            if (held := self._held[key]).version != known
        }
        found = [np.take(self._held[key].array, ids, axis=0) for key, ids in rows]
        return Pulled(self._updates, values, found)

    def push(self, push: Push) -> int:
        """Carries out a push. Returns by how many updates its values were old."""
        if push.token is not None and push.token in self._done:
            return self._done[push.token]
        keys = [change.key for change in push.changes if _needs_value(change)]
        for update in push.updates:
            known = self._optimizers.get(update.optimizer)
            if known is None:
                self._require(each.key for each in update.gradients)
                raise LostError(self._index, [])  # it will be told of it
            keys += known.keys([each.key for each in update.gradients])
        self._require(keys)
        for change in push.changes:
            self._change(change)
        for update in push.updates:
            self._optimizers[update.optimizer].apply(update.gradients, self._held)
        staleness = 0 if push.read_at is None else self._updates - push.read_at
        self._updates += any(update.gradients for update in push.updates)
        if push.token is not None:
            self._done[push.token] = staleness
            if len(self._done) > _REMEMBERED:
                self._done.popitem(last=False)
        return staleness

    def exchange(self, data: bytes) -> bytes:
        """Carries out pushes, then reads. Both as bytes, which Ray passes on as they are."""
        given: Exchange = pickle.loads(data)
        ages = [self.push(push) for push in given.pushes]
        answer = (ages, self.pull(given.wanted, given.rows))
        return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)

    # ------------------------------------------------------------------ files

    def call(self, question: Callable[[], Any]) -> Any:
        """Calls a function here."""
        return question()

    def start_task(
        self, token: str, work: Callable[..., Any], names: dict[str, Key] | None = None
    ) -> None:
        """Lets a function run, with values as they are now, by name."""
        if names is None:
            self._tasks.start(token, work)
            return
        self._require(names.values())
        arrays = {name: self._held[key].shared() for name, key in names.items()}
        self._tasks.start(token, functools.partial(work, arrays))

    def task_outcome(self, token: str) -> tuple[Any, Exception | None] | None:
        """Returns the result and the error of a function; None while it runs.

        New values of arrays are not sent: they stay here.
        """
        found = self._outcome_of(token)
        if found is None:
            return None
        value, error = found
        is_read = isinstance(value, dict) and any(isinstance(key, int) for key in value)
        return (None if is_read else value), error

    def adopt_task(self, token: str) -> None:
        """Makes what a function has read the values of arrays."""
        found = self._outcome_of(token)
        assert found is not None
        for key, array in found[0].items():
            self._change(Assignment(key, Change.ASSIGN, array))

    def end_task(self, token: str) -> None:
        """Forgets a function."""
        self._tasks.end(token)

    def _outcome_of(self, token: str) -> tuple[Any, Exception | None] | None:
        try:
            return self._tasks.outcome(token)
        except KeyError:
            raise LostError(self._index, []) from None

    # ------------------------------------------------------------------ changes

    def _change(self, change: Assignment | RowChange) -> None:
        if isinstance(change, RowChange):
            _change_rows(self._held[change.key].writable(), change)
        elif change.how is Change.ASSIGN and change.key not in self._held:
            self.create({change.key: change.value})
        else:
            held = self._held[change.key]
            held.array = _changed(change.how, held.array, change.value)

    def _require(self, keys: Iterable[Key]) -> None:
        missing = [key for key in keys if key not in self._held]
        if missing:
            raise LostError(self._index, missing)


def _changed(how: Change, old: np.ndarray, value: np.ndarray) -> np.ndarray:
    if how is Change.ASSIGN:
        return np.asarray(value)
    return np.asarray(old + value if how is Change.ADD else old - value, old.dtype)


def _needs_value(change: Assignment | RowChange) -> bool:
    return isinstance(change, RowChange) or change.how is not Change.ASSIGN


def _change_rows(array: np.ndarray, change: RowChange) -> None:
    rows, values = change.rows, change.values
    match change.how:
        case Scatter.ADD:
            np.add.at(array, rows, values)
        case Scatter.SUB:
            np.subtract.at(array, rows, values)
        case Scatter.UPDATE:
            array[rows] = values
        case Scatter.MIN:
            np.minimum.at(array, rows, values)
        case Scatter.MAX:
            np.maximum.at(array, rows, values)
        case Scatter.MUL:
            np.multiply.at(array, rows, values)
        case Scatter.DIV:
            factors = np.ones_like(array)
            np.multiply.at(factors, rows, values)
            array[...] = np.asarray(array / factors, array.dtype)
