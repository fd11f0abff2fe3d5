"""Where plain computations run: `rx.device`."""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import contextlib
from typing import Any

import jax

from replicax._src._jax_internals import is_staging, uncommitted
from replicax._src._planned_arrays import PlannedArray, is_planned
from replicax._src._typing import ArrayInput, Device
from replicax._src.devices._names import resolve


def device(device_name: str | Device | None) -> contextlib.AbstractContextManager[Any]:
    """Context manager: arrays made and operations run inside are placed on this device.

    As `tf.device`. Takes a device string, a `jax.Device`, or None for JAX's default.

    >>> import jax.numpy as jnp, replicax as rx
    >>> with rx.device("CPU:1"):
    ...     x = jnp.ones(3)
    >>> x.devices()
    {CpuDevice(id=1)}
    """
    return jax.default_device(None if device_name is None else resolve(device_name))


def device_of(array: jax.Array) -> Device:
    """Returns the device of a single-device array (the first one here of a sharded array)."""
    if isinstance(array, PlannedArray):
        return array.home
    devices = array.sharding.addressable_devices
    return next(iter(devices)) if len(devices) == 1 else min(devices, key=lambda each: each.id)


def put(array: ArrayInput, target: Device) -> jax.Array:
    """`array` on `target`, without a copy if it is there, free to be mixed with other devices'.

    In a program that is being traced values have no place of their own.
    """
    if is_staging():
        return array  # type: ignore[return-value]
    if isinstance(array, PlannedArray) or is_planned(target):
        return PlannedArray.on(array, target)
    if isinstance(array, jax.Array) and array.sharding.device_set == {target}:
        return uncommitted(array)
    return uncommitted(jax.device_put(array, target))
