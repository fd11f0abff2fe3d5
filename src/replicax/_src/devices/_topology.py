"""`Topology`: where the devices of a TPU are in its mesh, with axes x, y, z and core.

TPUs know their coordinates. Other devices have no geometry: their topology is *virtual*, a mesh
of the right size in which they are numbered through, so that programs written for TPUs find the
four axes that they expect.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np

from replicax._src._errors import DeviceError
from replicax._src._typing import Device
from replicax._src.devices._layout import prime_factors
from replicax._src.devices._names import are_replaced, devices_of_kind, resolve_all
from replicax._src.devices._topology_message import read_topology, write_topology

_RANK = 4
_MOST_PLACES = 1 << 22  # hundreds of times the largest TPU: more are no mesh, but a mistake


class Topology:
    """Says which devices there are and where in the mesh each of them is.

    `rx.tpu.experimental.initialize_tpu_system()` returns that of the devices at hand. Devices other
    than TPUs stand in for the cores of one:

    >>> import replicax as rx
    >>> topology = rx.tpu.experimental.initialize_tpu_system()
    >>> topology
    <Topology: 8 devices in a virtual mesh of shape [1, 2, 2, 2], 1 task>
    >>> topology.tpu_device_ordinal_at_coordinates([0, 1, 0, 0])
    2

    Args:
      serialized: A topology in TensorFlow's form (`TopologyProto`), as `serialized()` returns it.
        The other arguments are then not used.
      mesh_shape: Four positive integers: the size of the mesh along x, y, z and core.
      device_coordinates: The coordinates of every device: integers of shape
        (tasks, devices per task, 4).

    Raises:
      ValueError: These do not describe a topology.
    """

    def __init__(
        self,
        serialized: bytes | None = None,
        mesh_shape: Sequence[int] | np.ndarray | None = None,
        device_coordinates: Sequence[Any] | np.ndarray | None = None,
    ):
        self._serialized = serialized or None
        if self._serialized is not None:
            mesh_shape, device_coordinates = _parsed(self._serialized)
        elif mesh_shape is None or device_coordinates is None:
            raise ValueError(
                "A Topology needs `serialized`, or both `mesh_shape` and `device_coordinates`. "
                "For the devices at hand write rx.tpu.experimental.initialize_tpu_system()."
            )
        self._mesh_shape = _checked_mesh_shape(mesh_shape)
        self._device_coordinates = _checked_coordinates(device_coordinates, self._mesh_shape)
        self._tasks, self._ordinals = self._inverted()
        self._missing_devices = np.argwhere(self._tasks < 0)
        self._devices: tuple[tuple[Device, ...], ...] | None = None  # by task and ordinal
        self._is_virtual = False

    @classmethod
    def _of_devices(
        cls,
        mesh_shape: Any,
        device_coordinates: Sequence[int] | np.ndarray,
        devices: tuple[tuple[Device, ...], ...],
        is_virtual: bool,
    ) -> Self:
        new = cls(mesh_shape=mesh_shape, device_coordinates=device_coordinates)
        new._devices = devices
        new._is_virtual = is_virtual
        return new

    def _inverted(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the task and the ordinal of the device at each place of the mesh."""
        tasks = np.full(self._mesh_shape, -1, np.int32)
        ordinals = np.full(self._mesh_shape, -1, np.int32)
        for task, ordinal in np.ndindex(*self._device_coordinates.shape[:2]):
            place = tuple(self._device_coordinates[task, ordinal])
            if tasks[place] >= 0:
                raise ValueError(
                    f"`device_coordinates` has two devices at {_listed(place)}: device "
                    f"{ordinals[place]} of task {tasks[place]}, and device {ordinal} of task "
                    f"{task}. Give every device a place of its own."
                )
            tasks[place], ordinals[place] = task, ordinal
        return tasks, ordinals

    # ------------------------------------------------------------------ what there is

    @property
    def mesh_shape(self) -> np.ndarray:
        """The size of the mesh along x, y, z and core."""
        return self._mesh_shape

    @property
    def mesh_rank(self) -> int:
        """The number of axes, 4."""
        return len(self._mesh_shape)

    @property
    def device_coordinates(self) -> np.ndarray:
        """The coordinates of every device, of shape (tasks, devices per task, 4)."""
        return self._device_coordinates

    @property
    def missing_devices(self) -> np.ndarray:
        """The coordinates of the mesh at which there is no device, of shape (places, 4)."""
        return self._missing_devices

    @property
    def num_tasks(self) -> int:
        """The number of tasks: processes that have devices of it."""
        return self._device_coordinates.shape[0]

    @property
    def num_tpus_per_task(self) -> int:
        """The number of devices of each task."""
        return self._device_coordinates.shape[1]

    def serialized(self) -> bytes:
        """Returns it in TensorFlow's form, for `Topology(serialized=...)` here or there."""
        if self._serialized is None:
            self._serialized = write_topology(
                self._mesh_shape.tolist(),
                self.num_tasks,
                self.num_tpus_per_task,
                self._device_coordinates.ravel().tolist(),
            )
        return self._serialized

    def __repr__(self) -> str:
        virtual = "virtual " if self._is_virtual else ""
        devices = self.num_tasks * self.num_tpus_per_task
        return (
            f"<Topology: {devices} device{'s' * (devices != 1)} in a {virtual}mesh of shape "
            f"{self._mesh_shape.tolist()}, {self.num_tasks} task{'s' * (self.num_tasks != 1)}>"
        )

    # ------------------------------------------------------------------ what is where

    def task_ordinal_at_coordinates(self, device_coordinates: Sequence[int] | np.ndarray) -> int:
        """Returns the task whose device is at these coordinates; -1 if none is there.

        Args:
          device_coordinates: x, y, z and core.
        """
        return int(self._tasks[self._place(device_coordinates)])

    def tpu_device_ordinal_at_coordinates(
        self, device_coordinates: Sequence[int] | np.ndarray
    ) -> int:
        """Returns which of its task's devices is at these coordinates; -1 if none is there.

        Args:
          device_coordinates: x, y, z and core.
        """
        return int(self._ordinals[self._place(device_coordinates)])

    def cpu_device_name_at_coordinates(
        self, device_coordinates: Sequence[int] | np.ndarray, job: str | None = None
    ) -> str:
        """Returns TensorFlow's name for the CPU of the task whose device is at these coordinates.

        Args:
          device_coordinates: x, y, z and core.
          job: A job to put before the task.

        Raises:
          ValueError: There is no device.
        """
        task, _ = self._task_and_ordinal(device_coordinates)
        return f"{_job(job)}/task:{task}/device:CPU:0"

    def tpu_device_name_at_coordinates(
        self, device_coordinates: Sequence[int] | np.ndarray, job: str | None = None
    ) -> str:
        """Returns TensorFlow's name for the TPU at these coordinates, also where another stands in.

        Args:
          device_coordinates: x, y, z and core.
          job: A job to put before the task.

        Raises:
          ValueError: There is no device.
        """
        task, ordinal = self._task_and_ordinal(device_coordinates)
        return f"{_job(job)}/task:{task}/device:TPU:{ordinal}"

    def _device_at(self, device_coordinates: Sequence[int] | np.ndarray) -> Device:
        """Returns JAX's device at these coordinates."""
        task, ordinal = self._task_and_ordinal(device_coordinates)
        devices = self._devices
        if devices is None:  # a description by hand: of the devices that JAX has
            devices = by_process(devices_of_all_processes(best_local_devices()))
        if task >= len(devices) or ordinal >= len(devices[task]):
            raise DeviceError(
                f"The topology has a device {ordinal} of task {task} at coordinates "
                f"{_listed(device_coordinates)}, but JAX has {len(devices)} process(es) with "
                f"{len(devices[0])} device(s) each. For the topology of the devices at hand write "
                "rx.tpu.experimental.initialize_tpu_system()."
            )
        return devices[task][ordinal]

    def _task_and_ordinal(self, device_coordinates: Sequence[int] | np.ndarray) -> tuple[int, int]:
        place = self._place(device_coordinates)
        if self._tasks[place] < 0:
            raise ValueError(
                f"The topology has no device at coordinates {_listed(place)}; "
                "`missing_devices` lists all such places."
            )
        return int(self._tasks[place]), int(self._ordinals[place])

    def _place(self, device_coordinates: Sequence[int] | np.ndarray) -> tuple[int, ...]:
        place = tuple(integers(device_coordinates, "device_coordinates").ravel().tolist())
        if len(place) != self.mesh_rank:
            raise ValueError(
                f"`device_coordinates` must be {self.mesh_rank} integers: x, y, z and core; got "
                f"{device_coordinates!r}."
            )
        if any(not 0 <= at < size for at, size in zip(place, self._mesh_shape, strict=True)):
            raise IndexError(
                f"The coordinates {_listed(place)} are outside of the mesh, whose shape is "
                f"{self._mesh_shape.tolist()}."
            )
        return place


