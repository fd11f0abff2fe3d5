"""A worker: an actor that runs functions, one after the other."""

from __future__ import annotations

import enum
import os
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._errors import OutOfRangeError
from replicax._src._typing import ArrayInput, override
from replicax._src.cluster import imported_ray
from replicax._src.context import world
from replicax._src.functions import BoundFunction, Function
from replicax._src.parameter_servers._embedding import Rows, unique_rows
from replicax._src.parameter_servers._messages import Key, LostError
from replicax._src.parameter_servers._packing import Place, packed, unpacked
from replicax._src.parameter_servers._servers import ServerGoneError, Servers
from replicax._src.parameter_servers._sharded import ShardedVariable
from replicax._src.parameter_servers._variable import ServerVariable, Spec
from replicax._src.parameter_servers._worker_optimizer import NeedsBuildError, WorkerOptimizer
from replicax._src.parameter_servers._worker_strategy import WorkerStrategy
from replicax._src.parameter_servers._worker_view import Habits, Wanted, WorkerView
from replicax._src.values import is_leaf
from replicax._src.variable import Variable

_KEPT = 1024  # functions; the coordinator sends others again
_LARGE = 1 << 15  # bytes of a result, from which on Ray's store keeps it


@final
class Call(NamedTuple):
    """What a worker is to run.

    Attributes:
      token: which call it is; the same when it is tried again.
      function: its number.
      code: the function; None if the worker has it.
      arguments: packed.
      optimizers: those that were built meanwhile, by number, packed.
    """

    token: str
    function: int
    code: bytes | None
    arguments: bytes
    optimizers: dict[int, bytes]


@final
class Ending(enum.Enum):
    """How a call ended."""

    DONE = "done"
    FAILED = "failed"
    NEEDS_CODE = "needs code"
    NEEDS_BUILD = "needs build"
    NEEDS_VALUES = "needs values"  # the process is another one than that which made them
    SERVER_LOST = "server lost"
    NOT_RUN = "not run"  # because one before it, in the same message, did not end well


@final
class Outcome(NamedTuple):
    """What a worker says of a call, beside its result.

    Attributes:
      ending: how it ended.
      detail: the result as bytes, or its place among the large ones; an exception and its text,
        what to build, or what was lost.
      staleness: of each update that it has made.
      seconds: that it took.
    """

    ending: Ending
    detail: Any = None
    staleness: tuple[int, ...] = ()
    seconds: float = 0.0


@final
class _NeedsValuesError(Exception):
    """This worker was to have made a value, before it was started again."""


@final
class _NotMade(NamedTuple):
    """In the place of a value whose function has failed.

    Attributes:
      code: the function.
    """

    code: bytes


