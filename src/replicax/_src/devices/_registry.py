"""Listing devices and making virtual ones, in TensorFlow's words (`tf.config`).

A *physical* device is hardware; a *logical* device is what programs compute on. All CPU cores are
one physical device, which may be cut into several logical ones: replicas to test with on a laptop.
Listing physical devices does not start JAX, because the number of logical ones is fixed once it
has started.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import dataclasses
import glob
import importlib.util
import os
import re
from collections.abc import Sequence

import jax

from replicax._src import _jax_internals
from replicax._src.devices import _names

_KINDS = ("CPU", "GPU", "TPU")


@dataclasses.dataclass(frozen=True)
class PhysicalDevice:
    """A piece of hardware, as in `tf.config.PhysicalDevice`."""

    name: str
    device_type: str


@dataclasses.dataclass(frozen=True)
class LogicalDevice:
    """A device that programs compute on, as in `tf.config.LogicalDevice`."""

    name: str
    device_type: str


@dataclasses.dataclass(frozen=True)
class LogicalDeviceConfiguration:
    """How one logical device is to be made; the fields are TensorFlow's.

    They belong to GPUs, which JAX does not cut up.
    """

    memory_limit: int | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Returns the hardware of one kind, or of every kind. Does not start JAX.

    >>> import replicax as rx
    >>> rx.config.list_physical_devices("CPU")
    [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """
    return [
        PhysicalDevice(f"/physical_device:{kind}:{index}", kind)
        for kind in _kinds(device_type)
        for index in range(_count_physical(kind))
    ]


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Returns the devices of one kind, or of every kind, that programs can use. Starts JAX."""
    return [
        LogicalDevice(f"/device:{kind}:{index}", kind)
        for kind in _kinds(device_type)
        for index in range(len(_names.devices_of_kind(kind)))
    ]


def set_logical_device_configuration(
    device: PhysicalDevice, logical_devices: Sequence[LogicalDeviceConfiguration] | None
) -> None:
    """Cuts the CPU into virtual devices; call it before anything else touches a device.

    Args:
      device: the CPU, `rx.config.list_physical_devices("CPU")[0]`.
      logical_devices: one `LogicalDeviceConfiguration` for each virtual device; None means one.

    Raises:
      RuntimeError: JAX has started already, and the number of devices is fixed.
      ValueError: `device` is not the CPU, or the list is empty.
    """
    if not isinstance(device, PhysicalDevice):
        raise TypeError(
            f"`device` must be a PhysicalDevice, for example "
            f"rx.config.list_physical_devices('CPU')[0]; got {device!r}."
        )
    if device.device_type != "CPU":
        raise ValueError(
            f"Only the CPU can be cut into virtual devices; got {device.name}. JAX uses each "
            f"{device.device_type} whole. Pass rx.config.list_physical_devices('CPU')[0]."
        )
    wanted = [LogicalDeviceConfiguration()] if logical_devices is None else list(logical_devices)
    if not wanted:
        raise ValueError(
            "`logical_devices` is empty, but a CPU has at least one device. Pass for example "
            "[rx.config.LogicalDeviceConfiguration()] * 4."
        )
    for each in wanted:
        if not isinstance(each, LogicalDeviceConfiguration):
            raise TypeError(
                f"`logical_devices` holds {each!r}; each item must be a "
                "rx.config.LogicalDeviceConfiguration()."
            )
        if each.memory_limit is not None:
            raise ValueError("`memory_limit` does not apply to CPU devices; leave it out.")
    if _names.are_replaced():
        return  # the script that is followed gets planned devices
    if _jax_internals.backends_started():
        have = len(_names.devices_of_kind("CPU"))
        if have == len(wanted):
            return
        raise RuntimeError(
            f"JAX has started already with {have} CPU device(s), and their number is fixed from "
            f"then on; {len(wanted)} were asked for. Call set_logical_device_configuration at the "
            "top of the program, before any array or strategy is made, or start Python with "
            f"JAX_NUM_CPU_DEVICES={len(wanted)}."
        )
    jax.config.update("jax_num_cpu_devices", len(wanted))


def planned_cpu_devices() -> int:
    """Returns how many CPU devices there will be, without starting JAX."""
    wanted = jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]
    if wanted > 0:
        return wanted
    flags = re.findall(  # the last one counts, as for XLA
        r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", "")
    )
    return int(flags[-1]) if flags else 1


def _kinds(device_type: str | None) -> Sequence[str]:
    if device_type is None:
        return _KINDS
    kind = device_type.upper() if isinstance(device_type, str) else device_type
    if kind not in _KINDS:
        raise ValueError(
            f"`device_type` must be 'CPU', 'GPU' or 'TPU', or None for all; got {device_type!r}."
        )
    return (kind,)


def _count_physical(kind: str) -> int:
    if kind == "CPU":
        return 1
    if _jax_internals.backends_started():
        return len(_names.devices_of_kind(kind))
    return _GUESS[kind]()


def _platform_excluded(*platforms: str) -> bool:
    chosen = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    return bool(chosen) and not any(platform in chosen.split(",") for platform in platforms)


def _plugin_installed(*names: str) -> bool:
    return any(importlib.util.find_spec(name) is not None for name in names)


def _guess_gpus() -> int:
    """NVIDIA GPUs that JAX would find: the driver's list, less what the environment hides."""
    if _platform_excluded("gpu", "cuda") or not _plugin_installed(
        "jax_cuda12_plugin", "jax_cuda13_plugin"
    ):
        return 0
    found = len(glob.glob("/proc/driver/nvidia/gpus/*")) or len(glob.glob("/dev/nvidia[0-9]*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    named = [item for item in visible.split(",") if item.strip() not in ("", "-1")]
    return min(found, len(named))


def _guess_tpus() -> int:
    if _platform_excluded("tpu") or not _plugin_installed("libtpu"):
        return 0
    return len(glob.glob("/dev/accel*")) or len(glob.glob("/dev/vfio/[0-9]*"))


_GUESS = {"GPU": _guess_gpus, "TPU": _guess_tpus}
