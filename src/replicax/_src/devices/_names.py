"""Device strings as TensorFlow writes them, and the `jax.Device` each one means.

`"GPU:0"`, `"/gpu:0"`, `"/device:CPU:1"` and `"/job:localhost/replica:0/task:0/device:CPU:0"` are
all taken, in any case. The last form is the canonical one that strategies hand out.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import jax

from replicax._src._errors import DeviceError
from replicax._src._typing import Device
from replicax._src.devices._planned import plan_of, plan_with_job

_PATTERN = re.compile(
    r"^(?:/?job:(?P<job>[a-z0-9_\-]+))?(?:/?replica:(?P<replica>\d+))?(?:/?task:(?P<task>\d+))?"
    r"/?(?:device:)?(?P<kind>cpu|gpu|tpu)(?::(?P<index>\d+))?$",
    re.IGNORECASE,
)
_own_task = ["localhost", 0]  # what the cluster calls this process
_KIND_OF_PLATFORM = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}


def name_this_process(job: str, task: int) -> None:
    """From now on the devices here are those of this task of a cluster."""
    _own_task[:] = job, task


def kind_of(device: Device) -> str:
    """`"CPU"`, `"GPU"` or `"TPU"` (or the platform's own name in capitals)."""
    platform: str = device.platform
    return _KIND_OF_PLATFORM.get(platform, platform.upper())


def devices_of_kind(kind: str) -> list[Device]:
    """Returns this process's devices of one kind, in JAX's order; empty where there are none."""
    try:
        return jax.local_devices(backend=kind.lower())
    except RuntimeError:  # JAX's word for "no such backend on this machine"
        return []


def all_devices() -> list[Device]:
    """Returns every device of this process: CPU, then GPU, then TPU."""
    return [device for kind in ("CPU", "GPU", "TPU") for device in devices_of_kind(kind)]


def short_name(device: Device) -> str:
    """`"CPU:0"`: the kind and the position among this process's devices of that kind."""
    kind = kind_of(device)
    if plan_of(device) is not None:
        return f"{kind}:{device.id}"
    siblings = devices_of_kind(kind)
    index = siblings.index(device) if device in siblings else device.id
    return f"{kind}:{index}"


def canonical_name(device: Device) -> str:
    """Returns the full name that TensorFlow would print."""
    plan = plan_of(device)
    if plan is not None:
        task = plan.host_of(device)
        return f"/job:{plan.job}/replica:0/task:{task}/device:{short_name(device)}"
    job, task = _own_task
    if device.process_index != jax.process_index():
        job, task = "localhost", device.process_index
    return f"/job:{job}/replica:0/task:{task}/device:{short_name(device)}"


def resolve(device: str | Device) -> Device:
    """Returns the `jax.Device` of a name or device; `DeviceError` if there is none."""
    if isinstance(device, Device):
        is_known = not _stand_ins or plan_of(device) or device in _stand_ins[-1]
        return device if is_known else _stand_ins[-1][0]
    if not isinstance(device, str):
        raise TypeError(
            f"A device is a string such as 'GPU:0' or a jax.Device; got {device!r} of type "
            f"{type(device).__name__}. {_what_there_is()}"
        )
    match = _PATTERN.match(device.strip())
    if match is None:
        raise DeviceError(
            f"{device!r} is not a device name. Write for example 'GPU:0', '/gpu:0' or "
            f"'/job:localhost/replica:0/task:0/device:GPU:0'. {_what_there_is()}"
        )
    kind, index = match["kind"].upper(), int(match["index"] or 0)
    if planned := plan_with_job(match["job"]):
        return planned[index]
    if _stand_ins:
        return _stand_ins[-1][index % len(_stand_ins[-1])]
    is_here = match["task"] is None or int(match["task"]) in (_own_task[1], jax.process_index())
    if int(match["replica"] or 0) != 0 or not is_here:
        raise DeviceError(
            f"{device!r} names a device of another process; only this process's devices can be "
            f"used by name here. {_what_there_is()}"
        )
    siblings = devices_of_kind(kind)
    if index >= len(siblings):
        hint = ""
        if kind == "CPU":
            hint = (
                " For more virtual CPU devices call rx.config.set_logical_device_configuration("
                "rx.config.list_physical_devices('CPU')[0], "
                f"[rx.config.LogicalDeviceConfiguration()] * {index + 1}) before JAX is first used."
            )
        raise DeviceError(
            f"There is no device {device!r} on this machine. {_what_there_is()}{hint}"
        )
    return siblings[index]


def resolve_all(devices: Iterable[Any] | None) -> tuple[Device, ...]:
    """Returns the devices named; all the best ones there are for None or an empty list.

    "Best" is all GPUs, else all TPUs, else all (virtual) CPU devices.
    """
    if devices is not None and (
        isinstance(devices, str | Device) or not isinstance(devices, Iterable)
    ):
        one = isinstance(devices, str | Device)
        raise TypeError(
            f"`devices` is a list of devices; got {'the single device ' * one}{devices!r}. "
            f"Write devices=[{devices if one else 'GPU:0'!r}], or None for all devices."
        )
    if _stand_ins:
        return tuple(_stand_ins[-1])
    named = list(devices) if devices is not None else []
    if not named:
        best = devices_of_kind("GPU") or devices_of_kind("TPU") or devices_of_kind("CPU")
        return tuple(best or jax.local_devices())  # which raises JAX's own error if it has none
    found = tuple(resolve(device) for device in named)
    if len(set(found)) != len(found):
        twice = sorted({short_name(d) for d in found if found.count(d) > 1})
        raise DeviceError(
            f"The devices {named} name {', '.join(twice)} more than once; each replica needs a "
            f"device of its own. {_what_there_is()}"
        )
    if len({device.platform for device in found}) > 1:
        raise DeviceError(
            f"The devices {named} are of different kinds, and cannot work as one group. Use "
            f"devices of one kind. {_what_there_is()}"
        )
    return found


_stand_ins: list[Sequence[Device]] = []


@contextlib.contextmanager
def replaced_by(devices: Sequence[Device]) -> Generator[None]:
    """Inside the block, strategies are made on these devices, whatever devices they ask for."""
    _stand_ins.append(devices)
    try:
        yield
    finally:
        _stand_ins.pop()


def are_replaced() -> bool:
    """Returns whether other devices stand for those that are asked for."""
    return bool(_stand_ins)


def canonical_names(devices: Sequence[Device]) -> tuple[str, ...]:
    return tuple(canonical_name(device) for device in devices)


def _what_there_is() -> str:
    return f"Devices here: {', '.join(short_name(device) for device in all_devices())}."