# ---------------------------------------------------------------------- topologies of JAX's devices


def topology_of(devices: Sequence[Device]) -> Topology:
    """Returns the topology of some devices: TPUs by their coordinates, others numbered through.

    Raises:
      DeviceError: There are none, or processes have different numbers of them.
    """
    tasks = by_process(devices)
    if len({len(task) for task in tasks}) != 1:
        counts = ", ".join(f"process {task[0].process_index}: {len(task)}" for task in tasks)
        raise DeviceError(
            "A topology needs devices, as many of each process as of the others; got "
            f"{counts or 'none'}."
        )
    places = _physical_places([device for task in tasks for device in task])
    is_virtual = places is None
    if places is None:
        mesh_shape = virtual_mesh_shape(len(devices))
        # As TPUs are numbered: the cores of a chip, then the chips along x, along y, along z.
        z, y, x, core = np.unravel_index(
            np.arange(len(devices)), (*mesh_shape[2::-1], mesh_shape[3])
        )
        places = np.stack([x, y, z, core], axis=-1)
    else:
        mesh_shape = (places.max(axis=0) + 1).tolist()
    coordinates = places.reshape(len(tasks), -1, _RANK)
    return Topology._of_devices(mesh_shape, coordinates, tasks, is_virtual)


def virtual_mesh_shape(count: int) -> list[int]:
    """Returns a mesh's shape for devices without one: 8 are [1, 2, 2, 2], 6 are [1, 1, 3, 2].

    The smallest prime factor is the number of cores of a chip, and the others, the largest first,
    go to whichever of z, y and x is the shortest.
    """
    core, *others = prime_factors(count) or [1]
    z_y_x = [1, 1, 1]
    for factor in reversed(others):
        z_y_x[z_y_x.index(min(z_y_x))] *= factor
    return [*reversed(z_y_x), core]


