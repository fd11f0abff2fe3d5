"""Keras under a `ParameterServerStrategy`: its variables are on servers, its models on workers.

A model goes to a worker as it is, with references in the place of its variables. An optimizer sends
gradients to the servers, which have its state and update the variables (`_server_rule.py`).
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np
from keras.src import backend
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.jax.core import JaxVariable
from keras.src.layers.layer import Layer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from keras.src.random.seed_generator import SeedGenerator
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.utils import tracking

import replicax as rx
from replicax._src._thread_value import ThreadValue
from replicax._src._typing import override
from replicax._src.context import get_strategy, has_strategy
from replicax._src.integrations.keras import _variables
from replicax._src.integrations.keras._server_rule import KerasRule, OfVariable, Slots
from replicax._src.integrations.keras._updates import updates_elsewhere
from replicax._src.integrations.keras._variables import Original, Replicated
from replicax._src.parameter_servers import (
    ForeignOptimizer,
    KnownOptimizer,
    OptimizerSpec,
    ParameterServerStrategy,
    ServerVariable,
    ShardedVariable,
    WorkerStrategy,
    made_outside,
    reducers,
    server_numbers,
    tell_servers,
)


def install() -> None:
    """Lets Keras objects of such strategies go to workers."""
    reducers.append(_reduced)
    updates_elsewhere.append(apply)


# ---------------------------------------------------------------------- variables

# By the ids of the strategy's variables, which those of Keras hold.
_of_keras: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class OnServers(Replicated):
    """A Keras variable whose value is on parameter servers."""

    @override
    def _joined(self) -> None:
        _of_keras[id(self._in_strategy)] = self

    @override
    def _direct_assign(self, value: Any) -> None:
        own: Any = self._in_strategy
        adds_up = self.aggregation == "sum"  # pyright: ignore[reportAttributeAccessIssue]
        if adds_up and isinstance(own.distribute_strategy, WorkerStrategy):
            # What this worker adds; others add something meanwhile.
            super()._note()
            own.assign_add(value - own.read_value())
        else:
            super()._direct_assign(value)

    def assign_add(self, value: object) -> Any:
        """Adds to the value on the servers, whatever it is by then."""
        return self._change("assign_add", value)

    def assign_sub(self, value: object) -> Any:
        """Subtracts from the value on the servers, whatever it is by then."""
        return self._change("assign_sub", value)

    def _change(self, how: str, value: object) -> Any:
        if in_stateless_scope():
            return getattr(super(), how)(value)
        super()._note()
        convert = self._convert_to_tensor  # pyright: ignore[reportAttributeAccessIssue]
        getattr(self._in_strategy, how)(convert(value, dtype=self._dtype))  # pyright: ignore
        return self.value


for _kind in (ServerVariable, ShardedVariable):
    _variables.kinds[_kind] = OnServers


def _variable_there(kind: type, own: rx.Variable, state: dict[str, Any]) -> Any:
    """Returns the Keras variable of one of the strategy."""
    found = _of_keras.get(id(own))
    if found is None:
        found = _variables.of_strategy(object.__new__(kind), own)
        vars(found).update(state)
        _kept.setdefault(id(own), found)
    return found


_kept: dict[int, Any] = {}  # on workers: one for each variable, as long as there are functions

# ---------------------------------------------------------------------- on the way to workers

_MADE_AGAIN = ("build", "quantize")  # which Keras wraps when it makes a layer
_OF_THE_GRAPH = ("_inbound_nodes", "_outbound_nodes")  # which lead from layer to layer, deeply
_OF_FUNCTIONS = ("train_function", "test_function", "predict_function", "_settling", "_jax_state")
_OF_THE_COORDINATOR = ("_scheduled", "_eval_epoch_iterator", "history")
_COLLECTIONS = (tracking.TrackedList, tracking.TrackedDict, tracking.TrackedSet)


def _reduced(value: object, kept: list[object]) -> Any:
    """Returns how an object of Keras is packed, as `reducer_override` of a pickler does.

    Args:
      value: the object.
      kept: gets what references lead to.
    """
    if isinstance(value, OnServers | BaseOptimizer):
        kept.append(value)
    if isinstance(value, OnServers):
        state = {
            name: each
            for name, each in vars(value).items()
            if name not in ("_in_strategy", "_initializer")
        }
        kind = _variables.kind_in_keras(type(value))
        return _variable_there, (kind, value.__rx_variable__, state)
    if isinstance(value, JaxVariable):
        raise made_outside(value.path)
    if isinstance(value, _COLLECTIONS):
        items = dict(value) if isinstance(value, dict) else list(value)
        return _new, (type(value),), (vars(value), items), None, None, _fill
    if isinstance(value, tracking.Tracker):
        return _new, (type(value),), vars(value), None, None, _set_tracker
    if isinstance(value, KerasSaveable) and not _is_from_outside(value):
        return _new, (type(value),), _state_of(value), None, None, _set
    return NotImplemented


def _is_from_outside(value: object) -> bool:
    """Returns whether something has variables, none of them on servers: Keras sends a copy."""
    found: list[Any] = list(getattr(value, "variables", ()))
    return bool(found) and not any(isinstance(each, OnServers) for each in found)


def _state_of(value: object) -> dict[str, Any]:
    if isinstance(value, BaseOptimizer):
        served(value)
    dropped = {*_MADE_AGAIN, *_OF_FUNCTIONS, *_OF_THE_COORDINATOR}
    state = {name: each for name, each in vars(value).items() if name not in dropped}
    if isinstance(value, Layer):
        state.update({name: [] for name in _OF_THE_GRAPH})
    state.update({name: None for name in _OF_FUNCTIONS if name in vars(value)})
    return state


def _new(kind: Any) -> Any:
    return kind.__new__(kind)


def _set(value: object, state: dict[str, Any]) -> None:
    vars(value).update(state)  # past Keras's own __setattr__, which takes notes


def _set_tracker(value: Any, state: dict[str, Any]) -> None:
    _set(value, state)
    value.stored_ids = {name: {id(each) for each in of} for name, (_, of) in value.config.items()}


def _fill(value: Any, state: tuple[dict[str, Any], Any]) -> None:
    vars(value).update(state[0])
    if isinstance(value, list):
        add: Any = list.extend
    else:
        add = dict.update if isinstance(value, dict) else set.update
    add(value, state[1])


# ---------------------------------------------------------------------- optimizers


@final
class Served(ForeignOptimizer):
    """A Keras optimizer, as the coordinator knows it."""

    def __init__(self, optimizer: BaseOptimizer, strategy: ParameterServerStrategy):
        self._optimizer = weakref.ref(optimizer)
        self._strategy = strategy
        self.strategy_id = strategy.extended.strategy_id
        self.iterations = _count_of(optimizer).__rx_variable__
        self.slots = Slots()
        self._known: KnownOptimizer | None = None
        self._lock = threading.Lock()

    @property
    @override
    def known(self) -> KnownOptimizer | None:
        optimizer = self._optimizer()
        with self._lock:
            if self._known is None and optimizer is not None and optimizer.built:
                self._known = self._told(optimizer)
            return self._known

    @override
    def build(self, variables: rx.Variable | list[rx.Variable]) -> None:
        optimizer = self._optimizer()
        assert optimizer is not None  # a function that runs has it
        if not optimizer.built:
            each = [variables] if isinstance(variables, rx.Variable) else variables
            given = [_of_keras[id(variable)] for variable in each]
            with backend.name_scope(optimizer.name, caller=optimizer):
                optimizer.build(given)
            optimizer.built = True

    def _told(self, optimizer: BaseOptimizer) -> KnownOptimizer:
        """Tells the servers of the optimizer, which was built."""
        known: list[Any] = optimizer._trainable_variables
        variables = [variable.__rx_variable__ for variable in known]
        places = {id(variable): index for index, variable in enumerate(known)}
        kinds = self.slots.described(optimizer, places)
        everywhere = set(range(len(self._strategy.extended.parameter_devices)))
        for (owner, _), variable in zip(kinds, optimizer.variables, strict=True):
            if owner is None and (
                variable.shape or server_numbers(variable.__rx_variable__) != everywhere
            ):
                raise ValueError(
                    f"The Keras optimizer {optimizer.name!r} keeps {variable.path!r}, of which it "
                    "cannot be told whose state it is, so that no server can have it. Use an "
                    "rx.Optimizer of the same kind, such as rx.Optimizer(optax.adafactor(0.01))."
                )
        rule = KerasRule(
            type(optimizer),
            _config_of(optimizer),
            [OfVariable(each.constraint, optimizer._use_weight_decay(each)) for each in known],
        )
        slots = [
            (owner, label, variable.__rx_variable__)
            for (owner, label), variable in zip(kinds, optimizer.variables, strict=True)
        ]
        spec = OptimizerSpec(rule, [None] * len(variables), None, [], {})
        return tell_servers(self._strategy, spec, optimizer.name, variables, slots)


def _config_of(optimizer: BaseOptimizer) -> dict[str, Any]:
    """Returns what an optimizer on a server is made of. Workers clip and unscale gradients."""
    try:
        config = optimizer.get_config()
    except NotImplementedError as error:
        raise TypeError(
            f"The optimizer {optimizer.name!r} has no get_config(), from which servers make one "
            "like it. Write one, which returns the arguments of its __init__."
        ) from error
    config["loss_scale_factor"] = None
    if not optimizer.gradient_accumulation_steps:
        config.update(clipnorm=None, clipvalue=None, global_clipnorm=None)
    rate = optimizer._learning_rate
    if not isinstance(rate, JaxVariable):
        config["learning_rate"] = rate  # a schedule, as it is
    return config


def served(optimizer: BaseOptimizer) -> Any:
    """Returns what stands for an optimizer whose variables are on servers, or None.

    In the process of the coordinator that is a `Served`, on a worker what sends gradients.
    """
    found = vars(optimizer).get("_on_servers")
    if found is None and isinstance(own := _count_of(optimizer), OnServers):
        strategy = own.__rx_variable__.distribute_strategy
        if isinstance(optimizer, LossScaleOptimizer):
            raise TypeError(
                "A LossScaleOptimizer, which a model has under the policy mixed_float16, cannot "
                "update variables on parameter servers. Use mixed_bfloat16, or float32."
            )
        found = Served(optimizer, strategy)
        object.__setattr__(optimizer, "_on_servers", found)
    return found


def _count_of(optimizer: BaseOptimizer) -> Any:
    return vars(optimizer).get("_iterations")


def apply(
    optimizer: BaseOptimizer, grads: Sequence[Any], trainable_variables: Sequence[Any] | None
) -> bool:
    """Sends gradients to the servers, in a function on a worker. Returns whether this is one."""
    sender = vars(optimizer).get("_on_servers")
    if sender is None or isinstance(sender, Served):
        return False
    variables = (
        optimizer._trainable_variables if trainable_variables is None else trainable_variables
    )
    pairs = [
        (gradient, getattr(variable, "__rx_variable__", variable))
        for gradient, variable in zip(grads, variables, strict=True)
    ]
    given = [gradient for gradient, _ in pairs if gradient is not None]
    if (scale := optimizer.loss_scale_factor) is not None:
        given = [gradient / scale for gradient in given]
    if not optimizer.gradient_accumulation_steps:
        given = optimizer._clip_gradients(given)
    ready = iter(given)
    sender.apply_gradients(
        [(None if gradient is None else next(ready), variable) for gradient, variable in pairs]
    )
    return True


def with_its_variable(
    original: Original,
    optimizer: BaseOptimizer,
    reference_variable: Any,
    name: str | None = None,
    initializer: Any = "zeros",
) -> Any:
    """Makes a variable of an optimizer where that is which it belongs to."""
    if getattr(reference_variable, "_to_be_made_in", None) is not None:
        _variables.make_late(reference_variable)  # then it has its class; a plain one keeps its own
    if not isinstance(reference_variable, OnServers) or (found := served(optimizer)) is None:
        return original(optimizer, reference_variable, name, initializer)
    place = get_strategy().extended.colocate_vars_with(reference_variable.__rx_variable__)
    with _has_place.set(True), place:
        slot = original(optimizer, reference_variable, name, initializer)
    found.slots.note(slot, reference_variable, name)
    return slot


_has_place = ThreadValue(False)  # the variable that is being made goes to where another is


def on_all_servers() -> contextlib.AbstractContextManager[Any]:
    """Variables that belong to no other, made inside, are on each server."""
    strategy = get_strategy() if has_strategy() else None
    if not isinstance(strategy, ParameterServerStrategy) or _has_place.value:
        return contextlib.nullcontext()
    return strategy.extended.colocate_vars_with(strategy.extended.parameter_devices)


def is_on_servers(strategy: object) -> bool:
    """Returns whether the variables of a strategy are on servers, on the coordinator."""
    return isinstance(strategy, ParameterServerStrategy)


def next_seed(generator: SeedGenerator) -> Any:
    """Returns the next seed of this worker: no other worker draws the same numbers.

    Workers may read a state at the same moment, so each has a stream of its own. They add to the
    state instead of assigning it, so that it never goes back to one that was used.
    """
    strategy = get_strategy()
    assert isinstance(strategy, WorkerStrategy)
    seed = generator.state.value * 1
    generator.state.assign_add(np.array([0, 1], seed.dtype))
    return jax.random.fold_in(seed, strategy.worker_index)


def is_on_worker() -> bool:
    """Returns whether this is a function on a worker."""
    return has_strategy() and isinstance(get_strategy(), WorkerStrategy)
