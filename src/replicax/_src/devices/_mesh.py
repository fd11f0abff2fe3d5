"""The replica mesh: the one owner of the mesh, its axis name, and the layouts on it.

Arrays that belong to replicas are laid out as *replicated* over this mesh: every device holds a
buffer of the component's own shape. For mirrored state the buffers are equal. For per-replica
values they differ, which JAX does not check and `shard_map` over the axis reads as it should: each
device sees its own buffer. That makes one array of n components, and n components of one array,
without a copy or a reshape. Arrays of the second sort never leave replicax.

With several workers the mesh spans the devices of all of them, and a process has the buffers of its
own devices only: `devices` are those, and `size` counts all.

A replica may have several logical devices. The mesh then has further axes, one for each prime
factor of their number, so that an array can be cut into any parts whose product is that number.
Programs are written for one replica; the compiler divides its work over these axes.

State may also be cut over the replica axis itself (`Layout.replica_dim`). Such an array is what JAX
says it is: its parts differ, and together they are the whole.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import contextlib
import functools
import itertools
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)

from replicax._src._jax_internals import (
    ConcreteArray,
    local_shards,
    put_on_each,
    uncommitted,
    uncommitted_shards,
)
from replicax._src._typing import ArrayInput, Device, PyTree
from replicax._src.devices._launches import Launches, token
from replicax._src.devices._layout import PLAIN, Layout, prime_factors
from replicax._src.devices._names import short_name
from replicax._src.devices._packing import IN_ONE_PROCESS, Packing
from replicax._src.devices._placement import put
from replicax._src.devices._replicas import Beginning, groups_of

REPLICA_AXIS = "replica"
_WHOLE = PartitionSpec()  # every replica gets and gives buffers of its own


class ReplicaMesh(Launches):
    """The devices of the replicas as a mesh: the replica axis, then those of the logical devices.

    All replicas are of this process; those of a `MeshOverWorkers` are of several.

    Attributes:
      devices: of this process's replicas, the first of each.
      size: how many replicas there are in all processes.
      first: the number of the first replica here.
      logical_devices: how many each replica has.
      mesh: JAX's mesh over all of them.
      replicated: a buffer on each device.
      packing: what is worth packing before it is sent.
    """

    packing: Packing = IN_ONE_PROCESS

    def __init__(self, devices: tuple[Device, ...]):
        self.devices = devices
        groups = groups_of(devices)
        homes = [group[0] for group in groups]
        self.size = len(groups)
        self.first = homes.index(devices[0])
        self.logical_devices = len(groups[0])
        self._factors = prime_factors(self.logical_devices)
        self._logical_axes = tuple(f"logical_{i}" for i in range(len(self._factors)))
        here = groups[self.first : self.first + len(devices)]
        self.mesh = self._mesh_over(groups)
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self._shardings = {PLAIN: self.replicated}
        self._local = [device for group in here for device in group]
        self._homes = [SingleDeviceSharding(device) for device in devices]
        self._replicas = [self._mesh_of_replica(group) for group in here]
        super().__init__(self.mesh, on_cpu=devices[0].platform == "cpu")

    def _mesh_over(self, groups: Sequence[Sequence[Device]]) -> Mesh:
        devices = np.array([list(group) for group in groups], dtype=object)
        shape = (len(groups), *self._factors)
        return Mesh(devices.reshape(shape), (REPLICA_AXIS, *self._logical_axes))

    def _mesh_of_replica(self, group: Sequence[Device]) -> Mesh:
        devices = np.array(list(group), dtype=object).reshape(self._factors)
        return Mesh(devices, self._logical_axes)

    @property
    def is_one_device(self) -> bool:
        return self.mesh.size == 1

    @property
    def inside(self) -> Any:
        """The mesh as code of one replica sees it; None if it sees one device."""
        if self.logical_devices == 1:
            return None
        return self.mesh.abstract_mesh.update_axis_types({REPLICA_AXIS: AxisType.Manual})

    # ------------------------------------------------------------------ layouts

    def spec(self, parts: Sequence[int]) -> PartitionSpec:
        """Returns how JAX writes a cut into so many parts over the logical devices of a replica."""
        return PartitionSpec(*self._axes(parts))

    def _axes(self, parts: Sequence[int]) -> list[tuple[str, ...]]:
        """Returns the axes that each dimension is cut over."""
        free = list(zip(self._factors, self._logical_axes, strict=True))
        dims: list[tuple[str, ...]] = []
        for count in parts:
            taken: list[str] = []
            for factor in prime_factors(count):
                index = next(i for i, (each, _) in enumerate(free) if each == factor)
                taken.append(free.pop(index)[1])
            dims.append(tuple(taken))
        return dims

    def replica_spec(self, layout: Layout) -> PartitionSpec:
        """Returns which part of an array of this layout each replica of a program has."""
        return PartitionSpec(*layout.axes_over(REPLICA_AXIS))

    def sharding(self, layout: Layout) -> NamedSharding:
        """Returns the same for JAX, with the logical devices."""
        found = self._shardings.get(layout)
        if found is None:
            axes = itertools.zip_longest(
                layout.axes_over(REPLICA_AXIS), self._axes(layout.parts), fillvalue=()
            )
            spec = PartitionSpec(*(replica + logical for replica, logical in axes))
            found = self._shardings[layout] = NamedSharding(self.mesh, spec)
        return found

    def logical_device(self, replica: int, number: int) -> Device:
        """Returns one of the logical devices of a replica of this process."""
        return self._local[replica * self.logical_devices + number]

    def split_inside(
        self, array: jax.Array, parts: Sequence[int], replica: int | None
    ) -> jax.Array:
        """Returns `array` cut over logical devices; in a program, or on one replica here."""
        place = self.spec(parts) if replica is None else self.sharding_of_replica(parts, replica)
        return jax.lax.with_sharding_constraint(array, place)

    def sharding_of_replica(self, parts: Sequence[int], replica: int) -> NamedSharding:
        """Returns a cut over the logical devices of one replica of this process."""
        return NamedSharding(self._replicas[replica], self.spec(parts))

    # ------------------------------------------------------------------ components and wholes

    def spread(self, value: ArrayInput, layout: Layout = PLAIN) -> jax.Array:
        """Returns one array, the same for every replica; other workers have to give the same."""
        return self._spread(value, self.sharding(layout))

    def relaid(self, array: jax.Array, layout: Layout) -> jax.Array:
        """Returns an array over this mesh, in another layout."""
        sharding = self.sharding(layout)
        is_there = array.sharding == sharding or array.sharding.is_equivalent_to(
            sharding, array.ndim
        )
        return array if is_there else self._relaid(array, sharding)

    def _relaid(self, array: jax.Array, sharding: NamedSharding) -> jax.Array:
        self.wait_for([array])
        results: list[Any] = []
        what = self._told(lambda: f"laying out {array.dtype}{list(array.shape)}")
        # A whole that differs by replica (see above) must not be mixed with that of another one.
        are_whole = _is_whole(array.sharding) and _is_whole(sharding)
        self.call(_relaying(self if are_whole else None, sharding), results, array, what=what)
        return results[0][0]

    def gathered(self, array: jax.Array) -> jax.Array:
        """Returns an array that is cut over the replicas, with all of it on each of them."""
        spec = array.sharding.spec  # type: ignore[attr-defined]
        return self._relaid(array, NamedSharding(self.mesh, _uncut(spec)))

    def at_home(self, part: jax.Array, index: int) -> jax.Array:
        """Returns a component on its replica's first device, or cut over all its devices."""
        if self.logical_devices > 1 and self._cut(part, index) is not None:
            return part
        return put(part, self.devices[index])

    def _cut(self, part: jax.Array, index: int) -> PartitionSpec | None:
        """Returns how a component is cut over its replica's logical devices; None if it is not."""
        sharding = getattr(part, "sharding", None)
        if not isinstance(sharding, NamedSharding) or sharding.mesh != self._replicas[index]:
            return None
        return sharding.spec if any(sharding.spec) else None

    def assemble(self, components: Sequence[jax.Array]) -> jax.Array:
        """Returns one array from a component of each replica here, alike in shape and dtype."""
        if self.logical_devices == 1:
            return jax.make_array_from_single_device_arrays(
                components[0].shape, self.replicated, list(components)
            )
        cuts = {self._cut(part, index) for index, part in enumerate(components)}
        cut = (cuts.pop() if len(cuts) == 1 else None) or PartitionSpec()
        buffers: list[jax.Array] = []
        for part, mesh in zip(components, self._replicas, strict=True):
            buffers += local_shards(jax.device_put(part, NamedSharding(mesh, cut)))
        sharding = NamedSharding(self.mesh, cut)
        return jax.make_array_from_single_device_arrays(components[0].shape, sharding, buffers)

    def assemble_from_host(self, components: Sequence[np.ndarray]) -> jax.Array:
        """Returns one array from a NumPy array for each replica; one dtype and shape, no scalars.

        On the CPU the memory is taken over, not copied: it may not be written to afterwards.
        """
        parts = [each for each in components for _ in range(self.logical_devices)]
        return put_on_each(parts, self.replicated, self._local)

    def component(self, array: jax.Array, index: int, logical: int | None = None) -> jax.Array:
        """Returns what a replica here has of an assembled array: on its first device, or cut.

        Args:
          array: over this mesh.
          index: of the replica.
          logical: the logical device that has it, of an array that all of them have.
        """
        if self.logical_devices == 1:
            # The first one alone is cheap to get, as for a loss, of which one array is made.
            return local_shards(array)[index] if index else array.addressable_data(0)
        shards = local_shards(array)
        mine = shards[index * self.logical_devices : (index + 1) * self.logical_devices]
        spec = getattr(array.sharding, "spec", PartitionSpec())
        if logical is not None or not any(spec):
            return mine[logical or 0]
        sharding = NamedSharding(self._replicas[index], spec)
        return jax.make_array_from_single_device_arrays(array.shape, sharding, mine)

    def components(self, array: jax.Array) -> list[jax.Array]:
        """Returns what each replica here has of an assembled array, not tied to its device."""
        if isinstance(array, ConcreteArray) and array.sharding is self.replicated:
            if self.logical_devices == 1:
                return uncommitted_shards(array, self._homes)
        return [uncommitted(self.component(array, i)) for i in range(len(self.devices))]

    # ------------------------------------------------------------------ programs

    def spmd(self, fn: Callable[..., Any], in_specs: PyTree = _WHOLE) -> Callable[..., Any]:
        """Returns `fn` compiled as one program in which each replica sees its own buffers."""
        program = jax.jit(self.mapped(fn, in_specs))

        def call(*args: Any) -> Any:
            self.wait_for(args)
            results: list[Any] = []
            what = self._told(lambda: f"{fn.__name__} of {_looks(args)}")
            self.call(program, results, *args, what=what)
            return results[0]

        call.__wrapped__ = program  # type: ignore[attr-defined]
        return call

    def mapped(
        self, fn: Callable[..., Any], in_specs: PyTree = _WHOLE, out_specs: PyTree = _WHOLE
    ) -> Callable[..., Any]:
        """Returns `fn` as a part of a program: each replica sees its own buffers.

        Not checked for replication (`check_vma=False`): with the check on, JAX would insert
        reductions by itself where it believes a value to be replicated.
        """
        return jax.shard_map(
            fn,
            mesh=self.mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            axis_names={REPLICA_AXIS},
            check_vma=False,
        )

    # ------------------------------------------------------------------ other workers

    # There are none here: `MeshOverWorkers` has other answers.

    @property
    def spans_workers(self) -> bool:
        """Whether other processes have replicas, too."""
        return False

    @property
    def may_branch(self) -> bool:
        """Whether replicas may take different ways through a program between two collectives.

        Not where the compiler puts collectives of its own there, over logical devices.
        """
        return self.logical_devices == 1

    def one_thread(self) -> AbstractContextManager[object]:
        """Refuses a second thread inside the block, if there are other workers."""
        return _NO_CONTEXT

    def require_same(self, topic: str, what: str, content: str = "") -> bool:
        """Raises if other workers, at this point of their programs, say another `what`.

        Returns:
          Whether the `content` of it, which may differ, is the same on all.
        """
        return True

    def agreed_name(self, topic: str, describe: Callable[[], tuple[str, str] | None]) -> str:
        """Returns how the workers call a program of theirs when they announce it.

        Args:
          topic: what kind of thing it is.
          describe: returns its name, and the text that must be the same on all workers; None if
            it is each worker's own.

        Returns:
          An empty text where there are no other workers.
        """
        return ""

    def begin_together(self, beginning: Beginning, what: str) -> None:
        """Lets it begin with the first worker's value: at once, or when that is known.

        Args:
          beginning: what begins.
          what: says what it is, the same on all workers.
        """
        beginning.begin(beginning.value)

    def await_beginning(self, beginning: Beginning) -> None:
        """Waits until it has begun."""

    def collected(self, array: jax.Array) -> jax.Array:
        """Returns an array that is cut over the replicas, on the first device here."""
        return jax.device_put(array, self.devices[0])

    def for_host(self, array: jax.Array) -> jax.Array | np.ndarray:
        """Returns an array that is cut over the replicas, to be copied to the host as a whole."""
        return array  # all parts are here, and come together on the host

    def rows_here(self, rows: jax.Array) -> jax.Array:
        """In a program, what the replicas of this process have of one row for each replica."""
        return rows

    def describe_replica(self, replica: int) -> str:
        """Returns which replica of all it is, and where, for messages."""
        return f"replica {replica} ({short_name(self.mesh.devices.flat[replica])})"

    def _told(self, what: Callable[[], str]) -> str:
        """Returns what other workers are told of a program; an empty text if there are none."""
        return ""

    def _spread(self, value: ArrayInput, sharding: NamedSharding) -> jax.Array:
        """Returns one array, the same for every replica, laid out like this."""
        return jax.device_put(value, sharding)


