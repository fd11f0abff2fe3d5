"""`get_loss_reduction`: how gradients of a loss are combined over the replicas."""

from __future__ import annotations

from replicax import _old_names
from replicax.distribute import ReduceOp


def get_loss_reduction() -> ReduceOp:
    """`ReduceOp.SUM`: gradients are summed, so a loss is divided by the global batch size.

    In TensorFlow it is MEAN inside an `Estimator` that scales the loss by the number of replicas.
    """
    _old_names.warn_of("rx.compat.v1.distribute.get_loss_reduction")
    return ReduceOp.SUM
