"""`ValueContext`: what a function that makes per-replica values is told."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ValueContext:
    """The replica that a value is made for.

    Attributes:
      replica_id_in_sync_group: its number, from 0.
      num_replicas_in_sync: how many replicas there are.
    """

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1
