"""What the doctor looks at on this machine: versions, limits, GPUs, devices and collectives."""

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

from replicax import __version__
from replicax._src.cli._probes import MEGABYTES, ProbeResult, probe_devices, probe_two_workers

try:
    import resource
except ImportError:  # not on Windows
    resource = None

_PACKAGES = (
    *("jax", "jaxlib", "numpy", "optax", "keras", "flax", "orbax-checkpoint"),
    *("jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu"),
)
# Every worker has connections to others, files of its data set and those of its checkpoint.
_FEW_DESCRIPTORS = 1024
_SMALL_SHARED_MEMORY = 512 << 20


class Problem(NamedTuple):
    """Something that is wrong, and how to mend it."""

    text: str
    fix: str


@final
@dataclasses.dataclass
class Diagnosis:
    """What was found in one part."""

    lines: list[str] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """For `--json`, and for the parts that come later."""

    def wrong(self, text: str, fix: str) -> None:
        """Adds a problem."""
        self.problems.append(Problem(text, fix))


class Part(NamedTuple):
    """One part of the examination; `examine` gets what the parts before it have found."""

    name: str
    examine: Callable[[Mapping[str, Diagnosis]], Diagnosis]
    seconds: float
    if_it_hangs: str


Diagnoses = Mapping[str, Diagnosis]


def examine_versions(_: Diagnoses) -> Diagnosis:
    """Looks at Python and the packages that matter, without importing them."""
    versions = {"python": platform.python_version(), "replicax": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    finding = Diagnosis(facts={"versions": versions, "executable": sys.executable})
    finding.lines.append(", ".join(f"{name} {version}" for name, version in versions.items()))
    finding.lines.append(f"{platform.platform()}, {sys.executable}")
    jax = versions.get("jax")
    for package in ("jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"):
        version = versions.get(package)
        if jax and version and version.split(".")[:2] != jax.split(".")[:2]:
            finding.wrong(
                f"jax {jax} and {package} {version} do not belong together",
                f'Install versions that do: pip install -U "jax=={jax}" "{package}=={jax}"',
            )
    return finding


def examine_plans(so_far: Diagnoses) -> Diagnosis:
    """Says what `replicax plan` can plan for here."""
    versions = so_far["versions"].facts.get("versions", {}) if "versions" in so_far else {}
    gpus = so_far["gpus"].facts.get("gpus", []) if "gpus" in so_far else []
    plugins = [name for name in versions if name.startswith("jax-cuda")]
    tpus = "yes" if "libtpu" in versions else 'no: pip install "replicax[plan]"'
    here = "yes, as those that are here"
    if not gpus:
        here = "no: it takes one such GPU, and JAX's CUDA plug-in"
    elif not plugins:
        here = 'no: pip install "replicax[cuda12]"'
    finding = Diagnosis(facts={"tpu": "libtpu" in versions, "gpu": bool(plugins and gpus)})
    finding.lines.append(f"for TPUs: {tpus}")
    finding.lines.append(f"for GPUs: {here}")
    return finding


def examine_machine(so_far: Diagnoses) -> Diagnosis:
    """Looks at processors, memory, file descriptors and shared memory."""
    finding = Diagnosis()
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    finding.facts["processors"] = processors
    finding.lines.append(f"{processors} processors{_memory(finding)}")
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        finding.facts["file_descriptors"] = {"soft": soft, "hard": hard}
        finding.lines.append(f"file descriptors: {soft} (up to {hard})")
        if 0 <= soft < _FEW_DESCRIPTORS:
            finding.wrong(
                f"a process may open {soft} files only",
                f"Raise the limit before the launch: ulimit -n {max(4096, _FEW_DESCRIPTORS)}",
            )
    if os.path.isdir("/dev/shm"):
        usage = shutil.disk_usage("/dev/shm")
        finding.facts["shared_memory"] = {"total": usage.total, "free": usage.free}
        finding.lines.append(f"/dev/shm: {_size(usage.free)} of {_size(usage.total)} free")
        gpus = so_far["gpus"].facts.get("gpus", []) if "gpus" in so_far else []
        if len(gpus) > 1 and usage.free < _SMALL_SHARED_MEMORY:
            finding.wrong(
                f"/dev/shm has {_size(usage.free)} free, which is little for NCCL between "
                f"{len(gpus)} GPUs",
                "In a container, start it with more: docker run --shm-size=1g, or an emptyDir "
                "with medium: Memory at /dev/shm in Kubernetes.",
            )
    return finding


def examine_gpus(_: Diagnoses) -> Diagnosis:
    """Looks at NVIDIA GPUs as their driver sees them."""
    finding = Diagnosis(facts={"gpus": []})
    if shutil.which("nvidia-smi") is None:
        finding.lines.append("none (no nvidia-smi)")
        return finding
    query = "--query-gpu=index,name,memory.total,driver_version"
    listed = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=10,
    )
    if listed.returncode:
        said = (listed.stderr or listed.stdout).strip().splitlines()
        finding.wrong(
            f"nvidia-smi fails: {said[-1] if said else f'status {listed.returncode}'}",
            "Install or reload the NVIDIA driver; after an update of the driver, reboot.",
        )
    for line in listed.stdout.strip().splitlines() if not listed.returncode else []:
        finding.facts["gpus"].append(line)
        finding.lines.append(line)
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        finding.lines.append(f"CUDA_VISIBLE_DEVICES={chosen}")
    return finding


