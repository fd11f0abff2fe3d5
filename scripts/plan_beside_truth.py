"""Plans beside the truth: what a program was said to need, and what it takes.

    python -m scripts.plan_beside_truth                  # 8 virtual CPU devices, a small model
    python -m scripts.plan_beside_truth --on h200:1x1    # one H200, 1 billion parameters

For each layout of the state a transformer is planned, and trained for some steps on the devices
that are here, each in a process of its own. On a GPU the peak is what JAX's allocator had in use;
on the CPU, what the process has in memory at most during a step, less what it has before it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LAYOUTS = ("nothing", "optimizer", "everything")
ROOT = Path(__file__).resolve().parent.parent


def planned(on: str, size: str, layout: str) -> dict[str, int]:
    """What the plan says, in bytes on each device."""
    import replicax as rx
    from scripts.planned_transformer import SIZES, training

    state = rx.distribute.StateLayout(over_replicas=layout)
    strategy = rx.distribute.MirroredStrategy(rx.config.planned_devices(on), state_layout=state)
    found = training(strategy, SIZES[size])
    plan = found.step.explain(found.batch()).plan
    return {
        "parameters": plan.memory["parameters"],
        "state": plan.memory["optimizer"],
        "peak": plan.peak,
    }


def measured(count: int, size: str, layout: str) -> dict[str, int]:
    """What training takes here, in bytes on each device."""
    import jax

    import replicax as rx
    from replicax._src.variable import variables_of
    from scripts.planned_transformer import SIZES, training

    devices = jax.local_devices()[:count]
    state = rx.distribute.StateLayout(over_replicas=layout)
    strategy = rx.distribute.MirroredStrategy(devices, state_layout=state)
    found = training(strategy, SIZES[size])
    batch = found.batch()
    mine = {id(variable) for variable in found.variables}
    everything = variables_of(strategy)
    parameters = sum(_bytes_on(each, devices[0]) for each in everything if id(each) in mine)
    shapes = {each.shape for each in found.variables}
    others = [each for each in everything if id(each) not in mine and each.shape in shapes]
    slots = sum(_bytes_on(each, devices[0]) for each in others)
    result = {"parameters": parameters, "state": slots}
    float(found.step(batch))
    gc.collect()
    if devices[0].platform == "cpu":
        # The first call has compiled it, and what it made is settled.
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what is free goes back
        before, _ = _resident()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
        float(found.step(batch))
        _, peak = _resident()
        rest = sum(_bytes_on(each, devices[0]) for each in everything)
        rows = SIZES[size].rows * (SIZES[size].length + 1) * 4
        return result | {"peak": rest + rows + (peak - before) // count}
    for _ in range(3):
        float(found.step(batch))
    return result | {"peak": devices[0].memory_stats()["peak_bytes_in_use"]}


def _bytes_on(variable: Any, device: Any) -> int:
    from replicax._src.variable import own_storage

    shards = own_storage(variable).assembled.addressable_shards
    return sum(each.data.nbytes for each in shards if each.device == device)


def _resident() -> tuple[int, int]:
    """What this process has in memory, and had at most, in bytes."""
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def in_a_process(what: str, arguments: argparse.Namespace, layout: str) -> dict[str, int]:
    """What `planned` or `measured` says, in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    if arguments.on.startswith("cpu"):
        environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(arguments.devices)}
    command = [sys.executable, "-m", "scripts.plan_beside_truth", "--on", arguments.on]
    command += ["--size", arguments.size, "--part", what, "--layout", layout]
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{what} of {layout!r} failed:\n{ended.stderr[-3000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description="Plans beside the truth.")
    parser.add_argument("--on", default="cpu:8")
    parser.add_argument("--size", help="small or 1b")
    parser.add_argument("--layout", choices=LAYOUTS, help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=("planned", "measured"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.size = arguments.size or ("small" if arguments.on.startswith("cpu") else "1b")
    sizes = arguments.on.partition(":")[2].split("x")
    arguments.devices = 1
    for each in sizes:
        arguments.devices *= int(each)
    if arguments.part == "planned":
        print(json.dumps(planned(arguments.on, arguments.size, arguments.layout)))
        return
    if arguments.part == "measured":
        print(json.dumps(measured(arguments.devices, arguments.size, arguments.layout)))
        return
    print(f"{arguments.size} on {arguments.on}, MB on each device: planned / measured")
    print(f"{'layout':<12}{'parameters':>22}{'state':>22}{'peak':>22}{'off by':>9}")
    worst = 0.0
    for layout in LAYOUTS:
        plan = in_a_process("planned", arguments, layout)
        truth = in_a_process("measured", arguments, layout)
        off = [abs(plan[name] / truth[name] - 1) if truth[name] else 0.0 for name in plan]
        worst = max(worst, *off)
        cells = [f"{plan[n] / 1e6:.1f} / {truth[n] / 1e6:.1f}" for n in plan]
        print(f"{layout:<12}" + "".join(f"{c:>22}" for c in cells) + f"{100 * max(off):>8.1f}%")
    print(f"at most {100 * worst:.1f}% apart")
    sys.exit(worst > 0.05)


if __name__ == "__main__":
    main()
