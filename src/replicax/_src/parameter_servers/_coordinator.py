"""`ClusterCoordinator`: what users call to run functions on workers."""

from __future__ import annotations

import atexit
import itertools
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.functions import Function
from replicax._src.parameter_servers._dispatcher import Closure, Dispatcher
from replicax._src.parameter_servers._packing import numbers, packed, unpacked
from replicax._src.parameter_servers._remote_value import (
    PerWorkerIterator,
    PerWorkerValues,
    RemoteValue,
)
from replicax._src.parameter_servers._staleness import StalenessReport
from replicax._src.parameter_servers._strategy import ParameterServerStrategy
from replicax._src.parameter_servers._worker import Worker
from replicax._src.parameter_servers._worker_data import DatasetOfWorkers

_KEPT = 256  # functions, as bytes

_making = threading.Lock()


class _OnePerStrategy(type):
    """A strategy has its coordinator, so that both are there as long as one of them is used."""

    def __call__(cls, strategy: object, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(strategy, ParameterServerStrategy):
            return super().__call__(strategy, *args, **kwargs)
        extended = strategy.extended
        with _making:
            if extended.coordinator is None:
                extended.coordinator = super().__call__(strategy, *args, **kwargs)
            else:
                extended.coordinator.require_same(*args, **kwargs)
            return extended.coordinator


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


@final
class ClusterCoordinator(metaclass=_OnePerStrategy):
    """Schedules functions on the workers of a `ParameterServerStrategy`.

    `schedule` returns at once. Functions run on workers that are free, in no certain order, at
    least once: one whose worker is lost runs again on another.

    Args:
      strategy: a `ParameterServerStrategy`. There is one coordinator for each.
      max_staleness: how old values may be that an update is computed from, in updates: a function
        does not begin as long as another one could exceed it. 0 means that one runs at a time;
        None that nobody waits.
      function_timeout: how many seconds a function may take, what it compiles included. A worker
        on which one takes longer is ended and started again, with a warning, and the function runs
        elsewhere; after three times, `schedule` or `join` raises `rx.errors.WorkerLostError`.
        Functions then go to workers one at a time. None, the default, for no limit.
    """

    def __init__(
        self,
        strategy: ParameterServerStrategy,
        max_staleness: int | None = None,
        function_timeout: float | None = None,
    ):
        if not isinstance(strategy, ParameterServerStrategy):  # pyright: ignore
            raise TypeError(
                "ClusterCoordinator takes an rx.distribute.ParameterServerStrategy; got "
                f"{strategy!r}. Other strategies run their replicas themselves: strategy.run."
            )
        if max_staleness is not None and not _is_count(max_staleness):
            raise ValueError(
                "max_staleness is a number of updates: an integer, 0 or more, or None for no "
                f"limit; got {max_staleness!r}."
            )
        if function_timeout is not None and not _is_positive(function_timeout):
            raise ValueError(
                "function_timeout is how many seconds a function may take: a number above 0, or "
                f"None for no limit; got {function_timeout!r}."
            )
        self._strategy = strategy
        extended = strategy.extended
        self._strategy_id = extended.strategy_id
        self._dispatcher = Dispatcher(
            strategy,
            extended.view,
            extended.workers,
            extended.strategy_id,
            max_staleness,
            function_timeout,
        )
        self._tokens = itertools.count()
        self._run_id = uuid.uuid4().hex[:8]
        self._values = itertools.count()
        self._packed: dict[int, tuple[bytes, list[object]]] = {}
        self._kept: list[object] = []  # what makers refer to, who make values for ever
        self._packing = threading.Lock()
        self._end = weakref.finalize(self, self._dispatcher.close)
        atexit.register(self._end)  # before Ray's own, so that nobody calls it then

    def require_same(
        self, max_staleness: int | None = None, function_timeout: float | None = None
    ) -> None:
        """Raises `ValueError` if this coordinator of the strategy has other limits."""
        asked = {"max_staleness": max_staleness, "function_timeout": function_timeout}
        for name, wanted in asked.items():
            given = getattr(self._dispatcher, name)
            if wanted is not None and wanted != given:
                raise ValueError(
                    f"The strategy has a coordinator with {name}={given}, and there is one for "
                    f"each strategy; {wanted} was asked for. Say it where the first one is made."
                )

    @property
    def strategy(self) -> ParameterServerStrategy:
        """The strategy."""
        return self._strategy

    def schedule(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> RemoteValue:
        """Lets a function run on a worker that is free. Returns at once.

        What the function refers to goes along: variables of the strategy, optimizers and compiled
        functions as themselves, everything else as a copy.

        Args:
          fn: the function; also an `rx.function`.
          args: its positional arguments. Of `PerWorkerValues` it gets the worker's own.
          kwargs: its keyword arguments, likewise.

        Returns:
          A `RemoteValue`.

        Raises:
          Exception: the first error of a function that was scheduled before; what had not begun
            then does not run.
        """
        if not callable(fn):
            raise TypeError(
                f"coordinator.schedule takes a function that a worker is to run; got {fn!r}."
            )
        name = getattr(fn, "__qualname__", repr(fn))
        value = RemoteValue(name)
        if args is not None and not isinstance(args, list | tuple):  # pyright: ignore
            raise TypeError(
                f"`args` is a tuple or list of the arguments of {name!r}; got {args!r}. Write "
                "coordinator.schedule(fn, args=(x,))."
            )
        if not isinstance(kwargs, dict | None) or not all(
            isinstance(key, str) for key in kwargs or ()
        ):  # pyright: ignore
            raise TypeError(
                f"`kwargs` is a dictionary of the keyword arguments of {name!r}; got {kwargs!r}. "
                'Write coordinator.schedule(fn, kwargs={"x": x}).'
            )
        what = f"The function {name!r}"
        with self._packing:
            number, code, kept = self._code_of(fn, what)
        given = (tuple(args or ()), dict(kwargs or {}))
        kept = [fn, *kept]
        arguments = packed(given, self._strategy_id, f"What the function {name!r} is given", kept)
        token = f"{self._run_id}-{next(self._tokens)}"
        self._dispatcher.put(Closure(token, number, code, arguments, value, kept))
        return value

    def _code_of(self, fn: Callable[..., Any], what: str) -> tuple[int, bytes, list[object]]:
        """Returns the number of a function, itself as bytes, and what references in it lead to.

        It is made into bytes once.
        """
        number = numbers.of(fn)
        if number not in self._packed:
            for gone in [each for each in self._packed if numbers.find(each) is None]:
                del self._packed[gone]
            kept: list[object] = []
            self._packed[number] = packed(fn, self._strategy_id, what, kept), kept
            if len(self._packed) > _KEPT:
                self._packed.pop(next(iter(self._packed)))
        return number, *self._packed[number]

    def join(self) -> None:
        """Waits until all functions that were scheduled have run.

        Raises:
          Exception: the first error of one of them.
        """
        self._dispatcher.join()

    def done(self) -> bool:
        """Returns whether all functions that were scheduled have run.

        Raises:
          Exception: the first error of one of them.
        """
        return self._dispatcher.is_done()

    def fetch(self, val: PyTree) -> Any:
        """Waits for results. Returns them, as arrays and numbers of NumPy.

        Args:
          val: a `RemoteValue`, or a structure of them; everything else stays as it is.
        """
        leaves, rebuild = _tree.flatten(val, lambda leaf: isinstance(leaf, RemoteValue))
        return rebuild([leaf.fetch() if isinstance(leaf, RemoteValue) else leaf for leaf in leaves])

    def create_per_worker_dataset(self, dataset_fn: object) -> PerWorkerValues:
        """Makes a data set on each worker.

        Args:
          dataset_fn: a function without arguments that returns a data set, and is called on each
            worker, as Python, also if it is an `rx.function`; or a data set, or a distributed one
            of the strategy.

        Returns:
          `PerWorkerValues`. `iter(...)` of it gives iterators of the workers' own: pass it to
          functions, which call `next` on it.
        """
        if isinstance(dataset_fn, Function):
            make = dataset_fn.python_function  # a data set is no result of a program
        elif callable(dataset_fn):
            make = dataset_fn
        elif isinstance(dataset_fn, DatasetOfWorkers):
            make = dataset_fn.make
        elif isinstance(dataset_fn, Iterable):
            make = lambda: dataset_fn  # noqa: E731
        else:
            raise TypeError(
                "create_per_worker_dataset takes a data set, or a function without arguments that "
                f"returns one; got {dataset_fn!r}."
            )
        what = "The function that makes the data set"
        code = packed(make, self._strategy_id, what, self._kept)

        def iterator() -> PerWorkerIterator:
            number = next(self._values)
            call = packed(_IteratorMaker(code), self._strategy_id, "The data set")
            self._dispatcher.add_maker(number, call)
            return PerWorkerIterator(PerWorkerValues(self._strategy_id, number))

        number = next(self._values)
        self._dispatcher.add_maker(number, code)
        return PerWorkerValues(self._strategy_id, number, iterator)

    def create_per_worker_values(self, fn: Callable[[], Any]) -> PerWorkerValues:
        """Makes a value on each worker, which functions there can use.

        Args:
          fn: a function without arguments, which is called on each worker, and again on one that
            was lost and is started again.

        Returns:
          What stands for the values: as an argument of a scheduled function, it becomes that of its
          worker.
        """
        if not callable(fn):
            raise TypeError(
                f"create_per_worker_values takes a function without arguments; got {fn!r}."
            )
        number = next(self._values)
        code = packed(fn, self._strategy_id, "The function that makes the value", self._kept)
        self._dispatcher.add_maker(number, code)
        return PerWorkerValues(self._strategy_id, number)

    @property
    def staleness(self) -> StalenessReport:
        """How old the values were that updates were computed from, in updates."""
        return self._dispatcher.staleness.report()

    @property
    def lost_workers(self) -> int:
        """How often a worker was lost with something: a function, or values of its own.

        Not all processes that ended are among them. The loss of a worker that had nothing to do
        is seen when it next needs its values, and several losses before it has started are one.
        """
        return self._dispatcher.lost_workers

    def close(self) -> None:
        """Ends the threads of the coordinator. What has not begun does not run."""
        self._end()
        if self._strategy.extended.coordinator is self:
            self._strategy.extended.coordinator = None

    def __reduce__(self) -> Any:
        raise TypeError(
            "it uses the ClusterCoordinator, which is in the program that schedules alone. Call "
            "one function in the other, or schedule both from there"
        )


@final
class _IteratorMaker:
    """Makes an iterator over a worker's data set."""

    def __init__(self, code: bytes):
        self._code = code

    def __call__(self) -> Any:
        from_code = unpacked(self._code)
        return iter(from_code())


def experimental_get_current_worker_index() -> int:
    """Returns the number of the worker that a function runs on.

    Raises:
      RuntimeError: called elsewhere than in a function that was scheduled, or one that makes the
        data set or the value of a worker.
    """
    worker = Worker.current
    if worker is None or not worker.is_running:
        raise RuntimeError(
            "experimental_get_current_worker_index is for functions on workers. Call it in a "
            "function that coordinator.schedule is given."
        )
    return worker.index
