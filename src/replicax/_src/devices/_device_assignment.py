"""`DeviceAssignment`: which device is which logical core of which replica."""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import enum
import math
import operator
from typing import Any, SupportsIndex

import numpy as np

from replicax._src._typing import Device
from replicax._src.devices._core_order import (
    in_mesh_order,
    in_ring_order,
    in_task_order,
    replicas_by_axis,
)
from replicax._src.devices._topology import Topology, integers


class DeviceOrderMode(enum.IntEnum):
    """In which order devices become replicas and logical cores.

    Attributes:
      AUTO: In rings where that is possible, else as in a mesh.
      RING: In rings: each chip is beside the one before. Only if the replicas fill the topology and
        have all cores of their chips.
      MESH: Row by row.
    """

    AUTO = 0
    RING = 1
    MESH = 2


class DeviceAssignment:
    """Says which devices are the logical devices of each replica.

    `build` makes one; replicas may also be laid out by hand.

    >>> import replicax as rx
    >>> topology = rx.tpu.experimental.initialize_tpu_system()
    >>> assignment = rx.tpu.experimental.DeviceAssignment.build(
    ...     topology, computation_shape=[1, 1, 1, 2], num_replicas=4)
    >>> assignment
    <DeviceAssignment: 4 replicas of 2 logical devices>
    >>> assignment.coordinates(replica=1, logical_core=0)
    (0, 1, 0, 0)

    Args:
      topology: The devices and their places.
      core_assignment: The coordinates of every logical core of every replica: integers of shape
        (replicas, cores per replica, 4).

    Raises:
      ValueError: `core_assignment` has another shape, names a place without a device, or one device
        twice.
    """

    def __init__(self, topology: Topology, core_assignment: Any):
        self._topology = _checked_topology(topology)
        assignment = integers(core_assignment, "core_assignment")
        if assignment.ndim != 3 or assignment.shape[2] != topology.mesh_rank:
            raise ValueError(
                "`core_assignment` must have the shape (replicas, cores per replica, "
                f"{topology.mesh_rank}); got {assignment.shape}. One core is [[[0, 0, 0, 0]]]."
            )
        assignment.flags.writeable = False
        self._core_assignment = assignment
        self._replicas = self._replicas_by_task_and_core()

    def _replicas_by_task_and_core(self) -> dict[tuple[int, int], list[int]]:
        found: dict[tuple[int, int], list[int]] = {}
        users: dict[tuple[int, ...], str] = {}
        for replica, core in np.ndindex(*self._core_assignment.shape[:2]):
            place, user = self.coordinates(replica, core), f"core {core} of replica {replica}"
            try:
                task, _ = self._topology._task_and_ordinal(place)
            except (IndexError, ValueError) as error:
                raise ValueError(f"`core_assignment`, {user}: {error}") from None
            if place in users:
                raise ValueError(
                    f"`core_assignment` has the device at {list(place)} twice: as {users[place]} "
                    f"and as {user}. Every logical core needs a device of its own."
                )
            users[place] = user
            found.setdefault((task, core), []).append(replica)
        return found

    @property
    def topology(self) -> Topology:
        """The devices and their places."""
        return self._topology

    @property
    def num_cores_per_replica(self) -> int:
        """The number of logical devices of each replica."""
        return self._core_assignment.shape[1]

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return self._core_assignment.shape[0]

    @property
    def core_assignment(self) -> np.ndarray:
        """The coordinates of every logical core, of shape (replicas, cores per replica, 4)."""
        return self._core_assignment

    def coordinates(self, replica: int, logical_core: int) -> tuple[int, ...]:
        """Returns where in the topology a logical core of a replica is: x, y, z and core."""
        replicas, cores = self.num_replicas, self.num_cores_per_replica
        if not (-replicas <= replica < replicas and -cores <= logical_core < cores):
            raise IndexError(
                f"There is no logical core {logical_core} of replica {replica}: there are "
                f"{replicas} replica(s) with {cores} logical core(s) each, counted from 0."
            )
        return tuple(self._core_assignment[replica, logical_core].tolist())

    def lookup_replicas(self, task_id: int, logical_core: int) -> list[int]:
        """Returns the replicas that have this logical core on a device of this task.

        Args:
          task_id: The task.
          logical_core: The number of the core.

        Raises:
          ValueError: There are none.
        """
        try:
            return list(self._replicas[task_id, logical_core])
        except KeyError:
            raise ValueError(
                f"No replica has its logical core {logical_core} on task {task_id}; there are "
                f"{self._topology.num_tasks} task(s), and {self.num_cores_per_replica} core(s) of "
                "each replica, counted from 0."
            ) from None

    def tpu_ordinal(self, replica: int = 0, logical_core: int = 0) -> int:
        """Returns which of its task's devices a logical core is."""
        place = self.coordinates(replica, logical_core)
        return self._topology.tpu_device_ordinal_at_coordinates(place)

    def host_device(self, replica: int = 0, logical_core: int = 0, job: str | None = None) -> str:
        """Returns TensorFlow's name for the CPU of the task that has a logical core."""
        place = self.coordinates(replica, logical_core)
        return self._topology.cpu_device_name_at_coordinates(place, job)

    def tpu_device(self, replica: int = 0, logical_core: int = 0, job: str | None = None) -> str:
        """Returns TensorFlow's name for the TPU that a logical core is or stands in for."""
        place = self.coordinates(replica, logical_core)
        return self._topology.tpu_device_name_at_coordinates(place, job)

    @staticmethod
    def build(
        topology: Topology | bytes,
        computation_shape: Any = None,
        computation_stride: Any = None,
        num_replicas: int = 1,
        device_order_mode: DeviceOrderMode = DeviceOrderMode.AUTO,
    ) -> DeviceAssignment:
        """Returns an assignment of a compact block of devices to each of some replicas.

        On TPUs the blocks and their order are TensorFlow's. Other devices have no geometry: there
        only the number of devices of a block counts, whatever its shape, and devices are taken as
        they come, those of the first replica first.

        Args:
          topology: The devices and their places, or a serialized topology.
          computation_shape: The size of a replica's block along x, y, z and core. None is one
            device, [1, 1, 1, 1].
          computation_stride: The distance between the devices of a block along each axis. None is
            [1, 1, 1, 1], side by side.
          num_replicas: The number of replicas. They need not fill the topology.
          device_order_mode: The order of replicas, and of the devices of each.

        Raises:
          ValueError: There is no place for so many blocks of that shape, or an argument is none
            of the above.
        """
        return device_assignment(
            topology, computation_shape, computation_stride, num_replicas, device_order_mode
        )

    def _devices(self) -> tuple[tuple[Device, ...], ...]:
        """Returns JAX's devices: for each replica, those of its logical cores."""
        device_at = self._topology._device_at
        return tuple(
            tuple(device_at(place) for place in replica) for replica in self._core_assignment
        )

    def __repr__(self) -> str:
        replicas, cores = self.num_replicas, self.num_cores_per_replica
        return (
            f"<DeviceAssignment: {replicas} replica{'s' * (replicas != 1)} of {cores} logical "
            f"device{'s' * (cores != 1)}>"
        )


