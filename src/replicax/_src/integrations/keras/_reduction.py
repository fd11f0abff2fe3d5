"""What crosses from replica to replica in a step: gradients, and shares of losses and moments."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from keras.src import backend
from keras.src.backend.jax.core import JaxVariable
from keras.src.layers import BatchNormalization
from keras.src.layers.layer import Layer
from keras.src.losses.loss import squeeze_or_expand_to_same_rank
from keras.src.metrics.reduction_metrics import Mean
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from replicax._src._typing import DTypeLike
from replicax._src.collectives import gradients_weighted_by
from replicax._src.context import (
    ReplicaContext,
    current_replica,
    get_replica_context,
    has_strategy,
)
from replicax._src.integrations.keras._variables import (
    Replicated,
    in_model_fn,
    outside_of_programs,
)
from replicax._src.strategies import Strategy
from replicax._src.training import gradient_watchers, losses_as_means, show_gradients


@final
class Share:
    """What a replica has of the batch, in a step of `fit`: some of the rows, or none.

    What it computes there is a mean over its rows. It counts by their number, so that all replicas
    together have the mean over all rows.
    """

    def __init__(self, rows: int, of: ArrayLike | None = None):
        """
        Args:
          rows: of this replica.
          of: the rows of all replicas; None if they have equally many.
        """
        self.rows = rows
        self._of = of

    def part(self, mean: ArrayLike) -> Any:
        """Returns the part of this replica's mean in that of all rows: those add up to it."""
        mean = jnp.asarray(mean)
        if not jnp.issubdtype(mean.dtype, jnp.inexact):
            mean = mean.astype(float)
        if not self.rows:  # the mean of nothing is not a number
            return jnp.zeros_like(mean)
        return mean * self._fraction.astype(mean.dtype)

    def mean(self, part: jax.Array) -> Any:
        """Returns the opposite: what to take for a mean, if `part` is to be its part."""
        return part / self._fraction.astype(part.dtype) if self.rows else jnp.zeros_like(part)

    def weighting_gradients(self) -> contextlib.AbstractContextManager[None]:
        """Gradients of others, through collectives in the block, count by the rows of others."""
        even = self._of is None
        return contextlib.nullcontext() if even else gradients_weighted_by(self._fraction)

    @property
    def _fraction(self) -> jax.Array:
        if self._of is None:
            context = current_replica()
            return jnp.asarray(1 / (1 if context is None else context.num_replicas_in_sync))
        return self.rows / jnp.asarray(self._of)


@final
class _State(threading.local):
    share: Share | None = None  # in a step of `fit`: a loss is the mean of the replica's rows
    reduced = False  # the gradients are those of all replicas already


_state = _State()
# Each is given what `apply` is, and returns whether the update is made elsewhere.
updates_elsewhere: list[Callable[[BaseOptimizer, Sequence[Any], Sequence[Any] | None], bool]] = []
Original = Callable[..., Any]  # a function of Keras that one of ours is called in place of


@contextlib.contextmanager
def of_means(share: Share) -> Iterator[None]:
    """In a step of `fit` losses are means over the rows of a replica.

    Elsewhere, in loops written by hand, losses are shares of the global one, and add up.
    """
    before, _state.share = _state.share, share
    try:
        with losses_as_means(share.mean), share.weighting_gradients():
            yield
    finally:
        _state.share = before


@contextlib.contextmanager
def _already_reduced() -> Iterator[None]:
    before, _state.reduced = _state.reduced, True
    try:
        yield
    finally:
        _state.reduced = before


