"""What the elements of a distributed data set look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replicax.data._elements import map_leaves
from replicax.functions import TensorSpec


class PerReplicaSpec:
    """The specs of a per-replica value, one for each replica of this worker."""

    def __init__(self, *specs: TensorSpec):
        self._specs = specs

    def _component_specs(self, count: int) -> Sequence[TensorSpec]:
        """What an argument must look like; see `functions/_signature.py`."""
        return self._specs

    @property
    def shape(self) -> Any:
        """Of one replica's part."""
        return self._specs[0].shape

    @property
    def dtype(self) -> Any:
        return self._specs[0].dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerReplicaSpec) and self._specs == other._specs

    def __hash__(self) -> int:
        return hash(self._specs)

    def __repr__(self) -> str:
        return f"PerReplicaSpec({', '.join(map(repr, self._specs))})"


def distributed_spec(spec: Any, rows: int | None, local: int, wrap: bool) -> Any:
    """The spec of what replicas get: the first dimension is `rows`, None if that varies."""

    def of_a_share(leaf: Any) -> Any:
        shape = leaf.shape
        if shape is not None and len(shape):
            shape = (rows, *shape[1:])
        return _wrapped(TensorSpec(shape, leaf.dtype), local, wrap)

    return map_leaves(of_a_share, spec)


def successive_spec(spec: Any, varies: bool, local: int, wrap: bool) -> Any:
    """The spec where each replica gets whole elements."""

    def of_an_element(leaf: Any) -> Any:
        shape = leaf.shape
        if varies and shape:
            shape = (None, *shape[1:])
        return _wrapped(TensorSpec(shape, leaf.dtype), local, wrap)

    return map_leaves(of_an_element, spec)


def _wrapped(spec: TensorSpec, local: int, wrap: bool) -> Any:
    return PerReplicaSpec(*[spec] * local) if wrap else spec
