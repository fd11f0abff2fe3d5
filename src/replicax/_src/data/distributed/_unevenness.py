"""Values whose components differ in shape: what is eager, because it cannot be one program.

What the replicas of this process have can be seen; what other workers have, they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.data._ahead import Failed
from replicax._src.values import DistributedValues, PerReplica, buffers_of, is_leaf, set_uneven

FAILED = "failed"  # what a worker reports that could not make its part


def shapes_of(value: PyTree) -> list[list[int]] | str:
    """Returns the shapes of what the replicas here get, as other workers compare them."""
    if isinstance(value, Failed):
        return FAILED
    shapes: list[list[int]] = []
    for leaf in _tree.leaves_of(value, is_leaf):
        parts: Any = [leaf]
        if isinstance(leaf, DistributedValues):
            parts = leaf.values if (buffers := buffers_of(leaf)) is None else [buffers]
        found: set[tuple[int, ...]] = {tuple(getattr(part, "shape", ())) for part in parts}
        shapes += [list(shape) for shape in sorted(found)]
    return shapes


def differ(said: Sequence[Any]) -> bool:
    """Whether the workers have reported different shapes."""
    return any(shapes != said[0] for shapes in said)


def mark_uneven(value: PyTree) -> None:
    """Says of per-replica values that other workers have other shapes, if not this one."""
    for leaf in _tree.leaves_of(value, is_leaf):
        if isinstance(leaf, PerReplica):
            set_uneven(leaf)
