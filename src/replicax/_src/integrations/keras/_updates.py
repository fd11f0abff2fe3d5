"""Updates of Keras optimizers: one, from the gradients of all replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from keras.src import backend
from keras.src.backend.jax.core import JaxVariable
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from replicax._src._thread_value import ThreadValue
from replicax._src.context import (
    ReplicaContext,
    current_replica,
    get_replica_context,
    get_strategy,
    has_strategy,
)
from replicax._src.integrations.keras._shares import share_here
from replicax._src.integrations.keras._variables import Original, Replicated, outside_of_programs
from replicax._src.strategies import Strategy
from replicax._src.training import gradient_watchers, show_gradients

_is_reduced = ThreadValue(False)  # the gradients are those of all replicas already
# Each is given what `apply` is, and returns whether the update is made elsewhere.
updates_elsewhere: list[Callable[[BaseOptimizer, Sequence[Any], Sequence[Any] | None], bool]] = []


def stateless_apply(
    original: Original,
    optimizer: BaseOptimizer,
    optimizer_variables: Sequence[jax.Array],
    grads: Sequence[jax.Array | None],
    trainable_variables: Sequence[jax.Array],
) -> Any:
    """Does what `optimizer.stateless_apply` does, with the gradients of all replicas."""
    if _is_reduced.value:
        return original(optimizer, optimizer_variables, grads, trainable_variables)
    reduced = _of_all(current_replica(), optimizer, list(grads))
    with _is_reduced.set(True):
        return original(optimizer, optimizer_variables, reduced, trainable_variables)


def apply(
    original: Original,
    optimizer: BaseOptimizer,
    grads: Sequence[jax.Array | None],
    trainable_variables: Sequence[JaxVariable] | None = None,
) -> None:
    """Does what `optimizer.apply` does; in a replica, the same update on every replica."""
    for elsewhere in updates_elsewhere:
        if elsewhere(optimizer, grads, trainable_variables):
            return
    variables = trainable_variables
    kept = variables if variables is not None else optimizer._trainable_variables or ()
    own = next((variable for variable in kept if isinstance(variable, Replicated)), None)
    context = get_replica_context() if has_strategy() else None
    if context is not None and not backend.in_stateless_scope():
        given = _given_in_replica(optimizer, variables)
        if not optimizer.built:
            context.merge_call(_build_once, args=(optimizer, given))
        _apply_to_values(optimizer, grads, given)
    elif own is None or backend.in_stateless_scope():
        original(optimizer, grads, variables)
    else:  # one update, for all replicas
        strategy = get_strategy() if has_strategy() else own.__rx_variable__.distribute_strategy
        if strategy is None and not optimizer.built:  # made outside of all scopes
            with outside_of_programs():
                _build_once(None, optimizer, kept)
        with contextlib.nullcontext() if has_strategy() or not strategy else strategy.scope():
            if _looks_at_values(optimizer):
                _build_once(None, optimizer, kept)
                _apply_to_values(optimizer, grads, kept)
            else:
                original(optimizer, grads, variables)


def _looks_at_values(optimizer: BaseOptimizer) -> bool:
    """Returns whether an update has branches, in which JAX cannot read or assign variables."""
    return _may_overflow(optimizer) or bool(optimizer.gradient_accumulation_steps)


def _given_in_replica(
    optimizer: BaseOptimizer, variables: Sequence[JaxVariable] | None
) -> Sequence[JaxVariable]:
    """Returns the variables to update: all that the optimizer has, if none are given."""
    outside = [v.path for v in optimizer.variables if not isinstance(v, Replicated)]
    if outside:
        raise ValueError(
            f"The optimizer {optimizer.name!r} was made outside of the strategy's scope (its "
            f"variable {outside[0]!r} is on one device). Make it inside `with strategy.scope():`."
        )
    if variables is None and not optimizer.built:
        raise ValueError("The optimizer is not built: pass the variables, or build it first.")
    given = optimizer._trainable_variables if variables is None else list(variables)
    strange = [v for v in given if not isinstance(v, Replicated)]
    if strange:
        raise ValueError(
            "A Keras optimizer updates Keras variables that were made in the strategy's scope; "
            f"got {strange[0]!r}. Make the model inside `with strategy.scope():`; for rx.Variables "
            "there is rx.Optimizer."
        )
    return given


def _apply_to_values(
    optimizer: BaseOptimizer, grads: Sequence[jax.Array | None], given: Sequence[JaxVariable]
) -> None:
    """Makes an update as a function of values: in a replica, the same one on every replica."""
    by_variable = {id(v): g for v, g in zip(given, grads, strict=True)}
    known = optimizer._trainable_variables
    unknown = by_variable.keys() - {id(v) for v in known}
    if unknown:
        raise ValueError(
            f"The optimizer {optimizer.name!r} was built for other variables: "
            f"{[v.path for v in given if id(v) in unknown]} are not among them. Build it with all "
            "of them before the first update: optimizer.build(variables)."
        )
    state = [v.value for v in optimizer.variables]
    values = [v.value for v in known]
    found: Any = optimizer.stateless_apply(state, [by_variable.get(id(v)) for v in known], values)
    new_values, new_state = found
    for variable, value in zip(
        [*known, *optimizer.variables], [*new_values, *new_state], strict=True
    ):
        if isinstance(variable, Replicated):
            variable.set_on_replica(value)
        else:  # outside of all scopes some may be Keras's own
            variable.assign(value)


def _build_once(
    _: Strategy | None, optimizer: BaseOptimizer, variables: Sequence[JaxVariable]
) -> None:
    if not optimizer.built:
        with backend.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(variables)
        optimizer.built = True


def _of_all(
    context: ReplicaContext | None, optimizer: BaseOptimizer, grads: list[Any]
) -> list[Any]:
    if context is None:
        return grads
    share = share_here()
    present = [g if share is None else share.part(g) for g in grads if g is not None]
    if gradient_watchers:
        variables = zip(grads, optimizer._trainable_variables, strict=False)
        show_gradients(
            [_without_overflow(g) for g in present] if _may_overflow(optimizer) else present,
            [getattr(v, "__rx_variable__", None) for g, v in variables if g is not None],
        )
    reduced = iter(context.all_reduce("SUM", present))
    return [None if g is None else next(reduced) for g in grads]


def _may_overflow(optimizer: BaseOptimizer) -> bool:
    """Returns whether an optimizer tries scales until gradients do not overflow any more."""
    return isinstance(optimizer, LossScaleOptimizer)


def _without_overflow(gradient: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(gradient), gradient, 0)