_NO_CONTEXT = contextlib.nullcontext()


def _looks(arrays: PyTree) -> str:
    """Returns what arrays look like, in a line of some hundred letters at most."""
    text = ", ".join(f"{each.dtype}{list(each.shape)}" for each in jax.tree.leaves(arrays))
    return text if len(text) < 200 else f"{text[:150]}... ({zlib.crc32(text.encode()):08x})"


def _is_whole(sharding: Sharding) -> bool:
    """Returns whether each replica has all of an array that lies like this."""
    spec = getattr(sharding, "spec", PartitionSpec())
    return spec == _uncut(spec)


def _uncut(spec: PartitionSpec) -> PartitionSpec:
    """Returns how an array lies that is cut like this, but not over the replicas."""
    return PartitionSpec(*(_without_replicas(dim) for dim in spec))


def _without_replicas(dim: str | tuple[str, ...] | None) -> Any:
    """Returns a dimension's entry in JAX's partition spec, without the replica axis."""
    axes = dim if isinstance(dim, tuple) else (dim,)
    if REPLICA_AXIS not in axes:
        return dim
    return tuple(axis for axis in axes if axis != REPLICA_AXIS) or None


@functools.lru_cache(maxsize=256)
def _relaying(mesh: ReplicaMesh | None, sharding: NamedSharding) -> Callable[..., Any]:
    def lay_out(array: jax.Array) -> tuple[jax.Array, jax.Array]:
        return array, token()

    return jax.jit(mesh.mapped(lay_out) if mesh else lay_out, out_shardings=(sharding, None))
