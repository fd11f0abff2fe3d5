"""What a replica has of a batch in a step of `fit`, and how what it computes counts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from replicax._src._thread_value import ThreadValue
from replicax._src.collectives import gradients_weighted_by
from replicax._src.context import current_replica
from replicax._src.training import losses_as_means


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


_share = ThreadValue[Share | None](None)


def share_here() -> Share | None:
    """Returns what this replica has of the batch; None outside of steps of `fit` and the like."""
    return _share.value


@contextlib.contextmanager
def of_means(share: Share) -> Iterator[None]:
    """In a step of `fit` losses are means over the rows of a replica.

    Elsewhere, in loops written by hand, losses are shares of the global one, and add up.
    """
    with _share.set(share), losses_as_means(share.mean), share.weighting_gradients():
        yield
