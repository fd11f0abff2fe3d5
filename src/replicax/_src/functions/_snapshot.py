"""What a compiled function returns for a variable: its value when the call ends."""

from __future__ import annotations

from typing import Any

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.values import PerReplica, is_leaf, storage_of, value_of_buffers
from replicax._src.variable import Variable, VariableAggregation, copies_differ


def snapshot(variable: Variable) -> Any:
    """Returns the value; of a sync-on-read variable without an aggregation, those of all copies."""
    if copies_differ(variable) and variable.aggregation is VariableAggregation.NONE:
        return value_of_buffers(PerReplica, storage_of(variable))
    return variable.read_value()


def with_snapshots(structure: PyTree) -> Any:
    """`structure` with the values of variables in their places."""
    return _tree.map_structure(
        lambda leaf: snapshot(leaf) if isinstance(leaf, Variable) else leaf, structure, is_leaf
    )
