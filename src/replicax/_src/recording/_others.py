"""What all workers of a job have recorded of a step: a trap of one of them speaks for all."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from typing import Any

from replicax._src._errors import DataLossError
from replicax._src.recording._ring import head_of, lines_of, segments_in

_POLL_SECONDS = 0.05


def lines_of_step(
    directory: str, workers: int, step: int, patience: float
) -> dict[int, dict[str, Any]]:
    """Returns what each worker has recorded of a step; waits for results that are on their way.

    Args:
      directory: of the recording, with a folder for each worker.
      workers: how many there are.
      step: the number of the step.
      patience: seconds. Workers that have written nothing by then are left out.
    """
    found: dict[int, dict[str, Any]] = {}
    end = time.monotonic() + patience
    while True:
        for worker in range(workers):
            if worker not in found:
                line = _line_of(os.path.join(directory, f"worker-{worker}"), step)
                if "results" in line or "error" in line:
                    found[worker] = line
        if len(found) == workers or time.monotonic() > end:
            return found
        time.sleep(_POLL_SECONDS)


def _line_of(folder: str, step: int) -> dict[str, Any]:
    line: dict[str, Any] = {}
    try:
        for segment in segments_in(folder)[-2:]:
            after, _ = head_of(folder, segment)
            if after is None or after >= step:
                continue
            for each in lines_of(folder, segment):
                if each.get("step") == step:
                    line = each if "inputs" in each else line | each
    except (OSError, DataLossError):
        return {}
    return line


def who_waited(lines: Mapping[int, dict[str, Any]], excess: float) -> str:
    """Returns which worker the others waited for, by the times at which they called a step.

    Args:
      lines: what the workers have recorded of the step.
      excess: seconds that it took more than usual.
    """
    idle: dict[int, float] = {}
    for worker, line in lines.items():
        times = line.get("times")
        seconds = times.get("idle") if isinstance(times, dict) else None
        if isinstance(seconds, int | float):
            idle[worker] = float(seconds)
    if len(idle) < 2:
        return ""
    late = max(idle, key=lambda worker: idle[worker])
    others = [seconds for worker, seconds in idle.items() if worker != late]
    if idle[late] - statistics.median(others) < excess / 2:
        return (
            " No worker was late: all called it within "
            f"{max(idle.values()):.3g} s after the step before. A device or the network was slow."
        )
    names = ", ".join(str(worker) for worker in sorted(idle) if worker != late)
    plural = "s" if len(others) > 1 else ""
    return (
        f" Worker{plural} {names} waited for worker {late}, whose program called it "
        f"{idle[late]:.3g} s after the step before, and theirs after at most {max(others):.3g} s."
    )
