"""Metrics as sums and counts in sync-on-read variables.

Each replica adds to its own copy. `result` divides totals over all replicas, so a ratio is never
averaged over replicas, and a short last batch has its true weight.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._arrays import for_mean
from replicax._src._errors import PerReplicaValueError
from replicax._src._typing import ArrayInput, DTypeLike
from replicax._src.context import in_cross_replica_context, require_threads
from replicax._src.variable import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    copies_differ,
)

metric_watchers: list[Callable[[Variable], None]] = []
"""Called with each sum of a metric that is added to: traps look at it."""


class Metric:
    """Base of metrics. A subclass makes sums with `add_weight` and defines the other two.

    `update_state(...)` is called in replica context and adds to the sums; `_result()` computes the
    metric from their totals.
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32):
        self.name = name or type(self).__name__.lower()
        self.dtype = jnp.dtype(dtype)
        self._weights: list[Variable] = []

    def add_weight(self, name: str, shape: Sequence[int] = ()) -> Variable:
        """Returns a sum that starts at zero: sync-on-read, added up over the replicas."""
        weight = Variable(
            jnp.zeros(tuple(shape), self.dtype),
            name=f"{self.name}/{name}",
            trainable=False,
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
        )
        self._weights.append(weight)
        return weight

    def _add(self, weight: Variable, amount: jax.Array) -> None:
        """Adds to a sum: this replica's copy, or in cross-replica context the whole."""
        for watcher in metric_watchers:
            watcher(weight)
        if copies_differ(weight) and in_cross_replica_context():
            weight.assign(weight.read_value() + amount)
        else:
            weight.assign_add(amount)

    @property
    def variables(self) -> list[Variable]:
        """The sums."""
        return list(self._weights)

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Adds a batch."""
        raise TypeError(f"{type(self).__name__} must define update_state.")

    def _result(self) -> jax.Array:
        raise TypeError(f"{type(self).__name__} must define _result.")

    def result(self) -> jax.Array:
        """Returns the metric over everything added so far, on all replicas.

        In replica context, over what this replica has added, as in Keras.
        """
        return self._result()

    def reset_state(self) -> None:
        """Sets the sums to zero."""
        require_threads("reset_state of a metric")
        for weight in self._weights:
            weight.assign(jnp.zeros(weight.shape, weight.dtype))

    reset_states = reset_state

    def __call__(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Adds a batch and returns the result so far."""
        self.update_state(*args, **kwargs)
        return self.result()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name!r}>"


class Sum(Metric):
    """The (weighted) sum of all values."""

    def __init__(self, name: str | None = "sum", dtype: DTypeLike = jnp.float32):
        super().__init__(name, dtype)
        self.total = self.add_weight("total")

    def update_state(self, values: object, sample_weight: ArrayInput | None = None) -> None:
        """Adds `values`, each times its weight."""
        require_threads("update_state of a metric")
        total, _ = _totals(values, sample_weight, self.dtype, jnp.sum)
        self._add(self.total, total)

    def _result(self) -> jax.Array:
        return self.total.read_value()


class Mean(Metric):
    """The (weighted) mean of all values; 0 before the first.

    As in Keras, the first dimension counts examples: each is the mean of its values, and has one
    weight. A single weight makes of all values one example.

    >>> import replicax as rx
    >>> metric = rx.metrics.Mean()
    >>> metric.update_state([1.0, 3.0])
    >>> metric.update_state(8.0)
    >>> float(metric.result())
    4.0
    """

    def __init__(self, name: str | None = "mean", dtype: DTypeLike = jnp.float32):
        super().__init__(name, dtype)
        self.total = self.add_weight("total")
        self.count = self.add_weight("count")

    def update_state(self, values: object, sample_weight: ArrayInput | None = None) -> None:
        """Adds `values`, each with its weight."""
        require_threads("update_state of a metric")
        total, count = _totals(values, sample_weight, self.dtype, jnp.mean)
        self._add(self.total, total)
        self._add(self.count, count)

    def _result(self) -> jax.Array:
        return _ratio(self.total.read_value(), self.count.read_value())


