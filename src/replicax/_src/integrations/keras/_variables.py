"""A Keras variable that keeps its value in a Variable of a strategy."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import (
    StatelessScope,
    get_stateless_scope,
    in_stateless_scope,
)
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.backend.jax.core import JaxVariable
from keras.src.layers.rnn.rnn import RNN

import replicax as rx
from replicax._src._jax_internals import outside_of_traces
from replicax._src._thread_value import ThreadValue
from replicax._src._typing import Tracer
from replicax._src.context import entered_world, get_strategy, has_strategy
from replicax._src.variable import copy_here

Original = Callable[..., Any]  # a function of Keras that one of ours is called in place of

_SYNCHRONIZATION = rx.VariableSynchronization
_AGGREGATION = rx.VariableAggregation
_AGGREGATIONS = {
    "none": None,
    "mean": _AGGREGATION.MEAN,
    "sum": _AGGREGATION.SUM,
    "only_first_replica": _AGGREGATION.ONLY_FIRST_REPLICA,
}


_assigned = ThreadValue[set[int] | None](None)


def noting_assignments() -> contextlib.AbstractContextManager[Any]:
    """Gives a set that will hold the ids of the variables that this thread assigns meanwhile."""
    return _assigned.set(set())


_in_model_fn = ThreadValue(False)
_COUNTS = "object_name_uids"  # where Keras counts the names that it has given on this thread


@contextlib.contextmanager
def around_model_fn() -> Iterator[None]:
    """Layers that are made inside have the same names each time."""
    counts = global_state.get_global_attribute(_COUNTS)
    global_state.set_global_attribute(_COUNTS, collections.defaultdict(int))
    try:
        with _in_model_fn.set(True):
            yield
    finally:
        global_state.set_global_attribute(_COUNTS, counts)


def in_model_fn() -> bool:
    """Returns whether this thread is in an estimator's `model_fn`, which owns all it makes."""
    return _in_model_fn.value


class Replicated:
    """What a Keras variable becomes when it gets its value inside a scope.

    Keras puts variables into a state of its own while it traces; only where it does not, the
    strategy's Variable is read and written.
    """

    _structure_leaf = True  # walks of ours stop here, as at an rx.Variable
    _in_strategy: rx.Variable

    @property
    def __rx_variable__(self) -> rx.Variable:
        return self._in_strategy

    @property
    def _value(self) -> Any:
        return self._in_strategy.read_value()

    @_value.setter
    def _value(self, value: ArrayLike) -> None:
        if value is not None:  # with None Keras only wants to save memory
            self._direct_assign(value)

    @property
    def value(self) -> Any:
        scope: Any = get_stateless_scope() if in_stateless_scope() else None
        found = None if scope is None else scope.get_current_value(self)
        if found is None and in_symbolic_scope():  # only shapes are asked for
            found = jnp.zeros(self._shape, self._dtype)  # pyright: ignore
        return self._maybe_autocast(self._value if found is None else found)  # pyright: ignore

    def _direct_assign(self, value: ArrayLike) -> None:
        self._note()
        self._in_strategy.assign(value)

    def _note(self) -> None:
        """Takes note that it is assigned."""
        if _assigned.value is not None:
            _assigned.value.add(id(self))

    def _joined(self) -> None:
        """Called when it has its Variable."""

    def set_on_replica(self, value: ArrayLike) -> None:
        """In replica context: sets this replica's copy, as it is."""
        self._note()
        copy_here(self._in_strategy).assign(value)


# By the classes of the strategy's variables, what else than `Replicated` those of Keras become.
kinds: dict[type, type[Replicated]] = {}


def of_strategy(variable: Any, own: rx.Variable) -> Any:
    """Returns a Keras variable, which becomes one that keeps its value in a Variable."""
    variable.__class__ = _replicated_kind(type(variable), kinds.get(type(own), Replicated))
    variable._in_strategy = own
    variable._joined()
    return variable


def kind_in_keras(kind: type) -> type:
    """Returns the class that a variable had before."""
    return kind.__bases__[1]


@functools.cache
def _replicated_kind(kind: type, ours: type[Replicated]) -> type:
    made = type(kind.__name__, (ours, kind), {"__module__": kind.__module__})
    # As of an rx.Variable, functions of JAX see its value: jnp.sum(layer.kernel).
    jax.tree_util.register_pytree_node(
        made, lambda variable: ((variable.value,), None), lambda _, children: children[0]
    )
    return made


