"""When copies of a variable agree, and how updates of replicas are combined: one table.

A new kind of variable is a new row here before it is a new class.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import enum
from typing import Any, final

import jax
import jax.numpy as jnp

from replicax._src._errors import AggregationError
from replicax._src._typing import DTypeLike, override


class VariableSynchronization(enum.Enum):
    """When the copies of a variable are made to agree."""

    AUTO = 0
    """The strategy chooses; that is ON_WRITE under every strategy here."""
    NONE = 1
    """There is one copy only. Not possible under a strategy with several replicas."""
    ON_WRITE = 2
    """All copies are updated together: weights."""
    ON_READ = 3
    """Each replica keeps its own copy; they are aggregated when read: metrics, counters."""


class VariableAggregation(enum.Enum):
    """How the updates of replicas, or the copies of a sync-on-read variable, are combined."""

    NONE = 0
    """They are not: an update in replica context is an error."""
    SUM = 1
    """They are added."""
    MEAN = 2
    """They are averaged."""
    ONLY_FIRST_REPLICA = 3
    """The first replica's counts."""


_CROSS_REPLICA_ADD = {
    # May a sync-on-read variable be added to in cross-replica context? With SUM each copy would
    # get the whole amount, and a read would count it once per replica.
    VariableAggregation.NONE: True,
    VariableAggregation.SUM: False,
    VariableAggregation.MEAN: True,
    VariableAggregation.ONLY_FIRST_REPLICA: True,
}


def as_synchronization(value: object) -> VariableSynchronization:
    return _as_member(VariableSynchronization, "synchronization", value)


def as_aggregation(value: object) -> VariableAggregation:
    return _as_member(VariableAggregation, "aggregation", value)


def _as_member(kind: type, argument: str, value: object) -> Any:
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value.upper() in kind.__members__:
        return kind.__members__[value.upper()]
    if value is None:
        return kind(0)
    choices = ", ".join(f"rx.{kind.__name__}.{member}" for member in kind.__members__)
    raise ValueError(f"`{argument}` must be one of {choices}; got {value!r}.")


@final
class Change(enum.Enum):
    """How an assignment changes a variable; written as the method that users call."""

    ASSIGN = "assign"
    ADD = "assign_add"
    SUBTRACT = "assign_sub"

    @override
    def __str__(self) -> str:
        return self.value

    def of(self, old: jax.Array, value: jax.Array) -> jax.Array:
        """Returns what a variable holds after the change."""
        if self is Change.ASSIGN:
            return value
        return jnp.add(old, value) if self is Change.ADD else jnp.subtract(old, value)


def resolve_trainable(trainable: bool | None, synchronization: VariableSynchronization) -> bool:
    """Unless told otherwise, everything but sync-on-read variables is trainable."""
    if trainable is None:
        return synchronization is not VariableSynchronization.ON_READ
    return bool(trainable)


def require_fitting_dtype(name: str, aggregation: VariableAggregation, dtype: DTypeLike) -> None:
    if aggregation is VariableAggregation.MEAN and not jnp.issubdtype(dtype, jnp.inexact):
        raise AggregationError(
            f"Variable {name!r} has dtype {dtype} and aggregation MEAN, but the mean of integers "
            "is not an integer. Make it with a float dtype, or with aggregation SUM or "
            "ONLY_FIRST_REPLICA."
        )


def require_update_allowed(name: str, aggregation: VariableAggregation, how: enum.Enum) -> None:
    """`AggregationError` unless replicas may update an on-write variable."""
    if aggregation is VariableAggregation.NONE:
        raise AggregationError(
            f"{how} of variable {name!r} in replica context: the variable has no aggregation, so "
            "there is no telling how to combine the replicas' updates. Make it with "
            "aggregation=rx.VariableAggregation.SUM (or MEAN, or ONLY_FIRST_REPLICA), or update it "
            "in cross-replica context, after strategy.run."
        )


def cannot_combine(name: str, aggregation: VariableAggregation, how: enum.Enum) -> AggregationError:
    """Returns an error to raise: what replicas do to single items is neither a sum nor a mean."""
    return AggregationError(
        f"{how} of variable {name!r} in replica context: with aggregation {aggregation.name} "
        "there is no telling which replica's values count. Make it with "
        "aggregation=rx.VariableAggregation.ONLY_FIRST_REPLICA, or change it in cross-replica "
        "context, after strategy.run."
    )


def require_cross_replica_add(name: str, aggregation: VariableAggregation, how: Change) -> None:
    """`AggregationError` if a sync-on-read variable cannot be added to for all replicas."""
    if not _CROSS_REPLICA_ADD[aggregation]:
        raise AggregationError(
            f"{how} of the sync-on-read variable {name!r} in cross-replica context: with "
            "aggregation SUM the amount would count once per replica when read. Call it inside "
            "strategy.run, or set the whole with assign, which divides the value over the copies."
        )


def require_readable(name: str, aggregation: VariableAggregation) -> None:
    if aggregation is VariableAggregation.NONE:
        raise AggregationError(
            f"Reading the sync-on-read variable {name!r} in cross-replica context: it has no "
            "aggregation, so its copies cannot be made into one value. Make it with "
            "aggregation=rx.VariableAggregation.SUM (or MEAN, or ONLY_FIRST_REPLICA), or look at "
            "the copies with strategy.experimental_local_results(variable)."
        )
