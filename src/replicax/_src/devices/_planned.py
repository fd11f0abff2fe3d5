"""Devices that are not here: what a program is compiled for before the machines are there.

A plan names hardware, such as "v5e:16x16" (256 TPUs) or "h200:32x8" (32 hosts of 8 GPUs each). JAX
gives descriptions of such devices, for which XLA compiles as it would on them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import math
import os
import re
from collections.abc import Generator, Sequence
from typing import Any, Self, cast, final

import jax

from replicax._src import _jax_internals, _planned_arrays
from replicax._src._errors import DeviceError
from replicax._src._typing import Device

_GB, _GIB, _TERA = 10**9, 1 << 30, 1e12


@dataclasses.dataclass(frozen=True)
class Hardware:
    """What is published of one kind of device; None where nothing is.

    Attributes:
      name: as plans name it.
      platform: as JAX calls it.
      kind: a part of what JAX says that such a device is.
      memory: bytes that a program can have.
      flops: operations in a second, of bfloat16 matrices.
      bandwidth: bytes in a second from and to its memory.
      link: bytes in a second to the devices beside it, in one direction.
      network: the same to devices of other hosts, for each device.
    """

    name: str
    platform: str
    kind: str
    memory: int | None = None
    flops: float | None = None
    bandwidth: float | None = None
    link: float | None = None
    network: float | None = None


# Of the makers' data sheets. Of a TPU's memory the compiler keeps a little for itself; of a GPU's,
# JAX takes three quarters by default, and all of it where it is told to.
_TPUS = (
    Hardware("v5e", "tpu", "v5 lite", 15 * _GIB + 768 * 2**20, 197e12, 819e9, 100e9, 100e9),
    Hardware("v5p", "tpu", "v5", 95 * _GIB, 459e12, 2765e9, 300e9, 300e9),
    Hardware("v6e", "tpu", "v6", 31 * _GIB + 256 * 2**20, 918e12, 1640e9, 224e9, 224e9),
)
_GPUS = (
    Hardware("a100", "cuda", "A100", 80 * _GB, 312e12, 2039e9, 300e9, 25e9),
    Hardware("h100", "cuda", "H100", 80 * _GB, 989e12, 3350e9, 450e9, 50e9),
    Hardware("h200", "cuda", "H200", 141 * _GB, 989e12, 4800e9, 450e9, 50e9),
    Hardware("b200", "cuda", "B200", 180 * _GB, 2250e12, 8000e9, 900e9, 50e9),
)
_CPU = Hardware("cpu", "cpu", "cpu")
HARDWARE = {each.name: each for each in (*_TPUS, *_GPUS, _CPU)}

_NAME = re.compile(r"^(?P<kind>[a-z][a-z0-9]*):(?P<sizes>\d+(?:x\d+)*)$")
_MOST_DEVICES = 1 << 14  # more than the largest machine has; to make them takes time
_EXAMPLES = (
    "'v5e:16x16' and 'v6e:4x4' (TPUs, by rows and columns), 'v5p:4x4x4', 'h200:32x8' (GPUs, by "
    "hosts and GPUs of each), 'cpu:8' (virtual devices, to try it out)"
)


@final
class PlannedDevices(tuple[Device, ...]):
    """Devices that are not here, for any strategy.

    Attributes:
      name: of the plan.
      hardware: what they are.
      per_host: how many each host has.
    """

    name: str
    hardware: Hardware
    per_host: int

    def __new__(
        cls, devices: Sequence[Device], name: str, hardware: Hardware, per_host: int
    ) -> Self:
        new = super().__new__(cls, devices)
        new.name, new.hardware, new.per_host = name, hardware, per_host
        return new

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return -(-len(self) // self.per_host)

    @property
    def job(self) -> str:
        """What the names of the devices begin with."""
        return self.name.replace(":", "-")

    def host_of(self, device: Device) -> int:
        """Returns the number of the host that has a device."""
        return self.index(device) // self.per_host

    def __repr__(self) -> str:
        return f"<PlannedDevices {self.name!r}: {len(self)} on {self.hosts} host(s)>"


def planned_devices(name: str, memory: int | None = None) -> PlannedDevices:
    """Returns devices that you do not have, to plan what training on them would need.

    In the scope of a strategy on them nothing is computed: variables, optimizers, data and models
    have shapes but no values, and an `rx.function` is compiled but not run. `fn.explain(...)` then
    reports what it would need: memory, communication, time.

    >>> import jax.numpy as jnp, replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(rx.config.planned_devices("cpu:16"))
    >>> with strategy.scope():
    ...     w = rx.Variable(jnp.zeros((300_000, 100_000)))  # 120 GB
    >>> w.shape, strategy.num_replicas_in_sync
    ((300000, 100000), 16)
    >>> w.numpy()
    Traceback (most recent call last):
    replicax.errors.PlannedValueError: ...

    Args:
      name: the hardware and its number: "v5e:16x16", "v5p:4x4x4", "v6e:4x4" (needs the package
        libtpu: `pip install "replicax[plan]"`), "h200:32x8" for 32 hosts of 8 GPUs (needs JAX's
        CUDA plug-in and one such GPU), or "cpu:8".
      memory: bytes that each device has, if it is not what is published.

    Raises:
      DeviceError: there is no such hardware, or what is needed to compile for it is not installed.
    """
    if not isinstance(cast(object, name), str):
        raise TypeError(f"planned_devices takes a name such as 'v5e:16x16'; got {name!r}.")
    if memory is not None and (not isinstance(cast(object, memory), int) or memory <= 0):
        raise ValueError(f"planned_devices: `memory` is a number of bytes; got {memory!r}.")
    return _made(name.strip().lower(), memory)


@functools.lru_cache(maxsize=64)
def _made(name: str, memory: int | None) -> PlannedDevices:
    match = _NAME.match(name)
    hardware = HARDWARE.get(match["kind"]) if match else None
    if match is None or hardware is None:
        raise DeviceError(
            f"{name!r} is no hardware that can be planned for. Known are "
            f"{', '.join(HARDWARE)}; write for example {_EXAMPLES}."
        )
    sizes = tuple(int(each) for each in match["sizes"].split("x"))
    if 0 in sizes:
        raise DeviceError(f"{name!r} has no devices. Write for example {_EXAMPLES}.")
    if math.prod(sizes) > _MOST_DEVICES:
        raise DeviceError(
            f"{name!r} has {math.prod(sizes)} devices, and plans are made for {_MOST_DEVICES} at "
            f"most. Write for example {_EXAMPLES}."
        )
    devices, per_host = _MAKERS[hardware.platform](name, hardware, sizes)
    if memory is not None:
        hardware = dataclasses.replace(hardware, memory=memory)
    return _noted(PlannedDevices(devices, name, hardware, per_host))


def _cpus(name: str, hardware: Hardware, sizes: tuple[int, ...]) -> tuple[Sequence[Device], int]:
    if len(sizes) > 2:
        raise DeviceError(f"{name!r}: write 'cpu:8', or 'cpu:2x4' for 2 hosts of 4 devices each.")
    return _jax_internals.other_cpu_devices(math.prod(sizes)), sizes[len(sizes) - 1]


def _tpus(name: str, hardware: Hardware, sizes: tuple[int, ...]) -> tuple[Sequence[Device], int]:
    if importlib.util.find_spec("libtpu") is None:
        raise DeviceError(
            f"To plan for {name!r}, XLA's compiler for TPUs has to be here, which is in the "
            'package libtpu: pip install "replicax[plan]". No TPU is needed.'
        )
    flat = 3 if hardware.name == "v5p" else 2
    if len(sizes) != flat:
        example = "v5p:4x4x4" if flat == 3 else f"{hardware.name}:4x4"
        raise DeviceError(f"{name!r}: {hardware.name} has {flat} dimensions; write '{example}'.")
    options: dict[str, Any] = {}
    if math.prod(sizes) == 1:  # one chip of a host
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        with for_libtpu():
            devices = _jax_internals.described_devices("tpu", name, **options)
    except Exception as error:
        raise DeviceError(
            f"XLA's compiler for TPUs does not know {name!r}: {error}. Sizes are 1x1, 2x2, or "
            "multiples of 2 by multiples of 2 up to 16x16 (v5e, v6e), and multiples of 2x2x1 (v5p)."
        ) from None
    hosts = {device.process_index for device in devices}
    return devices, len(devices) // len(hosts)


@contextlib.contextmanager
def for_libtpu() -> Generator[None]:
    """Around what libtpu does: keeps it from looking for a TPU of this machine, and for others.

    It also reads `XLA_FLAGS`, and ends the process if one of them is for the CPU alone.
    """
    wanted = {
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # a TPU is one process's alone; here is none
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    }
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    flags = os.environ.pop("XLA_FLAGS", None)
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        if flags is not None:
            os.environ["XLA_FLAGS"] = flags


def unsuited_libtpu(name: str, error: Exception) -> DeviceError:
    """Returns what is said where jaxlib cannot read what the compiler for TPUs made."""
    found = {
        each.name.lower(): each.version
        for name in ("libtpu", "jaxlib")
        for each in importlib.metadata.distributions(name=name)
    }
    versions = [f"{name} {found.get(name, '')}".strip() for name in ("libtpu", "jaxlib")]
    return DeviceError(
        f"The plan for {name!r} was compiled and cannot be read: {' and '.join(versions)} do not "
        "suit each other. Install the libtpu that this JAX was released with: pip install -U "
        f'"replicax[plan]" "jax[tpu]=={jax.__version__}". ({str(error).splitlines()[0]})'
    )


def _gpus(name: str, hardware: Hardware, sizes: tuple[int, ...]) -> tuple[Sequence[Device], int]:
    if len(sizes) != 2:
        raise DeviceError(f"{name!r}: write '{hardware.name}:32x8' for 32 hosts of 8 GPUs each.")
    try:
        gpus = cast(list[Any], jax.local_devices(backend="cuda"))  # pyright: ignore[reportUnknownMemberType]
        here: str = gpus[0].device_kind
    except RuntimeError:
        raise DeviceError(
            f"To plan for {name!r}, XLA's compiler for GPUs has to be here, and one such GPU: "
            'install JAX\'s CUDA plug-in, pip install "replicax[cuda12]", on a machine that has '
            "one. (TPUs and CPUs can be planned for on any machine.)"
        ) from None
    if hardware.kind not in here:
        raise DeviceError(
            f"To plan for {name!r}, such a GPU has to be here: XLA compiles for the one that it "
            f"sees, {here!r}. Known are {', '.join(each.name for each in _GPUS)}."
        )
    hosts, per_host = sizes
    try:
        devices = _jax_internals.described_devices(
            "cuda", "planned", topology=f"{hosts}x1x{per_host}"
        )
    except Exception as error:
        raise DeviceError(f"JAX cannot describe {name!r}: {error}.") from None
    return devices, per_host


_MAKERS = {"cpu": _cpus, "tpu": _tpus, "cuda": _gpus}

_plans: dict[Device, PlannedDevices] = {}


def _noted(devices: PlannedDevices) -> PlannedDevices:
    for device in devices:
        _plans[device] = devices
    _planned_arrays.note_planned(devices)
    return devices


def plan_with_job(job: str | None) -> PlannedDevices | None:
    """Returns the plan whose devices have names that begin so."""
    if job is None or not _plans:
        return None
    return next((plan for plan in _plans.values() if plan.job == job.lower()), None)


def are_plans_made() -> bool:
    """Returns whether there are planned devices at all; a quick question."""
    return bool(_plans)


def refuse_planned(device: Device, what: str) -> None:
    """Raises if a device is not here, and something is to be computed on it."""
    if are_plans_made() and device in _plans:
        raise _planned_arrays.no_value(what)


def plan_of(device: Device) -> PlannedDevices | None:
    """Returns the plan that a device is of; None for one that is here."""
    return _plans.get(device) if _plans else None
