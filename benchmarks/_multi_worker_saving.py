"""What saving costs a worker of `multi_worker.py`, beside `np.savez` of the same arrays."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from _step_variants import wait_for_all
from _workers import Requests

import replicax as rx

PARTS = 10  # variables


def saving(strategy: Any, rank: int) -> Requests:
    """What a worker may be asked about saving.

    - {"state": [megabytes, folder]} makes variables of that size, and a manager.
    - {"save": true} gives the seconds that `save` took, with those by which it made the next step
      longer, and the seconds until it was on the disk.
    - {"savez": true} gives the seconds of `np.savez` and `os.fsync`, on the first worker.
    """
    made: dict[str, Any] = {}

    def state(arguments: tuple[float, str]) -> dict[str, Any]:
        megabytes, folder = arguments
        rng = np.random.default_rng(0)
        shape = (round(megabytes * 1e6 / PARTS / 4 / 100), 100)
        with strategy.scope():
            variables = [rx.Variable(rng.random(shape, np.float32)) for _ in range(PARTS)]
        checkpoint = rx.train.Checkpoint(variables=variables)

        @rx.function
        def step() -> None:
            for variable in variables:
                strategy.extended.update(variable, lambda each: each.assign_add(each * 1e-3))

        made["step"] = step
        made["manager"] = rx.train.CheckpointManager(checkpoint, folder, max_to_keep=1)
        made["arrays"] = [variable.numpy() for variable in variables]
        made["file"] = Path(folder, "savez")
        return {}

    def save(_: bool) -> dict[str, Any]:
        usual = timed_step()
        begin = time.perf_counter()
        made["manager"].save()
        stopped = time.perf_counter() - begin
        stopped += max(timed_step() - usual, 0)
        made["manager"].wait()
        return {"stopped": stopped, "written": time.perf_counter() - begin}

    def timed_step() -> float:
        begin = time.perf_counter()
        made["step"]()
        wait_for_all()
        return time.perf_counter() - begin

    def savez(_: bool) -> dict[str, Any]:
        if rank != 0:
            return {"written": 0.0}
        begin = time.perf_counter()
        file = made["file"]
        with open(f"{file}.new", "wb") as unfinished:
            np.savez(unfinished, *made["arrays"])
            unfinished.flush()
            os.fsync(unfinished.fileno())
        os.replace(f"{file}.new", file)
        return {"written": time.perf_counter() - begin}

    return {"state": state, "save": save, "savez": savez}
