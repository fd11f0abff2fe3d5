"""What is tried in a plan in place of what a program says: to see what would fit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator


@dataclasses.dataclass(frozen=True)
class Supposed:
    """What a program on planned devices is taken to do; by default, what it says.

    Attributes:
      batch_factor: how many times as many rows the batches of data sets have.
      over_replicas: what of the state is cut over the replicas, as in a `StateLayout`.
      logical_devices: how many each replica has; variables are split over them.
      checkpointed: whether losses are computed again for their gradients (`jax.checkpoint`).
      most_steps: after how many elements data sets end.
      only_lowered: whether programs are not compiled, only compared with those of other hosts.
    """

    batch_factor: float = 1.0
    over_replicas: str | None = None
    logical_devices: int | None = None
    checkpointed: bool = False
    most_steps: int | None = None
    only_lowered: bool = False

    def rows_for(self, size: int) -> int:
        """Returns how many rows a share has that would have `size`."""
        return max(round(size * self.batch_factor), 1) if size else 0


_current = [Supposed()]


def supposed() -> Supposed:
    """Returns the change of settings that a plan tries now."""
    return _current[-1]


@contextlib.contextmanager
def supposing(what: Supposed) -> Generator[None]:
    """Around the making of strategies on planned devices, and what is done with them."""
    _current.append(what)
    try:
        yield
    finally:
        _current.pop()
