"""Metrics."""

import jax.numpy as jnp

from tests.misuse.table import USE_RUN_OR_REDUCE, errors, misuse, per_replica, rx


@misuse(ValueError, r"shape \(4,\) and `y_pred` \(3,\)", r"must be equal")
def labels_and_predictions_of_different_lengths(strategy):
    rx.metrics.Accuracy().update_state(jnp.ones(4), jnp.ones(3))


@misuse(ValueError, r"got shape \(4, 10\)", r"For one-hot labels use CategoricalAccuracy")
def one_hot_labels_where_numbers_are_needed(strategy):
    rx.metrics.SparseCategoricalAccuracy().update_state(jnp.ones((4, 10)), jnp.ones((4, 10)))


@misuse(ValueError, r"`sample_weight` of shape \(3,\).*\(4,\)", r"Pass one weight per exampl")
def metric_weights_that_do_not_fit(strategy):
    rx.metrics.Mean().update_state(jnp.ones(4), sample_weight=jnp.ones(3))


@misuse(errors.PerReplicaValueError, r"2 values", USE_RUN_OR_REDUCE)
def metric_of_per_replica(strategy):
    with strategy.scope():
        mean = rx.metrics.Mean()
    mean.update_state(per_replica(strategy))


@misuse(errors.AggregationError, r"mean/total.*cross-replica", r"inside strategy\.run")
def metric_updated_in_cross_replica_context(strategy):
    with strategy.scope():
        mean = rx.metrics.Mean()
    mean.update_state(jnp.ones(3))


@misuse(TypeError, r"`fn`.*got 'accuracy'", r"a function of \(y_true, y_pred\)")
def metric_by_name(strategy):
    rx.metrics.MeanMetricWrapper("accuracy")


@misuse(TypeError, r"Unfinished", r"must define update_state")
def metric_without_an_update(strategy):
    class Unfinished(rx.metrics.Metric):
        pass

    Unfinished().update_state(1.0)


@misuse(ValueError, r"`k`.*got 0", r"must be 1 or more")
def top_0(strategy):
    rx.metrics.SparseTopKCategoricalAccuracy(k=0)


@misuse(TypeError, r"`k`.*got 'x'", r"is a whole number")
def top_x(strategy):
    rx.metrics.SparseTopKCategoricalAccuracy(k="x")
