"""Losses and means of replicas, as shares of those of all rows."""

from __future__ import annotations

import threading
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from keras.src import backend
from keras.src.layers.layer import Layer
from keras.src.losses.loss import squeeze_or_expand_to_same_rank
from keras.src.metrics.reduction_metrics import Mean

from replicax._src._typing import DTypeLike
from replicax._src.context import current_replica
from replicax._src.integrations.keras._shares import share_here
from replicax._src.integrations.keras._variables import Original, in_model_fn


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
    return share_here() is not None or in_model_fn()


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
    share = share_here()
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
    share = None if current_replica() is None else share_here()
    if share is not None and not share.rows:
        values, sample_weight = 0.0, 0.0
    elif share is not None and sample_weight is None and jnp.ndim(values) == 0:
        sample_weight = share.part(1.0)
    original(metric, values, sample_weight)


def _safe_ratio(part: jax.Array, whole: jax.Array) -> Any:
    return jnp.where(whole == 0, 0, part / jnp.where(whole == 0, 1, whole))