@final
class Worker(Place):
    """Runs in a process of its own."""

    current: Worker | None = None

    def __init__(self, index: int, strategy_id: str, has_gpus: bool, timeout: float) -> None:
        super().__init__(strategy_id)
        if not has_gpus:
            jax.config.update("jax_platforms", "cpu")
            # What a program leaves is sent at once, so that there is nothing to do meanwhile.
            jax.config.update("jax_cpu_enable_async_dispatch", False)
        os.environ.setdefault("KERAS_BACKEND", "jax")  # for what may be sent here
        self.index = index
        strategy = WorkerStrategy(self)
        self.strategy = strategy
        self._view = WorkerView(strategy, Servers([], [], timeout))
        self._functions: dict[int, Callable[..., Any]] = {}
        self._habits: dict[int, Habits] = {}
        self._compiled: dict[int, _Compiled] = {}
        self._optimizers: dict[int, WorkerOptimizer] = {}
        self._values: dict[int, Any] = {}
        self._sharded: dict[Key, ShardedVariable] = {}
        self._rows: dict[tuple[int, tuple[int, ...], int], Rows] = {}
        self._looked_up: dict[int, int] = {}  # look-ups in this step, by table
        self._looked_up_at = 0
        self.is_running = False
        Worker.current = self

    def ready(self) -> int:
        """Returns the number of the process."""
        return os.getpid()

    # ------------------------------------------------------------------ functions

    def run(
        self, calls: list[Call], lives: list[int], gone: Sequence[int]
    ) -> tuple[list[Outcome], list[Any]]:
        """Runs functions, one after the other, until one does not end well.

        Args:
          calls: the functions.
          lives: how often each server was started again.
          gone: the numbers of functions that the coordinator's program has no more.

        Returns:
          How each of them ended, and those of their results that are large.
        """
        for number in gone:
            for known in (self._functions, self._habits, self._compiled):
                known.pop(number, None)
        large: list[Any] = []
        outcomes: list[Outcome] = []
        view = self._view
        view.ages.clear()
        for call in calls:
            outcomes.append(self._run(call, lives, large))
            if outcomes[-1].ending is not Ending.DONE:
                break
        if view.unsent() and (failure := self._attempt(view.flush)) is not None:
            outcomes[-1] = failure
        # What could not be sent is done again; servers that have it do not do it twice.
        lost = view.unsent()
        view.drop_unsent()
        not_run = Outcome(Ending.NOT_RUN)
        for index, call in enumerate(calls):
            if index == len(outcomes):
                outcomes.append(not_run)
            elif outcomes[index].ending is Ending.DONE:
                ages = tuple(view.ages.get(call.token, ()))
                outcomes[index] = outcomes[index]._replace(staleness=ages)
                if call.token in lost:
                    outcomes[index] = not_run
        return outcomes, large

    def _run(self, call: Call, lives: list[int], large: list[Any]) -> Outcome:
        """Runs one function. A large result is added to a list."""
        start = time.perf_counter()
        if call.function not in self._functions and call.code is None:
            return Outcome(Ending.NEEDS_CODE)
        results: list[bytes | int] = []

        def run() -> None:
            view = self._view
            view.use_servers(self.strategy_id, lives)
            if call.function not in self._functions:
                assert call.code is not None
                self._functions[call.function] = unpacked(call.code)
                if len(self._functions) > _KEPT:
                    oldest = next(iter(self._functions))
                    del self._functions[oldest]
                    self._habits.pop(oldest, None)
            for number, built in call.optimizers.items():
                self._optimizers[number].built(unpacked(built))
            view.named.clear()
            args, kwargs = unpacked(call.arguments)
            habits = self._habits.setdefault(call.function, Habits())
            habits.begin(set(view.named))
            view.begin(call.token, habits.read)
            self._looked_up.clear()
            self.is_running = True
            with self.strategy.scope():
                result = self._functions[call.function](*args, **kwargs)
                self.collect()
                view.finish()
            results.append(_as_message(_on_host(result), large))

        failure = self._attempt(run)
        if failure is not None:
            return failure
        return Outcome(Ending.DONE, results[0], (), time.perf_counter() - start)

    def _attempt(self, run: Callable[[], None]) -> Outcome | None:
        """Returns why something failed, or None."""
        try:
            run()
        except _NeedsValuesError:
            return Outcome(Ending.NEEDS_VALUES)
        except NeedsBuildError as error:
            structure = packed(error.structure, self.strategy_id, "The structure of variables")
            return Outcome(Ending.NEEDS_BUILD, (error.number, structure))
        except LostError as error:
            return Outcome(Ending.SERVER_LOST, (error.server, error.keys, "", -1))
        except ServerGoneError as error:
            return Outcome(Ending.SERVER_LOST, (error.server, None, error.reason, error.life))
        except StopIteration:
            ended = OutOfRangeError(
                f"The data of worker {self.index} ended: there is no next element. Schedule fewer "
                "functions, or repeat the data."
            )
            return Outcome(Ending.FAILED, _told(ended))
        except BaseException as error:  # which must not end the worker
            return Outcome(Ending.FAILED, _told(error))
        finally:
            self.is_running = False
        return None

    def create(self, number: int, code: bytes, lives: list[int]) -> None:
        """Makes a value of this worker's own, by calling a function.

        If that fails, it is made again for each function that uses the value, which gets the error.
        """
        try:
            self._view.use_servers(self.strategy_id, lives)
            self._values[number] = self._made(code)
        except BaseException:
            self._values[number] = _NotMade(code)

    def _made(self, code: bytes) -> Any:
        was_running, self.is_running = self.is_running, True
        try:
            with self.strategy.scope():
                return unpacked(code)()
        finally:
            self.is_running = was_running

    def value(self, number: int) -> Any:
        """Returns a value of this worker's own."""
        if number not in self._values:
            raise _NeedsValuesError
        found = self._values[number]
        if isinstance(found, _NotMade):
            found = self._values[number] = self._made(found.code)
        return found

    def collect(self) -> None:
        """Sends the gradients that programs have left."""
        for optimizer in self._optimizers.values():
            optimizer.collect()

    # ------------------------------------------------------------------ what references lead to

    @override
    def function(self, number: int, make: tuple[Callable[..., Any], Any]) -> Any:
        found = self._compiled.get(number)
        if found is None:
            found = self._compiled[number] = _Compiled(Function(*make), self)
        return found

    @override
    def optimizer(self, number: int, contents: tuple[Any, ...]) -> Any:
        found = self._optimizers.get(number)
        if found is None:
            found = WorkerOptimizer(self._view, number, *contents)
            self._optimizers[number] = found
        return found

    @override
    def variable(self, spec: Spec) -> ServerVariable:
        return self._view.variable(spec)

    @override
    def sharded(
        self, pieces: list[ServerVariable], offsets: list[int], common: tuple[Any, ...]
    ) -> ShardedVariable:
        key = pieces[0].spec.key
        found = self._sharded.get(key)
        if found is None:
            found = ShardedVariable.of_parts(self._view, pieces, offsets, common)
            self._sharded[key] = found
        return found

    def look_up(self, table: Variable, ids: ArrayInput) -> Rows:
        """Returns rows of a table, as a variable: the same one for the same place in a function."""
        shape, rows, inverse = unique_rows(table, ids)
        if self._looked_up_at != self._view.pushes:  # a new step: the rows before it are done with
            self._looked_up.clear()
            self._looked_up_at = self._view.pushes
        number = self._looked_up.get(id(table), 0)
        self._looked_up[id(table)] = number + 1
        key = (id(table), shape, number)
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = Rows(table, shape, number)
        found.stand_for(rows, inverse, self._view.read_wanted)
        self._view.want_rows(_wanted(table, rows, found))
        return found