class MeanMetricWrapper(Mean):
    """The mean of `fn(y_true, y_pred)` over all examples.

    Args:
      fn: gives one value per example.
      name: the metric's name.
      dtype: of its sums.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        dtype: DTypeLike = jnp.float32,
        **kwargs: object,
    ):
        super().__init__(name or getattr(fn, "__name__", "mean"), dtype)
        if not callable(fn):
            raise TypeError(f"`fn` must be a function of (y_true, y_pred); got {fn!r}.")
        self._fn = functools.partial(fn, **kwargs) if kwargs else fn

    def update_state(
        self, y_true: ArrayInput, y_pred: ArrayInput, sample_weight: ArrayInput | None = None
    ) -> None:
        """Adds a batch of true and predicted values."""
        require_threads("update_state of a metric")
        super().update_state(self._fn(jnp.asarray(y_true), jnp.asarray(y_pred)), sample_weight)


class Accuracy(MeanMetricWrapper):
    """How often `y_pred` equals `y_true`."""

    def __init__(self, name: str | None = "accuracy", dtype: DTypeLike = jnp.float32):
        super().__init__(_equal, name, dtype)


class BinaryAccuracy(MeanMetricWrapper):
    """How often `y_pred > threshold` equals `y_true`."""

    def __init__(
        self,
        name: str | None = "binary_accuracy",
        dtype: DTypeLike = jnp.float32,
        threshold: float = 0.5,
    ):
        super().__init__(_binary_match, name, dtype, threshold=threshold)


class CategoricalAccuracy(MeanMetricWrapper):
    """How often the largest of `y_pred` is where the one-hot `y_true` is."""

    def __init__(self, name: str | None = "categorical_accuracy", dtype: DTypeLike = jnp.float32):
        super().__init__(_categorical_match, name, dtype)


class SparseCategoricalAccuracy(MeanMetricWrapper):
    """How often the largest of `y_pred` is at the integer label `y_true`."""

    def __init__(
        self, name: str | None = "sparse_categorical_accuracy", dtype: DTypeLike = jnp.float32
    ):
        super().__init__(_sparse_categorical_match, name, dtype)


class SparseTopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the integer label `y_true` is among the `k` largest of `y_pred`."""

    def __init__(
        self,
        k: int = 5,
        name: str | None = "sparse_top_k_categorical_accuracy",
        dtype: DTypeLike = jnp.float32,
    ):
        if not isinstance(k, int | np.integer) or isinstance(k, bool):
            raise TypeError(f"SparseTopKCategoricalAccuracy: `k` is a whole number; got {k!r}.")
        if k < 1:
            raise ValueError(
                f"SparseTopKCategoricalAccuracy: `k` counts the best classes, so it must be 1 or "
                f"more; got {k!r}."
            )
        super().__init__(_sparse_top_k_match, name, dtype, k=k)


class MeanSquaredError(MeanMetricWrapper):
    """The mean of the squared differences."""

    def __init__(self, name: str | None = "mean_squared_error", dtype: DTypeLike = jnp.float32):
        super().__init__(_squared_error, name, dtype)


class MeanAbsoluteError(MeanMetricWrapper):
    """The mean of the absolute differences."""

    def __init__(self, name: str | None = "mean_absolute_error", dtype: DTypeLike = jnp.float32):
        super().__init__(_absolute_error, name, dtype)


class RootMeanSquaredError(MeanMetricWrapper):
    """The square root of the mean of the squared differences, over everything added."""

    def __init__(
        self, name: str | None = "root_mean_squared_error", dtype: DTypeLike = jnp.float32
    ):
        super().__init__(_squared_error, name, dtype)

    def _result(self) -> jax.Array:
        return jnp.sqrt(super()._result())


def _numbers(value: object, argument: str) -> jax.Array:
    try:
        return jnp.asarray(value)
    except PerReplicaValueError:
        raise
    except (TypeError, ValueError):
        raise TypeError(
            f"A metric's {argument} must be arrays or numbers; got {value!r}."
        ) from None


@functools.partial(jax.jit, static_argnums=(2, 3))
def _totals_of_arrays(
    values: Any, weight: Any, dtype: Any, reduce: Callable[..., jax.Array]
) -> tuple[jax.Array, jax.Array]:
    values = values.astype(dtype)
    if weight is not None:
        values, weight = _of_one_rank(values, weight.astype(dtype))
        if values.ndim > weight.ndim:  # one weight for several values
            values = reduce(values, axis=tuple(range(weight.ndim, values.ndim)))
        weight = jnp.broadcast_to(weight, values.shape)
        values = values * weight
    values = reduce(values, axis=tuple(range(1, values.ndim)))
    if weight is None:
        return jnp.sum(values), jnp.asarray(values.size, dtype)
    return jnp.sum(values), jnp.sum(reduce(weight, axis=tuple(range(1, weight.ndim))))


