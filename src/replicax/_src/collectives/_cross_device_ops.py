"""How values cross devices: the classes that users may choose from, or subclass.

`CrossDeviceOps` checks and prepares; a subclass's `reduce_implementation` (and, for speed,
`batch_reduce_implementation`) does the work. Every reduction of a strategy goes through its
`cross_device_ops`: `reduce`, `reduce_to`, `batch_reduce_to`, `all_reduce`, the aggregation of
variables, and the gradients of an optimizer.
"""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false
# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from replicax._src._typing import Device, override
from replicax._src.collectives._all_reduce import array_of, as_components
from replicax._src.collectives._destinations import destination_devices, mirror
from replicax._src.collectives._options import CommunicationOptions, as_options
from replicax._src.collectives._parts import own_part, scattered_sum
from replicax._src.collectives._reduce_op import ReduceOp, ReduceOpLike, as_reduce_op
from replicax._src.context import EACH, world
from replicax._src.devices import ReplicaMesh, put, replicas_on, resolve
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    component,
    local_count,
    storage_of,
)

ValueDestinationPairs = Sequence[tuple[Any, Any]]


class CrossDeviceOps(abc.ABC):
    """Base class of cross-device reductions; subclass it to plug in one of your own.

    >>> import replicax as rx
    >>> class Loudest(rx.distribute.CrossDeviceOps):
    ...     def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
    ...         return self.broadcast(max(per_replica_value.values, key=abs), destinations)
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=Loudest())
    >>> float(strategy.reduce("SUM", rx.distribute.PerReplica([1.0, -5.0]), axis=None))
    -5.0
    """

    def reduce(
        self,
        reduce_op: ReduceOpLike,
        per_replica_value: object,
        destinations: object,
        options: CommunicationOptions | None = None,
        experimental_hints: CommunicationOptions | None = None,
    ) -> Any:
        """Combines the components of `per_replica_value` and puts the result on `destinations`.

        Args:
          reduce_op: `ReduceOp.SUM` or `ReduceOp.MEAN`.
          per_replica_value: a `PerReplica` (one plain array counts as one component).
          destinations: a variable, a value, a device name or a list of them.
          options: `CommunicationOptions`.
          experimental_hints: the older name of `options`.

        Returns:
          `Mirrored` over the destinations, or an array if there is one destination device.
        """
        op, options = as_reduce_op(reduce_op), as_options(options, experimental_hints)
        devices = destination_devices(destinations)
        value = _as_per_replica(per_replica_value)
        return _delivered(self.reduce_implementation(op, value, destinations, options), devices)

    def batch_reduce(
        self,
        reduce_op: ReduceOpLike,
        value_destination_pairs: ValueDestinationPairs,
        options: CommunicationOptions | None = None,
        experimental_hints: CommunicationOptions | None = None,
    ) -> list[Any]:
        """Returns a list of results: `reduce` for many `(value, destinations)` pairs."""
        op, options = as_reduce_op(reduce_op), as_options(options, experimental_hints)
        devices = [destination_devices(each) for _, each in value_destination_pairs]
        pairs = [(_as_per_replica(value), each) for value, each in value_destination_pairs]
        results = self.batch_reduce_implementation(op, pairs, options)
        if not isinstance(results, Sequence) or len(results) != len(pairs):
            raise TypeError(
                f"{type(self).__name__}.batch_reduce_implementation must return a list with one "
                f"result for each of the {len(pairs)} pairs; got {results!r}."
            )
        return [_delivered(one, each) for one, each in zip(results, devices, strict=True)]

    def broadcast(self, tensor: object, destinations: object) -> Any:
        """Returns `tensor` as a value with a copy on every destination device."""
        return self.broadcast_implementation(tensor, destinations)

    def gather(
        self,
        per_replica_value: object,
        destinations: object,
        axis: int,
        options: CommunicationOptions | None = None,
    ) -> Any:
        """Returns the components, joined along `axis`, on `destinations`."""
        as_options(options)
        devices = destination_devices(destinations)
        value = _as_per_replica(per_replica_value)
        return mirror(world().replicas.gather(value, axis, devices[0]), devices)

    def _scatter(
        self, mesh: ReplicaMesh, values: Sequence[tuple[DistributedValues, int]]
    ) -> list[jax.Array]:
        """In a program, each replica's part of the sum of each value, along a dimension."""
        pairs = [(value, mesh.devices) for value, _ in values]
        totals = self.batch_reduce(ReduceOp.SUM, pairs)
        return [
            own_part(component(total, EACH), dim, mesh)
            for total, (_, dim) in zip(totals, values, strict=True)
        ]

    @abc.abstractmethod
    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: DistributedValues,
        destinations: object,
        options: CommunicationOptions,
    ) -> Any:
        """Returns the reduction of one value; subclasses define it. Arguments as in `reduce`."""

    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: ValueDestinationPairs,
        options: CommunicationOptions,
    ) -> list[Any]:
        """Returns many reductions. A subclass may make them at once; by default, one by one."""
        return [
            self.reduce_implementation(reduce_op, value, destinations, options)
            for value, destinations in value_destination_pairs
        ]

    def broadcast_implementation(self, tensor: object, destinations: object) -> Any:
        """Returns copies of one array. A subclass may define how they are made."""
        return mirror(array_of(tensor, "broadcast"), destination_devices(destinations))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _PackedAllReduce(CrossDeviceOps):
    """XLA's all-reduce over the replicas' devices, with small tensors packed together."""

    def __init__(self, num_packs: int = 1):
        """
        Args:
          num_packs: 0 reduces every tensor by itself; 1 packs small ones by size, as given in
            `CommunicationOptions.bytes_per_pack`; more cuts the whole into that many packs.
        """
        if not isinstance(num_packs, int) or num_packs < 0:
            raise ValueError(
                f"`num_packs` must be 0 (no packing) or a positive number of packs; got "
                f"{num_packs!r}."
            )
        self._num_packs = num_packs

    @override
    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: DistributedValues,
        destinations: object,
        options: CommunicationOptions,
    ) -> Any:
        pairs = [(per_replica_value, destinations)]
        return self.batch_reduce_implementation(reduce_op, pairs, options)[0]

    @override
    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: ValueDestinationPairs,
        options: CommunicationOptions,
    ) -> list[Any]:
        values = [as_components(value, "A reduction") for value, _ in value_destination_pairs]
        return world().replicas.all_reduce(reduce_op, values, self._pack_size(values, options))

    @override
    def _scatter(
        self, mesh: ReplicaMesh, values: Sequence[tuple[DistributedValues, int]]
    ) -> list[jax.Array]:
        return [scattered_sum(component(value, EACH), dim) for value, dim in values]

    def _pack_size(self, values: Sequence[DistributedValues], options: CommunicationOptions) -> int:
        if self._num_packs == 0:
            return 1  # no two tensors fit
        if self._num_packs == 1 or options.bytes_per_pack:
            return options.bytes_per_pack
        total = sum(_nbytes(value) for value in values)
        return max(1, math.ceil(total / self._num_packs))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_packs={self._num_packs})"


