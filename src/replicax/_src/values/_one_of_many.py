"""`OneOfMany`: a per-replica value on a worker with one replica."""

from __future__ import annotations

from typing import Any

import jax

from replicax._src._typing import Device, override
from replicax._src.context import EACH
from replicax._src.devices import have_others
from replicax._src.values._array_like import ArrayLike
from replicax._src.values._per_replica import PerReplica


@jax.tree_util.register_pytree_node_class
class OneOfMany(ArrayLike, PerReplica):
    """The value of this worker's only replica; the other workers have theirs.

    It can be used as the array that it holds here. Reductions, gathers and optimizers know that it
    is one of many.
    """

    __array_ufunc__: Any = None  # NumPy leaves operators to ours, and takes the array for the rest

    @override
    def _array(self) -> Any:
        return self._component(EACH if self._is_traced else 0)

    __hash__ = object.__hash__


def per_replica_type(devices: tuple[Device, ...]) -> type[PerReplica]:
    """Returns the class of values that replicas on these devices have one each of."""
    is_one_of_many = have_others(devices) and len(devices) == 1
    return OneOfMany if is_one_of_many else PerReplica
