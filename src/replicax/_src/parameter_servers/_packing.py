"""Functions on their way to workers: what belongs to a strategy goes as a reference.

Each process that has to do with a strategy has a `Place`, where references lead to objects.
"""

from __future__ import annotations

import abc
import collections
import functools
import io
import itertools
import pickle
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from replicax._src._typing import override
from replicax._src.cluster import imported_ray
from replicax._src.functions import BoundFunction, Function
from replicax._src.parameter_servers._messages import KnownOptimizer
from replicax._src.parameter_servers._sharded import ShardedVariable
from replicax._src.parameter_servers._variable import ServerVariable, Spec
from replicax._src.training import Optimizer, state_of
from replicax._src.variable import Variable


class Referred(abc.ABC):
    """What goes to other processes as a reference."""

    @abc.abstractmethod
    def reference(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Returns a function, and the arguments with which it gives the object elsewhere."""


class ForeignOptimizer(Referred):
    """An optimizer of another library, as the coordinator knows it.

    Attributes:
      strategy_id: whose variables it updates.
      iterations: the count of updates, a variable.
    """

    strategy_id: str
    iterations: Variable

    @property
    @abc.abstractmethod
    def known(self) -> KnownOptimizer | None:
        """What workers have to know of its state, which is on the servers; None if not built."""

    @abc.abstractmethod
    def build(self, variables: Variable | list[Variable]) -> None:
        """Makes its state, on the servers."""

    @override
    def reference(self) -> Any:
        """On a worker it is what sends gradients to the servers."""
        return _optimizer_there, (self.strategy_id, numbers.of(self), _contents_of(self))


# How objects of other libraries are packed: each returns what `reducer_override` does, and adds
# to a list what references lead to.
reducers: list[Callable[[object, list[object]], Any]] = []


class Place(abc.ABC):
    """What the references of one strategy lead to in this process."""

    places: ClassVar[weakref.WeakValueDictionary[str, Place]] = weakref.WeakValueDictionary()

    def __init__(self, strategy_id: str) -> None:
        self.strategy_id = strategy_id
        self.places[strategy_id] = self

    @abc.abstractmethod
    def function(self, number: int, make: tuple[Callable[..., Any], Any]) -> Any:
        """Returns a compiled function, made of a Python function and its signature."""

    @abc.abstractmethod
    def optimizer(self, number: int, contents: tuple[Any, ...]) -> Any:
        """Returns an optimizer."""

    @abc.abstractmethod
    def variable(self, spec: Spec) -> Any:
        """Returns a variable without parts."""

    @abc.abstractmethod
    def sharded(self, pieces: list[Any], offsets: list[int], common: tuple[Any, ...]) -> Any:
        """Returns a variable in parts."""

    @abc.abstractmethod
    def value(self, number: int) -> Any:
        """Returns a value of a worker's own."""

    strategy: Any


def place_of(strategy_id: str) -> Place:
    """Returns what the references of a strategy lead to."""
    found = Place.places.get(strategy_id)
    if found is None:
        raise pickle.UnpicklingError(
            "A reference to a variable of a ParameterServerStrategy was sent to a process that "
            "has nothing to do with it. Such variables can be used in functions that "
            "coordinator.schedule is given; send others their values: np.asarray(variable)."
        )
    return found


class _Numbers:
    """Gives objects numbers, which no others of this process get."""

    def __init__(self) -> None:
        self._next = itertools.count()
        self._known: dict[tuple[int, int], tuple[Any, object, int]] = {}
        self._objects: dict[int, Any] = {}  # references, by number
        self._listeners: list[weakref.ref[collections.deque[int]]] = []
        self._lock = threading.Lock()

    def of(self, value: object) -> int:
        """Returns the number of an object. A method has one, though it is made at each access."""
        is_method = isinstance(value, types.MethodType | BoundFunction)
        owner, function = (value.__self__, value.__func__) if is_method else (value, None)
        key = (id(owner), id(function))
        with self._lock:
            known = self._known.get(key)
            if known is not None and known[0]() is owner:
                return known[2]
            number = next(self._next)

            def forget(_: object) -> None:
                self._known.pop(key, None)
                self._objects.pop(number, None)
                for listener in self._listeners:
                    if (gone := listener()) is not None:
                        gone.append(number)

            try:
                reference: Any = weakref.ref(owner, forget)
            except TypeError:  # such as a ufunc of NumPy
                reference = lambda: owner  # noqa: E731
            self._known[key] = (reference, function, number)
            self._objects[number] = reference
            return number

    def tell(self, gone: collections.deque[int]) -> None:
        """Adds the numbers of objects that are gone to a queue, from now on."""
        there = [each for each in self._listeners if each() is not None]
        self._listeners = [*there, weakref.ref(gone)]

    def find(self, number: int) -> Any:
        """Returns the object with a number; None if it is gone."""
        reference = self._objects.get(number)
        return None if reference is None else reference()


numbers = _Numbers()


def packed(value: object, strategy_id: str, what: str, kept: list[object] | None = None) -> bytes:
    """Returns an object as bytes, with references to what belongs to the strategy.

    Args:
      value: the object.
      strategy_id: whose references they are.
      what: it is, for messages.
      kept: gets what references lead to, which must be there when they are followed.
    """
    file = io.BytesIO()
    try:
        _packer()(file, strategy_id, [] if kept is None else kept).dump(value)
    except Exception as error:
        why = str(error).rstrip(".")
        raise TypeError(
            f"{what} cannot be sent to a worker: {why}. What it refers to must be data, or be made "
            "in the strategy's scope. Make files, locks, sessions and the like inside of the "
            "function, or with coordinator.create_per_worker_values."
        ) from error
    return file.getvalue()


@functools.cache
def _packer() -> Any:
    """Returns the class that packs. It is made when Ray is there."""
    cloudpickle = imported_ray().cloudpickle

    class Packer(cloudpickle.CloudPickler):
        def __init__(self, file: io.BytesIO, strategy_id: str, kept: list[object]):
            super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
            self._strategy_id = strategy_id
            self._kept = kept

        def reducer_override(self, obj: object) -> Any:
            strategy_id = self._strategy_id
            if isinstance(obj, ServerVariable | ShardedVariable):
                _check_owner(obj, strategy_id)
            if isinstance(obj, ServerVariable | ShardedVariable | Optimizer):
                self._kept.append(obj)
            if isinstance(obj, ServerVariable):
                return _variable_there, (strategy_id, obj.spec)
            if isinstance(obj, ShardedVariable):
                given = (obj.variables, obj.offsets, obj.common)
                return _sharded_there, (strategy_id, *given)
            if isinstance(obj, Referred):
                return obj.reference()
            if isinstance(obj, Function):
                made = (obj.python_function, obj.input_signature)
                return _function_there, (strategy_id, numbers.of(obj), made)
            if isinstance(obj, Optimizer):
                return _optimizer_there, (strategy_id, numbers.of(obj), _contents_of(obj))
            if isinstance(obj, Variable):
                raise made_outside(obj.name)
            for reducer in reducers:
                if (found := reducer(obj, self._kept)) is not NotImplemented:
                    return found
            return super().reducer_override(obj)

    return Packer


def _check_owner(variable: Variable, strategy_id: str) -> None:
    owner = getattr(variable.distribute_strategy.extended, "strategy_id", strategy_id)
    if owner != strategy_id:
        raise TypeError(
            f"it uses the variable {variable.name!r} of another ParameterServerStrategy, whose "
            "servers these workers do not know. Make it in the scope of this one, or pass its "
            "value, np.asarray(variable)"
        )


def made_outside(name: str) -> TypeError:
    """Returns the error for a variable that is in the coordinator's process alone."""
    return TypeError(
        f"it uses the variable {name!r}, which was made outside of the strategy's scope, and is in "
        "this process alone. Make it inside `with strategy.scope():`"
    )


def unpacked(data: bytes) -> Any:
    """Returns an object that this job has packed."""
    return pickle.loads(data)


def known_optimizer(optimizer: Optimizer | ForeignOptimizer) -> KnownOptimizer | None:
    """Returns what is known of an optimizer's state on the servers; None if it was not built."""
    if isinstance(optimizer, ForeignOptimizer):
        return optimizer.known
    state: Any = state_of(optimizer)
    return None if state is None else state.known


def _contents_of(optimizer: Optimizer | ForeignOptimizer) -> tuple[Any, ...]:
    """Returns what a worker has to know of an optimizer."""
    return optimizer.iterations, known_optimizer(optimizer)


def _variable_there(strategy_id: str, spec: Spec) -> Any:
    return place_of(strategy_id).variable(spec)


def _sharded_there(
    strategy_id: str, pieces: list[Any], offsets: list[int], common: tuple[Any, ...]
) -> Any:
    return place_of(strategy_id).sharded(pieces, offsets, common)


def strategy_there(strategy_id: str) -> Any:
    """Returns what stands for a strategy in this process."""
    return place_of(strategy_id).strategy


def value_there(strategy_id: str, number: int) -> Any:
    """Returns a value of this worker's own."""
    return place_of(strategy_id).value(number)


def _function_there(strategy_id: str, number: int, made: tuple[Callable[..., Any], Any]) -> Any:
    return place_of(strategy_id).function(number, made)


def _optimizer_there(strategy_id: str, number: int, contents: tuple[Any, ...]) -> Any:
    return place_of(strategy_id).optimizer(number, contents)
