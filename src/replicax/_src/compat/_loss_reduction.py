"""`get_loss_reduction`: how the losses of the replicas are combined."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from replicax._src import _old_names
from replicax._src.collectives import ReduceOp

_are_averaged = contextvars.ContextVar("losses_are_averaged", default=False)


def get_loss_reduction() -> ReduceOp:
    """`ReduceOp.SUM`: gradients are summed, so a loss is divided by the global batch size.

    In the `model_fn` of an `Estimator` it is MEAN, as the estimator averages over the replicas.
    """
    _old_names.warn_of("rx.compat.v1.distribute.get_loss_reduction")
    return ReduceOp.MEAN if _are_averaged.get() else ReduceOp.SUM


@contextlib.contextmanager
def averaged_losses() -> Iterator[None]:
    """Inside, losses are the means over the rows of one replica."""
    token = _are_averaged.set(True)
    try:
        yield
    finally:
        _are_averaged.reset(token)