def device_assignment(
    topology: Topology | bytes,
    computation_shape: Any = None,
    computation_stride: Any = None,
    num_replicas: int = 1,
    device_order_mode: DeviceOrderMode = DeviceOrderMode.AUTO,
) -> DeviceAssignment:
    """Returns what `DeviceAssignment.build` does."""
    if isinstance(topology, bytes):
        topology = Topology(serialized=topology)
    rank = _checked_topology(topology).mesh_rank
    shape = _sizes(computation_shape, "computation_shape", rank)
    stride = _sizes(computation_stride, "computation_stride", rank)
    replicas = _number_of_replicas(num_replicas)
    mode = _order_mode(device_order_mode)
    if not topology._is_virtual:
        _check_fit(topology.mesh_shape, shape, stride, replicas)
    if topology._is_virtual or topology.missing_devices.size:
        # Without a geometry, or with holes in it: TensorFlow takes devices as they come in the
        # second case, and there is no better order in the first.
        cores = math.prod(shape.tolist())
        _check_number(topology, cores, stride, replicas)
        chosen = in_task_order(topology.device_coordinates, cores, replicas)
    elif _makes_rings(topology.mesh_shape, shape, stride, replicas, mode):
        chosen = in_ring_order(topology.mesh_shape, shape, replicas)
    else:
        chosen = in_mesh_order(topology.mesh_shape, shape, stride, replicas)
    return DeviceAssignment(topology, chosen)