def stateless_apply(
    original: Original,
    optimizer: BaseOptimizer,
    optimizer_variables: Sequence[jax.Array],
    grads: Sequence[jax.Array | None],
    trainable_variables: Sequence[jax.Array],
) -> Any:
    """Does what `optimizer.stateless_apply` does, with the gradients of all replicas."""
    if _state.reduced:
        return original(optimizer, optimizer_variables, grads, trainable_variables)
    reduced = _of_all(current_replica(), optimizer, list(grads))
    with _already_reduced():
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
    if backend.in_stateless_scope() or (own is None and context is None):
        original(optimizer, grads, variables)
        return
    if context is None:  # one update, for all replicas
        strategy = None if has_strategy() else own.__rx_variable__.distribute_strategy
        if strategy is None and not has_strategy() and not optimizer.built:  # made outside of all
            with outside_of_programs():
                _build_once(None, optimizer, kept)
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            if not _looks_at_values(optimizer):
                original(optimizer, grads, variables)
                return
            _build_once(None, optimizer, kept)
            _apply_to_values(optimizer, grads, kept)
        return
    given = _given_in_replica(optimizer, variables)
    if not optimizer.built:
        context.merge_call(_build_once, args=(optimizer, given))
    _apply_to_values(optimizer, grads, given)


def _looks_at_values(optimizer: BaseOptimizer) -> bool:
    """Returns whether an update has branches, in which JAX cannot read or assign variables."""
    return isinstance(optimizer, LossScaleOptimizer) or bool(optimizer.gradient_accumulation_steps)


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
    new_values, new_state = optimizer.stateless_apply(
        state, [by_variable.get(id(v)) for v in known], values
    )
    for variable, value in zip(
        [*known, *optimizer.variables], [*new_values, *new_state], strict=True
    ):
        if isinstance(variable, Replicated):
            variable.set_on_replica(value)
        else:  # made outside of all scopes, as all that a strategy has are ours
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
    share = _state.share
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


def scaled_loss(value: jax.Array) -> Any:
    """Returns a mean over this replica's rows as its share of the mean over all rows."""
    context = current_replica()
    if context is None or _is_averaged():
        return value
    return value / context.num_replicas_in_sync


def unscaled_loss(value: jax.Array) -> Any:
    """Returns the opposite, for what is shown."""
    context = current_replica()
    if context is None or _is_averaged():
        return value
    return value * context.num_replicas_in_sync


def _is_averaged() -> bool:
    """Returns whether losses are means over a replica's rows, averaged over the replicas later."""
    return _state.share is not None or in_model_fn()


def reduced_loss(
    original: Original,
    values: jax.Array,
    sample_weight: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: DTypeLike | None = None,
) -> Any:
    """Returns a loss whose mean over the rows of the replicas is the loss of all rows.

    It is the replica's own where every row counts the same. Where some are masked or weigh more,
    replicas divide by what all of them have.
    """
    loss = original(values, sample_weight, mask, reduction, dtype)
    context = current_replica()
    if context is None or reduction in (None, "none"):
        return loss
    if loss.shape == (0,):  # Keras leaves the losses of no rows as they are
        loss = jnp.sum(loss)
    share = _state.share
    if share is None:
        return loss
    if reduction == "sum":
        return share.mean(loss)
    weighted = reduction == "mean_with_sample_weight" and sample_weight is not None
    if mask is None and not weighted:
        return loss
    if weighted:
        divisor: Any = jnp.asarray(sample_weight, loss.dtype)
        if mask is not None:
            kept: Any = jnp.asarray(mask, loss.dtype)
            kept, divisor = squeeze_or_expand_to_same_rank(kept, divisor)
            divisor = divisor * kept  # pyright: ignore[reportOptionalOperand]
    else:
        divisor = jnp.asarray(mask, loss.dtype)
    own = jax.lax.stop_gradient(jnp.sum(divisor))
    return share.mean(loss * _safe_ratio(own, context.all_reduce("SUM", own)))


@final
class LossesOfLayers:
    """Where a model keeps the losses of its layers while its own loss is computed.

    Replicas of the eager executor take turns in there, where they wait for each other: each has its
    own, by its thread.
    """

    _name = "_losses_override"

    def __get__(self, model: Layer | None, kind: type | None = None) -> Any:
        return self if model is None else model.__dict__.setdefault(self._key(), [])

    def __set__(self, model: Layer, losses: list[jax.Array]) -> None:
        model.__dict__[self._key()] = losses

    def _key(self) -> str:
        alone = current_replica() is None
        return self._name if alone else f"{self._name}_{threading.get_ident()}"