def _wanted(table: Variable, rows: np.ndarray, to: Rows) -> Wanted:
    """Returns which rows are to be read, and that somebody gets them."""
    if isinstance(table, ServerVariable):
        return Wanted([(table, rows)], lambda values: to.hold(values[0]))
    assert isinstance(table, ShardedVariable)
    parts = list(table.split_rows(rows))

    def take(values: list[np.ndarray]) -> None:
        found = np.empty((len(rows), *table.shape[1:]), table.dtype)
        for (_, _, mine), value in zip(parts, values, strict=True):
            found[mine] = value
        to.hold(found)

    return Wanted([(piece, wanted) for piece, wanted, _ in parts], take)


@final
class _Compiled:
    """A compiled function on a worker: what a call leaves is sent before the next one."""

    def __init__(self, function: Function[..., Any] | BoundFunction[..., Any], worker: Worker):
        self._function = function
        self._worker = worker
        self.__name__ = getattr(function, "__name__", "function")

    def __call__(self, *args: object, **kwargs: object) -> Any:
        result = self._function(*args, **kwargs)
        world().pick(self._worker.collect, _nothing)()
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return (
            self if instance is None else _Compiled(self._function.__get__(instance), self._worker)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _nothing() -> None:
    """In a program, which leaves what it leaves when it has run."""


def _on_host(value: object) -> Any:
    """Returns a result with NumPy arrays in the place of those of JAX."""

    def convert(leaf: object) -> Any:
        if isinstance(leaf, jax.Array | Variable):
            return np.asarray(leaf)
        return leaf

    leaves, rebuild = _tree.flatten(value, is_leaf)
    return rebuild([convert(leaf) for leaf in leaves])


def _as_message(result: object, large: list[Any]) -> bytes | int:
    """Returns a result as bytes; a large one is added to a list, and its place is returned."""
    dumps = imported_ray().cloudpickle.dumps
    arrays: list[pickle.PickleBuffer] = []
    try:
        data = dumps(result, protocol=5, buffer_callback=arrays.append)
        if len(data) + sum(array.raw().nbytes for array in arrays) > _LARGE:
            large.append(result)
            return len(large) - 1
        return dumps(result) if arrays else data
    except Exception as error:
        raise TypeError(
            "The function returned something that cannot be sent to the coordinator: "
            f"{str(error).rstrip('.')}. Return arrays, numbers and structures of them."
        ) from error


def _told(error: BaseException) -> tuple[bytes | None, str]:
    """Returns an exception for the coordinator, if it can be sent, and as a text."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, SystemExit):  # which would end the coordinator without a word
        error = RuntimeError(
            f"The function called sys.exit({error.code!r}). To stop, return or raise an error: "
            "the program that schedules decides what follows."
        )
    try:
        # Classes of the user's program, which workers know as copies, become themselves again.
        data = imported_ray().cloudpickle.dumps(error.with_traceback(None))
        pickle.loads(data)
    except Exception:
        return None, text
    return data, text
