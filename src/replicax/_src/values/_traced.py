"""The components of a value while the program that computes it is being traced.

One trace speaks for all replicas: what it holds is *each* replica's own component. That of one
particular replica is known to the others only through a collective.
"""

# The functions of jax.lax have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, final

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from replicax._src._typing import override
from replicax._src.context import EACH
from replicax._src.devices import REPLICA_AXIS, ReplicaMesh
from replicax._src.values._storage import Storage


@final
class TracedBuffers(Storage):
    """What `ReplicaBuffers` is outside of a trace."""

    __slots__ = ("exclusive", "local", "mesh", "mirrored")
    is_traced: ClassVar[bool] = True

    def __init__(self, mesh: ReplicaMesh, local: ArrayLike, mirrored: bool = False):
        """
        Args:
          mesh: the devices of the components.
          local: each replica's component.
          mirrored: whether it is the same on all replicas.
        """
        self.mesh = mesh
        self.local = local
        self.mirrored = mirrored
        self.exclusive = False

    @override
    def component(self, replica_id: Any) -> Any:
        """Returns that of one of the replicas of this process, or of each one."""
        if replica_id is EACH or self._is_same_here:
            return self.local
        if self.mesh.spans_workers:  # the program is one, also where its results differ
            return self.components[replica_id]
        return self._shared_by(replica_id)

    @property
    def first(self) -> Any:
        """That of the first replica of all."""
        return self.local if self.mirrored or 0 in self.shape else self._shared_by(0)

    @property
    def _is_same_here(self) -> bool:
        """Whether all replicas of this process have the same, or there is only one."""
        return self.mirrored or 0 in self.shape or len(self.mesh.devices) == 1

    def _shared_by(self, replica_id: int) -> Any:
        mine = jax.lax.axis_index(REPLICA_AXIS) == replica_id

        def share(array: jax.Array) -> jax.Array:
            # One copy travels, and not one from each replica; as bits, which zeros do not change.
            if jnp.iscomplexobj(array):
                return jax.lax.complex(share(array.real), share(array.imag))
            bits = array.astype(jnp.int8) if array.dtype == jnp.bool_ else array
            if jnp.issubdtype(array.dtype, jnp.floating):
                bits = jax.lax.bitcast_convert_type(array, f"uint{array.dtype.itemsize * 8}")
            total = jax.lax.psum(jnp.where(mine, bits, jnp.zeros_like(bits)), REPLICA_AXIS)
            if jnp.issubdtype(array.dtype, jnp.floating):
                return jax.lax.bitcast_convert_type(total, array.dtype)
            return total.astype(array.dtype)

        return _as_numbers(share, self.local)

    @property
    @override
    def components(self) -> tuple[Any, ...]:
        """Those of the replicas of this process."""
        count = len(self.mesh.devices)
        if self._is_same_here:
            return (self.local,) * count
        here = _as_numbers(
            lambda x: self.mesh.rows_here(jax.lax.all_gather(x, REPLICA_AXIS)), self.local
        )
        return tuple(here[index] for index in range(count))

    @property
    @override
    def copies(self) -> int:
        return len(self.mesh.devices)

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return jnp.shape(self.local)

    @property
    @override
    def look(self) -> Any:
        return self.local

    @property
    @override
    def assembled(self) -> Any:
        return self.local

    def with_component(self, replica_id: Any, array: ArrayLike) -> TracedBuffers:
        if replica_id is EACH or self.mirrored:
            return TracedBuffers(self.mesh, array, self.mirrored)
        number = jax.lax.axis_index(REPLICA_AXIS) % len(self.mesh.devices)
        return TracedBuffers(self.mesh, jnp.where(number == replica_id, array, self.local))


def _as_numbers(fn: Callable[[jax.Array], jax.Array], array: ArrayLike) -> jax.Array:
    """Returns `fn(array)`; of random keys, with the numbers that they are made of."""
    array = jnp.asarray(array)
    if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return fn(array)
    implementation = jax.random.key_impl(array)
    return jax.random.wrap_key_data(fn(jax.random.key_data(array)), impl=implementation)