def _makes_rings(
    mesh: np.ndarray, shape: np.ndarray, stride: np.ndarray, replicas: int, mode: DeviceOrderMode
) -> bool:
    has_whole_chips = shape[-1] == mesh[-1]
    is_dense = math.prod(stride.tolist()) == 1
    fills_the_mesh = replicas == math.prod(replicas_by_axis(mesh, shape, stride).tolist())
    can = bool(has_whole_chips and is_dense and fills_the_mesh)
    if mode is DeviceOrderMode.RING and not can:
        raise ValueError(
            "device_order_mode=DeviceOrderMode.RING needs replicas that fill the topology without "
            f"gaps and have all cores of their chips; got {replicas} replica(s) of shape "
            f"{shape.tolist()} with stride {stride.tolist()} in a mesh of shape {mesh.tolist()}. "
            "Use DeviceOrderMode.AUTO, which makes rings where it can."
        )
    return can and mode is not DeviceOrderMode.MESH


# ---------------------------------------------------------------------- checks


def _checked_topology(topology: object) -> Topology:
    if not isinstance(topology, Topology):
        raise ValueError(
            "`topology` must be a rx.tpu.experimental.Topology, as initialize_tpu_system() "
            f"returns it; got {type(topology).__name__}."
        )
    return topology


def _sizes(value: object, name: str, rank: int) -> np.ndarray:
    if value is None:
        return np.ones(rank, np.int64)
    sizes = integers(value, name).astype(np.int64)  # to be multiplied with each other
    if sizes.shape != (rank,) or (sizes < 1).any():
        raise ValueError(
            f"`{name}` must be {rank} positive integers, along x, y, z and core; got "
            f"{sizes.tolist()}. Two cores of a chip are [1, 1, 1, 2]."
        )
    return sizes


def _number_of_replicas(value: SupportsIndex) -> int:
    try:
        replicas = operator.index(value)
    except TypeError:
        raise TypeError(f"`num_replicas` must be an integer; got {value!r}.") from None
    if replicas < 1:
        raise ValueError(f"`num_replicas` must be at least 1; got {replicas}.")
    return replicas


def _order_mode(value: object) -> DeviceOrderMode:
    try:
        return DeviceOrderMode(value)
    except ValueError:
        raise ValueError(
            "`device_order_mode` must be DeviceOrderMode.AUTO, RING or MESH of "
            f"rx.tpu.experimental; got {value!r}."
        ) from None


def _check_fit(mesh: np.ndarray, shape: np.ndarray, stride: np.ndarray, replicas: int) -> None:
    footprint = shape * stride
    if (footprint > mesh).any():
        raise ValueError(
            f"A computation of shape {shape.tolist()} with stride {stride.tolist()} takes "
            f"{footprint.tolist()} of the mesh, whose shape is {mesh.tolist()}. Choose a "
            "`computation_shape` that fits along each axis."
        )
    most = math.prod(replicas_by_axis(mesh, shape, stride).tolist())
    if replicas > most:
        raise ValueError(
            f"num_replicas={replicas}, but only {most} computation(s) of shape {shape.tolist()} "
            f"with stride {stride.tolist()} fit into the mesh, whose shape is {mesh.tolist()}. "
            f"Pass num_replicas={most} or less, or a smaller `computation_shape`."
        )


def _check_number(topology: Topology, cores: int, stride: np.ndarray, replicas: int) -> None:
    devices = topology.num_tasks * topology.num_tpus_per_task
    if not topology._is_virtual and math.prod(stride.tolist()) != 1:
        raise ValueError(
            f"computation_stride={stride.tolist()} is not possible: the topology has places "
            "without a device (`missing_devices`), so that devices are taken as they come. Leave "
            "`computation_stride` out."
        )
    if replicas * cores > devices:
        most = devices // cores
        raise ValueError(
            f"num_replicas={replicas} with {cores} device(s) each are {replicas * cores} devices, "
            f"but the topology has {devices}. "
            + (f"Pass num_replicas={most} or less, or a" if most else "Pass a")
            + " smaller `computation_shape`."
        )