def by_process(devices: Sequence[Device]) -> tuple[tuple[Device, ...], ...]:
    """Returns the devices of each process, in the order of processes."""
    groups: dict[int, list[Device]] = {}
    for device in devices:
        groups.setdefault(device.process_index, []).append(device)
    return tuple(tuple(groups[process]) for process in sorted(groups))


def best_local_devices() -> tuple[Device, ...]:
    """Returns all TPUs of this process; without any, all GPUs, else all CPU devices."""
    here = [] if are_replaced() else devices_of_kind("TPU")
    return tuple(here) or resolve_all(None)


def devices_of_all_processes(local: Sequence[Device]) -> list[Device]:
    """Returns all devices of the same kind, also those of the other workers of a cluster."""
    found = jax.devices(local[0].platform)
    return sorted(found, key=lambda each: (each.process_index, each.id))


def _physical_places(devices: Sequence[Device]) -> np.ndarray | None:
    """Returns the coordinates of TPUs in their own mesh; None where they have none in common."""
    if any(device.platform != "tpu" for device in devices):
        return None
    places = [(*device.coords, device.core_on_chip) for device in devices]
    # Several slices repeat their coordinates.
    if any(len(place) != _RANK for place in places) or len(set(places)) != len(places):
        return None
    found = np.array(places)
    return found - found.min(axis=0)  # one host's part of a pod begins anywhere


# ---------------------------------------------------------------------- checks


def integers(value: object, name: str) -> np.ndarray:
    """Returns the value as an int32 array; `ValueError` if it is not of whole numbers."""
    try:
        given = np.asarray(value)
        with np.errstate(invalid="ignore"):
            whole = given.astype(np.int32)
        if given.dtype.kind in "iuf" and np.array_equal(given, whole):
            return whole
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"`{name}` must be integers, in lists of equal lengths; got {value!r}.")


def _checked_mesh_shape(value: object) -> np.ndarray:
    shape = integers(value, "mesh_shape")
    if shape.shape != (_RANK,) or (shape < 1).any():
        raise ValueError(
            f"`mesh_shape` must be {_RANK} positive integers, the sizes along x, y, z and core; "
            f"got {shape.tolist()}. A chip with two cores is [1, 1, 1, 2]."
        )
    if math.prod(shape.tolist()) > _MOST_PLACES:
        raise ValueError(
            f"`mesh_shape` {shape.tolist()} has {math.prod(shape.tolist())} places for devices; "
            "no TPU has so many. Pass the size of the mesh along x, y, z and core."
        )
    shape.flags.writeable = False
    return shape


def _checked_coordinates(value: object, mesh_shape: np.ndarray) -> np.ndarray:
    coordinates = integers(value, "device_coordinates")
    if coordinates.ndim != 3 or coordinates.shape[2] != _RANK:
        raise ValueError(
            "`device_coordinates` must have the shape (tasks, devices per task, "
            f"{_RANK}); got {coordinates.shape}. One device is [[[0, 0, 0, 0]]]."
        )
    outside = ((coordinates < 0) | (coordinates >= mesh_shape)).any(axis=-1)
    if outside.any():
        raise ValueError(
            f"`device_coordinates` has {_listed(coordinates[outside][0])}, which is outside of the "
            f"mesh: along each axis, coordinates go from 0 to one less than `mesh_shape`, "
            f"{mesh_shape.tolist()}."
        )
    coordinates.flags.writeable = False
    return coordinates


def _parsed(serialized: object) -> tuple[list[int], np.ndarray]:
    if not isinstance(serialized, bytes):
        raise TypeError(
            f"`serialized` must be bytes, as `topology.serialized()` returns them; got "
            f"{type(serialized).__name__}."
        )
    mesh_shape, tasks, devices, coordinates = read_topology(serialized)
    shape = (tasks, devices, len(mesh_shape))
    if min(shape) < 0 or math.prod(shape) != len(coordinates):
        raise ValueError(
            f"The serialized topology has {tasks} task(s) of {devices} device(s) in a mesh of "
            f"{len(mesh_shape)} axes, but {len(coordinates)} coordinates. Pass what "
            "`topology.serialized()` returned."
        )
    return mesh_shape, np.array(coordinates, np.int32).reshape(shape)


def _listed(coordinates: Sequence[int] | np.ndarray) -> str:
    return str([int(at) for at in coordinates])


def _job(job: str | None) -> str:
    return "" if job is None else f"/job:{job}"