def examine_devices(so_far: Diagnoses, timeout: float) -> Diagnosis:
    """Has JAX list its devices, and sum over all of them, in a process of its own."""
    probe = probe_devices(timeout)
    devices: list[dict[str, Any]] = probe.found.get("devices", [])
    finding = Diagnosis(facts=dict(probe.found))
    kinds = Counter(f"{each['platform']} ({each['kind']})" for each in devices)
    finding.lines += [f"{number} x {kind}" for kind, number in kinds.items()]
    if not devices:
        finding.problems.append(_no_devices(probe))
        return finding
    if probe.problem is not None:
        finding.wrong(
            f"a sum over all {len(devices)} devices failed: {probe.problem}",
            "Try with one device less at a time (CUDA_VISIBLE_DEVICES) to find the one that is "
            "broken, and with NCCL_DEBUG=INFO to see why.",
        )
    elif len(devices) > 1:
        finding.lines.append(_bandwidth(probe.found))
    else:
        finding.lines.append("one device: nothing to sum over")
    gpus = so_far["gpus"].facts.get("gpus", []) if "gpus" in so_far else []
    told = os.environ.get("JAX_PLATFORMS", "")
    if gpus and probe.found.get("platform") == "cpu" and "cpu" not in told.split(","):
        finding.wrong(
            f"this host has {len(gpus)} GPU(s), but JAX sees only the CPU",
            'Install JAX with its CUDA plugin: pip install -U "jax[cuda12]"',
        )
    return finding


def _no_devices(probe: ProbeResult) -> Problem:
    if probe.timed_out:
        return Problem(
            f"JAX has not started its devices: {probe.problem}",
            "The driver may hang, or another process may hold the device: see nvidia-smi (or who "
            "uses /dev/accel* on a TPU), end that process, or reboot. JAX_PLATFORMS=cpu leaves the "
            "accelerators alone.",
        )
    return Problem(
        f"JAX cannot start its devices: {probe.problem}",
        "See the whole message with: python -c 'import jax; print(jax.devices())'",
    )


def examine_workers(timeout: float) -> Diagnosis:
    """Has two processes on this host meet through jax.distributed and sum over both."""
    probe = probe_two_workers(timeout)
    finding = Diagnosis(facts=dict(probe.found))
    if probe.problem is None:
        finding.lines.append(_bandwidth(probe.found))
        return finding
    finding.wrong(
        f"a sum over two processes on this host failed: {probe.problem}",
        "Workers on one host must reach each other over loopback (127.0.0.1): look for a "
        "firewall, and whether that device is up (`ip link set lo up`).",
    )
    return finding


def _bandwidth(found: Mapping[str, Any]) -> str:
    return (
        f"sum of {MEGABYTES} MB over {found['devices_reduced']} devices: "
        f"{found['gigabytes_per_second']:g} GB/s"
    )


def _memory(finding: Diagnosis) -> str:
    try:
        pages, free = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_AVPHYS_PAGES")
        page = os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return ""
    finding.facts["memory"] = {"total": pages * page, "free": free * page}
    return f", {_size(free * page)} of {_size(pages * page)} memory free"


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
