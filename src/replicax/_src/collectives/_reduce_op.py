"""`ReduceOp`: how the values of replicas are combined."""

from __future__ import annotations

import enum


class ReduceOp(enum.Enum):
    """`SUM` adds the replicas' values; `MEAN` divides their sum by the number of replicas."""

    SUM = "SUM"
    MEAN = "MEAN"

    @staticmethod
    def from_variable_aggregation(aggregation: object) -> ReduceOp:
        """Returns the reduction that `rx.VariableAggregation.SUM` or `MEAN` stands for.

        Raises:
          ValueError: for other aggregations, which are no reductions.
        """
        if isinstance(aggregation, enum.Enum) and aggregation.name in ReduceOp.__members__:
            return ReduceOp[aggregation.name]
        raise ValueError(
            f"{aggregation!r} stands for no reduction. Pass rx.VariableAggregation.SUM or "
            "rx.VariableAggregation.MEAN."
        )


ReduceOpLike = ReduceOp | str | enum.Enum
"""What stands for a reduction: itself, its name, or the `VariableAggregation` of that name."""


def as_reduce_op(op: object) -> ReduceOp:
    """Returns the `ReduceOp` for itself, its name, or `VariableAggregation.SUM`/`MEAN`."""
    if isinstance(op, ReduceOp):
        return op
    name = op.name if isinstance(op, enum.Enum) else op
    if isinstance(name, str) and name.upper() in ReduceOp.__members__:
        return ReduceOp[name.upper()]
    kind = ValueError if isinstance(op, str) or isinstance(op, enum.Enum) else TypeError
    raise kind(
        f"{op!r} is not a reduction. Use rx.distribute.ReduceOp.SUM or rx.distribute.ReduceOp.MEAN "
        "(or the strings 'SUM' and 'MEAN')."
    )
