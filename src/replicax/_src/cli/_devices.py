"""Which devices each worker of this host sees, as environment variables for its process.

The launcher starts no JAX backend (a GPU would be taken from the workers), so the GPUs are counted
by what the environment and the driver say.
"""

import importlib.metadata
import subprocess
from collections.abc import Mapping

from replicax._src.cli._options import Usage


def device_environments(
    workers: int, devices_per_worker: int | None, environment: Mapping[str, str]
) -> list[dict[str, str]]:
    """Returns for each worker of this host the variables that give it its share of the devices."""
    gpus = gpus_for_jax(environment)
    if gpus:
        return _shares_of_gpus(gpus, workers, devices_per_worker)
    if devices_per_worker is None:
        return [{} for _ in range(workers)]
    return [{"JAX_NUM_CPU_DEVICES": str(devices_per_worker)} for _ in range(workers)]


def gpus_for_jax(environment: Mapping[str, str]) -> list[str]:
    """Returns the names of the GPUs of this host that JAX would use."""
    return visible_gpus(environment) if _uses_gpus(environment) else []


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """Returns the names of this host's NVIDIA GPUs, as CUDA_VISIBLE_DEVICES takes them."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.split() if listed.returncode == 0 else []


def _uses_gpus(environment: Mapping[str, str]) -> bool:
    """Returns whether JAX would use GPUs: it is not told otherwise, and has its CUDA plugin."""
    platforms = environment.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return False
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return any("cuda" in plugin.name for plugin in plugins)


def _shares_of_gpus(gpus: list[str], workers: int, each: int | None) -> list[dict[str, str]]:
    if each is None:
        each = len(gpus) // workers
    if not 0 < each * workers <= len(gpus):
        raise Usage(
            f"{workers} workers with {max(each, 1)} GPU(s) each need {workers * max(each, 1)}, and "
            f"this host has {len(gpus)} ({', '.join(gpus)}). Start fewer workers, give each "
            "fewer with --devices-per-worker, or set JAX_PLATFORMS=cpu to train on the CPU."
        )
    return [
        {"CUDA_VISIBLE_DEVICES": ",".join(gpus[first : first + each])}
        for first in range(0, workers * each, each)
    ]
