"""Where a reduction's result goes: the devices that a destination stands for."""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from replicax._src._typing import Device, Tracer
from replicax._src.context import world
from replicax._src.devices import ReplicaDevices, device_of, put, replicas_on, resolve
from replicax._src.values import DistributedValues, storage_of

Devices = tuple[Device, ...]


def destination_devices(destinations: object) -> Devices:
    """Returns the devices of a variable, a value, a device name, or a list of device names.

    Raises:
      TypeError, ValueError: it stands for no device.
    """
    if isinstance(destinations, str | Device):
        return (resolve(destinations),)
    if isinstance(destinations, ReplicaDevices):
        return destinations
    placed = getattr(destinations, "_placement", None)  # variables say where they live
    if placed is not None:
        return placed
    if isinstance(destinations, DistributedValues):
        return component_devices(destinations)
    if isinstance(destinations, Tracer):
        return (default_device(),)
    if isinstance(destinations, jax.Array):
        return (device_of(destinations),)
    if isinstance(destinations, Sequence) and destinations:
        return tuple(dict.fromkeys(resolve(each) for each in destinations))
    raise TypeError(
        f"`destinations` must be a variable, a value of replicas, a device name such as 'GPU:0' or "
        f"a non-empty list of device names; got {destinations!r}. To reduce to where the value is, "
        "pass the value itself."
    )


def component_devices(value: DistributedValues) -> Devices:
    buffers = storage_of(value)
    if buffers is not None:
        return buffers.mesh.devices
    return tuple(
        device_of(part)
        if isinstance(part, jax.Array) and not isinstance(part, Tracer)
        else default_device()
        for part in value.values
    )


def default_device() -> Device:
    """Returns the device on which plain computations of this thread run."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(chosen, Device):
        return chosen
    return jax.local_devices(backend=chosen)[0]  # the name of a platform, or None


def mirror(array: jax.Array, devices: Devices) -> Any:
    """Returns `array` on these devices: a plain array for one, `Mirrored` for more."""
    if replicas_on(devices) == 1:
        return put(array, devices[0])
    return world().mirrored(devices, array)
