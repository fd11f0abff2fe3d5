"""Error classes that users may want to catch by name; each has a section in docs/errors.md.

All of them derive from the builtin class that TensorFlow raises in the same place, so that ported
`except` clauses keep working.
"""

from __future__ import annotations


class ReplicaMismatchError(RuntimeError):
    """The replicas did not do the same thing: one skipped a meeting, or they met differently."""


class WrongContextError(RuntimeError):
    """A call that needs replica context was made in cross-replica context, or the reverse."""


class PerReplicaValueError(TypeError):
    """A per-replica value was used as if it were one array."""


class AggregationError(ValueError):
    """A variable was updated in a way that its `aggregation` does not allow."""


class DeviceError(ValueError):
    """A device was named that does not exist, or named twice."""