class NcclAllReduce(_PackedAllReduce):
    """The default: XLA's all-reduce, which is NCCL on NVIDIA GPUs.

    On other hardware it is whatever is native there; the name is TensorFlow's.
    """


class HierarchicalCopyAllReduce(_PackedAllReduce):
    """Kept for ported code: XLA chooses the route over the hardware by itself."""


class ReductionToOneDevice(CrossDeviceOps):
    """Copies all components to one device, combines them there, and copies the result out.

    Args:
      reduce_to_device: where to combine; by default the first destination.
      accumulation_fn: takes the list of components and returns their sum; by default addition.
    """

    def __init__(
        self,
        reduce_to_device: str | Device | None = None,
        accumulation_fn: Callable[[list[jax.Array]], Any] | None = None,
    ):
        if accumulation_fn is not None and not callable(accumulation_fn):
            raise TypeError(f"`accumulation_fn` must be a function; got {accumulation_fn!r}.")
        self._device = None if reduce_to_device is None else resolve(reduce_to_device)
        self._accumulate = accumulation_fn or _add_all

    @override
    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: DistributedValues,
        destinations: object,
        options: CommunicationOptions,
    ) -> Any:
        devices = destination_devices(destinations)
        home = self._device or devices[0]
        value = as_components(per_replica_value, "A reduction")
        with jax.default_device(home):
            total = self._accumulate([put(part, home) for part in value.values])
            if reduce_op is ReduceOp.MEAN:
                total = total / local_count(value)
        return self.broadcast(total, destinations)


def scattered(
    ops: CrossDeviceOps, mesh: ReplicaMesh, values: Sequence[tuple[DistributedValues, int]]
) -> list[jax.Array]:
    """In a program, each replica's part of the sum of each value, along a dimension."""
    return ops._scatter(mesh, values)


def _nbytes(value: DistributedValues) -> int:
    array = component(value, world().replicas.any_replica)
    return math.prod(array.shape) * array.dtype.itemsize


def _add_all(parts: list[jax.Array]) -> jax.Array:
    return sum(parts[1:], start=parts[0])


def _as_per_replica(value: object) -> DistributedValues:
    if isinstance(value, DistributedValues):
        return value
    return PerReplica([array_of(value, "A reduction")])


def _delivered(result: object, devices: tuple[Device, ...]) -> Any:
    """Returns `result` on exactly the destination devices."""
    if result is None:
        raise TypeError(
            "A CrossDeviceOps' reduce_implementation returned None. Return the reduced value, for "
            "example `return self.broadcast(total, destinations)`."
        )
    if isinstance(result, DistributedValues):
        buffers = storage_of(result)
        placed = buffers.mesh.devices if buffers is not None else None
        if placed == devices and replicas_on(devices) > 1:
            return result
        if replicas_on(devices) == 1:
            # Take the copy that is there already, if one is.
            index = placed.index(devices[0]) if placed and devices[0] in placed else 0
            return put(array_of(component(result, index), "A reduction"), devices[0])
        if isinstance(result, Mirrored) and placed is None and local_count(result) == len(devices):
            return result
        result = component(result, 0)
    return mirror(array_of(result, "A reduction"), devices)
