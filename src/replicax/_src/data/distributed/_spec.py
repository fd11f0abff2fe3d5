"""What the elements of a distributed data set look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from replicax._src._tensor_spec import TensorSpec
from replicax._src.data._elements import ElementSpec, map_leaves


@final
class PerReplicaSpec:
    """The specs of a per-replica value, one for each replica of this worker."""

    def __init__(self, *specs: TensorSpec):
        self._specs = specs

    def _component_specs(self, count: int) -> Sequence[TensorSpec]:
        """Returns what an argument must look like; see `functions/_signature.py`."""
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


def share_spec(spec: ElementSpec, rows: int | None) -> Any:
    """Returns the spec of a batch with its first dimension set: `rows`, or None if that varies."""

    def of_a_share(leaf: TensorSpec) -> Any:
        shape = leaf.shape
        return TensorSpec.on_host((rows, *shape[1:]) if shape else shape, leaf.dtype)

    return map_leaves(of_a_share, spec)


def per_replica_spec(spec: ElementSpec, local: int, wrap: bool) -> Any:
    """Returns the spec of what `local` replicas get, if each gets what `spec` says."""

    def on_the_devices(leaf: TensorSpec) -> Any:
        each = TensorSpec(leaf.shape, leaf.dtype)
        return PerReplicaSpec(*[each] * local) if wrap else each

    return map_leaves(on_the_devices, spec)
