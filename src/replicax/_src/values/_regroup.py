"""From one structure per replica to one structure of values, and back.

The rules are TensorFlow's: the very same object from every replica stays that object; the
components of one variable become that variable; anything else becomes `PerReplica`. Identity
decides, not equality.
"""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._arrays import as_result
from replicax._src._errors import ReplicaMismatchError
from replicax._src._jax_internals import local_shards, uncommitted
from replicax._src._typing import Device, PyTree, Tracer
from replicax._src.context import EACH
from replicax._src.devices import ReplicaMesh, groups_of
from replicax._src.values._access import is_distributed_value
from replicax._src.values._distributed import DistributedValues
from replicax._src.values._one_of_many import OneOfMany
from replicax._src.values._per_replica import PerReplica
from replicax._src.values._traced import TracedBuffers

_ARRAYS: Any = jax.Array | np.ndarray | np.generic | int | float | complex


def is_leaf(value: object) -> bool:
    """Returns whether a walk through a structure stops here: distributed values and variables."""
    found: Any = getattr(type(value), "_structure_leaf", False)
    # Of another library's type, some objects stand for a variable, and others are structure.
    return found if found.__class__ is bool else found(value)


def regroup(
    per_replica: Sequence[Any],
    wrap: type[DistributedValues] = PerReplica,
    *,
    always_wrap: bool = False,
    what: str = "returned",
) -> Any:
    """Merges one structure per replica into one structure.

    Args:
      per_replica: the structures, in replica order, all alike.
      wrap: the class for leaves that differ.
      always_wrap: wrap also what is the same object everywhere.
      what: what the replicas did with the structures, for the error message.

    Raises:
      ValueError: the structures are not alike; the text lists them.
    """

    def merge(*leaves: object) -> Any:
        first = leaves[0]
        same = all(leaf is first for leaf in leaves)
        if same and (not always_wrap or getattr(type(first), "_passed_whole", False)):
            return first
        container = _common_container(leaves)
        return wrap(leaves) if container is None else container

    try:
        return _tree.map_together(merge, per_replica, is_leaf)
    except _tree.StructureMismatch:
        raise _structure_error(what, per_replica) from None


def regroup_alone(structure: PyTree) -> Any:
    """Returns what `regroup` does for one replica: copies of variables become variables."""

    def merge(leaf: object) -> Any:
        container = _common_container([leaf])
        return leaf if container is None else container

    return _tree.map_structure(merge, structure, is_leaf)


def as_one_of_many(structure: PyTree) -> Any:
    """Returns what the only replica of a worker gave, for reductions with the others."""

    def wrap(leaf: object) -> Any:
        container = getattr(leaf, "_distributed_container", None)
        if container is not None:
            return container
        return OneOfMany([leaf]) if isinstance(leaf, _ARRAYS) else leaf

    return _tree.map_structure(wrap, structure, is_leaf)


def regroup_traced(
    structure: PyTree,
    mesh: ReplicaMesh,
    wrap: type[DistributedValues] = PerReplica,
    *,
    is_same: Callable[[Any], bool] | None = None,
) -> Any:
    """Returns what `regroup` is for eager replicas, for the one structure that a trace has for all.

    Args:
      structure: what each replica has.
      mesh: the devices of the replicas.
      wrap: the class for arrays.
      is_same: whether an array or number is the very same object on all replicas, and stays bare.
        None to wrap them all.
    """
    mirrored = wrap is not PerReplica

    def merge(leaf: object) -> Any:
        container = getattr(leaf, "_distributed_container", None)
        if container is not None and getattr(leaf, "_index", None) is EACH:
            return container
        if not isinstance(leaf, _ARRAYS) or (is_same is not None and is_same(leaf)):
            return leaf
        return wrap._from_buffers(TracedBuffers(mesh, as_result(leaf), mirrored))

    return _tree.map_structure(merge, structure, is_leaf)


def released(merged: PyTree, devices: tuple[Device, ...]) -> Any:
    """Returns the results of eager replicas, free to be mixed with each other.

    What is whole on all logical devices of a replica is then that of one of them, as it is after a
    compiled run. What is split stays so.
    """
    if all(len(group) == 1 for group in groups_of(devices)):
        return merged

    def release(leaf: object) -> Any:
        if isinstance(leaf, PerReplica) and leaf._values is not None:
            return type(leaf)([release(part) for part in leaf._values])
        if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer):
            return leaf  # pyright: ignore[reportUnknownVariableType]  # a Tracer of anything
        is_whole = leaf.sharding.num_devices > 1 and leaf.sharding.is_fully_replicated
        return uncommitted(local_shards(leaf)[0] if is_whole else leaf)

    return _tree.map_structure(release, merged, is_leaf)


class StructureError(ReplicaMismatchError, ValueError):
    """The replicas gave structures that are not alike."""


def _structure_error(what: str, per_replica: Sequence[Any]) -> StructureError:
    rows = "\n".join(
        f"  replica {index}: {_tree.describe(each)}" for index, each in enumerate(per_replica)
    )
    return StructureError(
        f"The replicas {what} different structures:\n{rows}\nEvery replica must give the same "
        "nesting of lists, tuples and dicts with the same keys; only the leaves may differ."
    )


def _common_container(leaves: Sequence[Any]) -> Any:
    container = getattr(leaves[0], "_distributed_container", None)
    if container is None or len(leaves) != container._count:
        return None
    parts = container.values
    return container if all(a is b for a, b in zip(leaves, parts, strict=True)) else None


def select_replica(replica_id: Any, structure: PyTree) -> Any:
    """Returns the structure that one replica sees: distributed values replaced by its component."""

    def pick(leaf: object) -> Any:
        if is_distributed_value(leaf):
            return leaf._component(replica_id)
        return leaf

    return _tree.map_structure(pick, structure, is_leaf)


def check_replica_count(structure: PyTree, count: int, what: str) -> None:
    """`ValueError` if a distributed value in `structure` is for another number of replicas."""
    for leaf in _tree.leaves_of(structure, is_leaf):
        if is_distributed_value(leaf) and leaf._count != count:
            raise ValueError(
                f"{what} holds a {type(leaf).__name__} with {leaf._count} components, but the "
                f"strategy has {count} replica(s). Make it with this strategy: from its data "
                "sets, its run, or strategy.experimental_distribute_values_from_function."
            )