def _totals(
    values: Any, weight: Any, dtype: Any, reduce: Callable[..., jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Returns the sum over the examples, and the sum of their weights.

    Args:
      values: of any number of dimensions, the first of which are the examples.
      weight: for each example, for each value, or for all of them.
      dtype: of the sums.
      reduce: what becomes of the values of one example, `jnp.sum` or `jnp.mean`.
    """
    values = _numbers(values, "values")
    weight = None if weight is None else _numbers(weight, "`sample_weight`")
    try:
        return _totals_of_arrays(values, weight, dtype, reduce)
    except ValueError:
        raise ValueError(
            f"`sample_weight` of shape {jnp.shape(weight)} does not fit values of shape "
            f"{values.shape}. Pass one weight per example, or one for all."
        ) from None


@jax.jit
def _ratio(total: jax.Array, count: jax.Array) -> jax.Array:
    return jnp.where(count == 0, 0, total / jnp.where(count == 0, 1, count))


def _of_one_rank(one: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Arrays of which one has a last dimension of size 1 more: without it, or both with it."""
    if one.ndim == other.ndim + 1 and one.shape[-1] == 1:
        return (one, other[:, None]) if other.ndim == 1 else (one[..., 0], other)
    if other.ndim == one.ndim + 1 and other.shape[-1] == 1:
        return (one[:, None], other) if one.ndim == 1 else (one, other[..., 0])
    return one, other


def _require_same_shape(y_true: jax.Array, y_pred: jax.Array) -> tuple[jax.Array, jax.Array]:
    y_true, y_pred = _of_one_rank(y_true, y_pred)
    if y_true.shape != y_pred.shape:
        raise ValueError(
            f"`y_true` has shape {y_true.shape} and `y_pred` {y_pred.shape}; they must be equal."
        )
    return y_true, y_pred


def _equal(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    y_true, y_pred = _require_same_shape(y_true, y_pred)
    return y_true == y_pred


def _binary_match(y_true: jax.Array, y_pred: jax.Array, threshold: float) -> jax.Array:
    y_true, y_pred = _require_same_shape(y_true, y_pred)
    return y_true == (y_pred > threshold)


def _categorical_match(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    y_true, y_pred = _require_same_shape(y_true, y_pred)
    return jnp.argmax(y_true, -1) == jnp.argmax(y_pred, -1)


def _labels(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    labels = y_true[..., 0] if y_true.ndim == y_pred.ndim and y_true.shape[-1] == 1 else y_true
    if labels.shape != y_pred.shape[:-1]:
        raise ValueError(
            f"`y_true` must be integer labels of shape {y_pred.shape[:-1]} for predictions of "
            f"shape {y_pred.shape}; got shape {y_true.shape}. For one-hot labels use "
            "CategoricalAccuracy."
        )
    return labels


def _sparse_categorical_match(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    return _labels(y_true, y_pred) == jnp.argmax(y_pred, -1)


def _sparse_top_k_match(y_true: jax.Array, y_pred: jax.Array, k: int) -> jax.Array:
    labels = _labels(y_true, y_pred)[..., None].astype(jnp.int32)
    scores = for_mean(y_pred)
    score = jnp.take_along_axis(scores, labels, -1, mode="fill", fill_value=jnp.nan)
    score = jnp.where(jnp.isnan(score), -jnp.inf, score)
    return jnp.sum(scores > score, -1) < k  # equal scores have one rank, as in Keras


def _difference(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    """Of floats with 32 bits or more: small integers would overflow."""
    y_true, y_pred = _require_same_shape(y_true, y_pred)
    dtype = jnp.promote_types(jnp.promote_types(y_true.dtype, y_pred.dtype), jnp.float32)
    return y_pred.astype(dtype) - y_true.astype(dtype)


def _squared_error(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    return jnp.square(_difference(y_true, y_pred))


def _absolute_error(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    return jnp.abs(_difference(y_true, y_pred))