def replicate(variable: JaxVariable, value: jax.Array) -> None:
    """Moves a variable that is being made into the strategy in whose scope we are."""
    variable._shape = variable._validate_shape(value.shape)
    synchronization, aggregation = _policy(variable)
    made = rx.Variable(
        value,
        trainable=variable.trainable,
        name=variable.path,
        dtype=variable._dtype,
        synchronization=synchronization,
        aggregation=aggregation,
    )
    vars(variable).pop("_value", None)
    of_strategy(variable, made)


def can_join(variable: JaxVariable) -> bool:
    """Returns whether a variable with a value can become ours: where no strategy is at work."""
    value = vars(variable).get("_value")
    return (
        isinstance(value, jax.Array)
        and not isinstance(value, Tracer)
        and variable._layout is None
        and not has_strategy()
        and not in_stateless_scope()
        and not in_symbolic_scope()
    )


def join(variable: JaxVariable) -> None:
    """Makes a variable from outside of all scopes one of ours.

    A function that is compiled, a checkpoint or a gradient asks for it: each needs a variable, and
    finds it as if it were an `rx.Variable` that was made outside of scopes.
    """
    with outside_of_programs():
        replicate(variable, vars(variable)["_value"])


@contextlib.contextmanager
def outside_of_programs() -> Iterator[None]:
    """What is made inside is there at once, also while a program is being made."""
    with entered_world(None), outside_of_traces():
        yield


def initialize_all(original: Callable[[], None]) -> None:
    """Keras gives variables their values that it made while it looked at shapes alone.

    Where that fails, as in a program that cannot make variables, Keras would try again with the
    next model. They belong to the strategy of this one, and get their values when they are used.
    """
    made = global_state.get_global_attribute("uninitialized_variables") or []
    try:
        original()
    except BaseException:
        if has_strategy():
            global_state.set_global_attribute("uninitialized_variables", [])
            for variable in made:
                if not isinstance(variable, Replicated):
                    variable._to_be_made_in = get_strategy()
        raise


def make_late(variable: JaxVariable) -> None:
    """Gives a variable its value that `initialize_all` could not give it."""
    strategy, variable._to_be_made_in = variable._to_be_made_in, None  # pyright: ignore
    try:
        with contextlib.nullcontext() if has_strategy() else strategy.scope():
            variable._deferred_initialize()
    except BaseException:
        variable._to_be_made_in = strategy  # pyright: ignore
        raise


def read_before_the_loop(
    original: Callable[..., Any], layer: RNN, *args: object, **kwargs: object
) -> Any:
    """Calls a layer that JAX loops over, where its variables have the values of before."""
    if layer.unroll or in_stateless_scope():
        return original(layer, *args, **kwargs)
    ours = [each for each in layer.variables if isinstance(each, Replicated)]
    with StatelessScope([(each, each._value) for each in ours]):  # as Keras does, without values
        return original(layer, *args, **kwargs)


def _policy(variable: JaxVariable) -> tuple[Any, Any]:
    """Returns how the copies of a variable go together.

    Keras says it of metrics and of counters. Where it says nothing: replicas learn the same
    parameters; and what else they keep (moving averages, seeds) is each one's own, of which the
    rest of the world sees the mean, or the first where there is no mean.
    """
    aggregation = _AGGREGATIONS[variable.aggregation]
    if variable.synchronization == "on_read":
        own = _SYNCHRONIZATION.ON_READ
        return own, aggregation or _AGGREGATION.ONLY_FIRST_REPLICA
    if aggregation is not None:
        return _SYNCHRONIZATION.AUTO, aggregation
    has_mean = jnp.issubdtype(variable._dtype, jnp.inexact)
    if variable.trainable and has_mean:
        return _SYNCHRONIZATION.AUTO, _AGGREGATION.MEAN
    mean_or_first = _AGGREGATION.MEAN if has_mean else _AGGREGATION.ONLY_FIRST_REPLICA
    return _SYNCHRONIZATION.ON_READ, mean_or_first


def is_own(variable: Replicated) -> bool:
    """Returns whether each replica keeps a value of its own."""
    return variable._in_strategy.synchronization is _SYNCHRONIZATION.ON_READ


def differs_by_replica(variable: object) -> bool:
    """Returns whether replicas may have different values of it, of which others see the mean."""
    return (
        isinstance(variable, Replicated)
        and is_own(variable)
        and variable._in_strategy.aggregation is _AGGREGATION.MEAN
    )
