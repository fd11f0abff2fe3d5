"""`Mirrored`: a value that is the same on every replica."""

from __future__ import annotations

from typing import Any

import jax

from replicax._src._typing import override
from replicax._src.context import first_of, get_replica_context, replica_id_of, update_replica_id
from replicax._src.values._array_like import ArrayLike
from replicax._src.values._distributed import DistributedValues


@jax.tree_util.register_pytree_node_class
class Mirrored(ArrayLike, DistributedValues):
    """The same value on every replica: a reduction's result, for example.

    It can be used as the array it holds. In replica context that is the replica's own copy.
    """

    @override
    def _array(self) -> Any:
        replica_id = update_replica_id()
        if replica_id is None:
            context = get_replica_context()
            replica_id = 0 if context is None else replica_id_of(context)
        return self._component(replica_id if first_of(replica_id) < self._count else 0)

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        if self._buffers is not None:  # without taking the copies apart
            return self._buffers.shape
        return super().shape

    def __deepcopy__(self, memo: dict[int, Any]) -> Mirrored:
        return self  # immutable

    __hash__ = object.__hash__

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self.values, None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[Any, ...]) -> Mirrored:
        return cls(children)