@final
class IdsOfLosses:
    """The ids by which a layer knows its losses again among those that a scope collects.

    They are kept with the scope, as long as the losses themselves. A layer that kept them longer
    would take a loss of another layer for its own, where an object has the id of one that is gone;
    and replicas that take turns would clear each other's.
    """

    _name = "_loss_ids"

    def __get__(self, layer: Layer | None, kind: type | None = None) -> Any:
        if layer is None:
            return self
        if not backend.in_stateless_scope():
            return layer.__dict__.setdefault(self._name, set())
        scope = backend.get_stateless_scope()
        return vars(scope).setdefault(self._name, {}).setdefault(id(layer), set())

    def __set__(self, layer: Layer, ids: set[int]) -> None:
        layer.__dict__[self._name] = ids


def update_mean(
    original: Original, metric: Mean, values: ArrayLike, sample_weight: ArrayLike | None = None
) -> None:
    """Updates a `Mean`. In it, one number for a step of `fit`, say the loss, counts once.

    Replicas have a part of the step each; one without rows has nothing to say.
    """
    share = None if current_replica() is None else _state.share
    if share is not None and not share.rows:
        values, sample_weight = 0.0, 0.0
    elif share is not None and sample_weight is None and jnp.ndim(values) == 0:
        sample_weight = share.part(1.0)
    original(metric, values, sample_weight)


def _safe_ratio(part: jax.Array, whole: jax.Array) -> Any:
    return jnp.where(whole == 0, 0, part / jnp.where(whole == 0, 1, whole))


def moments(
    original: Original,
    x: jax.Array,
    axes: Sequence[int],
    keepdims: bool = False,
    synchronized: bool = False,
) -> Any:
    """Mean and variance, of the rows of all replicas if asked for."""
    context = current_replica() if synchronized else None
    if context is None:
        return original(x, axes, keepdims, False)
    dtype = x.dtype
    exact = x.astype(jnp.float32) if dtype in (jnp.float16, jnp.bfloat16) else x
    total = jnp.sum(exact, axes, keepdims=True)
    total, count = context.all_reduce("SUM", (total, jnp.asarray(x.size / total.size, total.dtype)))
    mean = total / count
    # In two passes, as on one device: the difference of mean squares would lose digits.
    squares = jnp.sum(jnp.square(exact - mean), axes, keepdims=True)
    variance = context.all_reduce("SUM", squares) / count
    if not keepdims:
        mean, variance = jnp.squeeze(mean, axes), jnp.squeeze(variance, axes)
    return mean.astype(dtype), variance.astype(dtype)


def masked_moments(
    original: Original, layer: BatchNormalization, inputs: jax.Array, mask: ArrayLike | None
) -> Any:
    """Returns those of a `BatchNormalization` whose input has a mask: of the rows that count."""
    context = current_replica() if layer.synchronized and mask is not None else None
    if context is None:
        return original(layer, inputs, mask)
    axes = layer._reduction_axes
    counts = jnp.broadcast_to(jnp.asarray(mask)[..., None], inputs.shape).astype(inputs.dtype)

    def mean_of_all(values: jax.Array) -> Any:
        sums = [jnp.sum(each * counts, axes, keepdims=True) for each in (values, 1)]
        total, count = context.all_reduce("SUM", sums)
        return total / (count + backend.epsilon())

    mean = mean_of_all(inputs)
    variance = mean_of_all(jnp.square(inputs - mean))
    return jnp.squeeze(mean), jnp.squeeze(variance)


def normalized(
    original: Original,
    layer: BatchNormalization,
    inputs: jax.Array,
    training: bool | None = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Calls a `BatchNormalization`. Without rows there is nothing to learn from for a replica.

    Where replicas normalize together, it learns from the rows of the others.
    """
    alone = current_replica() is None or not layer.synchronized
    if alone and 0 in jnp.shape(inputs):
        training = False
    return original(layer, inputs, training=training, mask=mask)


def seed_of_replica(seed: jax.Array) -> Any:
    """Replicas draw different numbers from one seed."""
    context = current_replica()
    if context is None:
        return seed
    return jax.random.fold_in(seed, context.replica_id_in_sync_group)
