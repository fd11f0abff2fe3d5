"""The program of a worker: plays scenarios in order, and reports what it observed in each.

    python -m tests.parity.play LIBRARY LAYOUT SCENARIOS

`SCENARIOS` is a file with a JSON list of [executor, name of a scenario]. A scenario that hangs ends
the worker, and the job with it, so that whoever started it can go on with the next one.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from ..processes import result
from ._layout import LAYOUTS, Layout
from .scenarios import all_scenarios

PATIENCE = 90.0
"""Seconds for one scenario."""

OUT_OF_STEP = 3
"""The exit status where workers disagree after a scenario, or collectives no longer work."""


def main() -> None:
    """Plays what the command line says."""
    library_name, layout_name, plan = sys.argv[1:]
    layout = LAYOUTS[layout_name]
    worker = _rank(json.loads(os.environ["TF_CONFIG"])["task"], layout)
    faulthandler.dump_traceback_later(500, exit=True)
    library = _library(library_name, layout, worker)
    result("version", library.version)
    scenarios = {each.full_name: each for each in all_scenarios()}
    for number, (executor, name) in enumerate(json.loads(Path(plan).read_text())):
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        print(f"playing {executor} {name}", flush=True)
        playing = library.under(executor) if library_name == "replicax" else library
        try:
            observed = scenarios[name].play(playing)
        except Exception:
            observed = {"broke": traceback.format_exc()}
        result("observed", [executor, name, observed])
        if not _in_step(playing, number):
            os._exit(OUT_OF_STEP)
        result("in step", number)
    faulthandler.cancel_dump_traceback_later()


def _rank(task: dict[str, Any], layout: Layout) -> int:
    return task["index"] + (1 if layout.chief and task["type"] == "worker" else 0)


def _library(name: str, layout: Layout, worker: int) -> Any:
    if name == "tensorflow":
        from ._worker_of_tensorflow import TensorFlowInJob

        return TensorFlowInJob(layout, worker)
    from ._worker_of_replicax import ReplicaxInJob

    return ReplicaxInJob(layout, worker)


def _in_step(library: Any, number: int) -> bool:
    """Says whether all workers are after the same scenario, with collectives that work."""
    strategy = library.job_strategy

    def replica_fn() -> Any:
        return library.context().all_reduce("SUM", library.constant(float(number)))

    try:
        (total, *_) = strategy.experimental_local_results(strategy.run(replica_fn))
        return float(library.to_numpy(total)) == number * strategy.num_replicas_in_sync
    except Exception:
        traceback.print_exc()
        return False


if __name__ == "__main__":
    main()
