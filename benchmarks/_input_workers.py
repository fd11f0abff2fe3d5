"""(f) of `input.py`: what a worker of two pays for its half.

The workers are simulated, each in a process of its own and one after the other. This file is the
parent's part, and the worker of replicax; `_input_workers_tensorflow.py` is TensorFlow's.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
from _child import Child, answers_only
from _input_data import Data, data_of
from _input_goals import Finding
from _input_replicax import example_features
from _input_stream import Cost, Pipeline, Remote, serve
from _input_worker_pipelines import WORKERS, worker_pipelines

import replicax as rx
from replicax._src.data.distributed import InputLayout, InputOptions, distributed_dataset

PIPELINES = ("records FILE", "records DATA", "text FILE", "text DATA", "rows DATA", "half the rows")
SCRIPTS = {"replicax": "_input_workers.py", "tf.data": "_input_workers_tensorflow.py"}
FASTER_GOALS = {"records FILE": 4.0, "text FILE": 8.0}
DATA_GOALS = {"records": 2.0, "text": 2.0}
INDEXED_GOAL = 1.2

# For each pipeline and side: the mean cost of a worker's epoch.
WorkerCosts = dict[str, dict[str, Cost]]


def measure_workers(
    data: Data, size: str, tensorflow: str | None, rounds: int, note: Callable[[str], None]
) -> WorkerCosts:
    pythons = {"replicax": sys.executable} | ({"tf.data": tensorflow} if tensorflow else {})
    children: dict[str, list[Child]] = {side: [] for side in pythons}
    try:
        for side, python in pythons.items():
            for worker in range(WORKERS):
                child = Child(
                    SCRIPTS[side],
                    size,
                    str(data.folder),
                    str(worker),
                    python=python,
                    TF_CPP_MIN_LOG_LEVEL="2",
                    CUDA_VISIBLE_DEVICES="-1",
                    JAX_PLATFORMS="cpu",
                )
                children[side].append(child)
                child.answer()
        costs: WorkerCosts = {}
        for name in PIPELINES:
            note(f"two workers: {name}")
            costs[name] = _take_turns(name, children, rounds)
        return costs
    finally:
        for group in children.values():
            for child in group:
                child.close()


def _take_turns(name: str, children: dict[str, list[Child]], rounds: int) -> dict[str, Cost]:
    workers = {side: [Remote(child, name) for child in some] for side, some in children.items()}
    digests = {
        side: [sum(part) for part in zip(*(worker.digest() for worker in some))]
        for side, some in workers.items()
    }
    for side, found in digests.items():
        check_digest(f"{name} of {side}", found, digests["replicax"])
    best: dict[str, list[Cost]] = {}
    for _ in range(rounds):
        for side, some in workers.items():
            costs = [worker.turn() for worker in some]
            best[side] = [new.best(old) for new, old in zip(costs, best.get(side, costs))]
    return {
        side: Cost(*(sum(each) / WORKERS for each in zip(*some))) for side, some in best.items()
    }


def check_digest(what: str, found: Sequence[float], expected: Sequence[float]) -> None:
    """Raises unless all read the same numbers: wrong answers can be fast."""
    close = len(found) == len(expected) and all(
        abs(one - other) <= 1e-6 * abs(other) for one, other in zip(found, expected)
    )
    if not close:
        raise SystemExit(
            f"{what}: the rows and sums of an epoch are {list(found)}, and should be "
            f"{list(expected)}. The times would not be comparable."
        )


def worker_findings(costs: WorkerCosts) -> list[Finding]:
    found = []
    for name, goal in FASTER_GOALS.items():
        if "tf.data" in costs[name]:
            cpu, wall = (b / a for a, b in zip(costs[name]["replicax"], costs[name]["tf.data"]))
            what = "times faster than tf.data"
            case = f"(f) {name}"
            found.append(
                Finding(case, what, f">= {goal:g}", f"{cpu:.2f}", f"{wall:.2f}", cpu >= goal)
            )
    for source, goal in DATA_GOALS.items():
        pair = (costs[f"{source} DATA"]["replicax"], costs[f"{source} FILE"]["replicax"])
        cpu, wall = (a / b for a, b in zip(*pair))
        found.append(
            Finding(
                f"(f) {source} DATA",
                "times the cost of FILE",
                f"<= {goal:g}",
                f"{cpu:.2f}",
                f"{wall:.2f}",
                cpu <= goal,
            )
        )
    pair = (costs["rows DATA"]["replicax"], costs["half the rows"]["replicax"])
    cpu, wall = (a / b for a, b in zip(*pair))
    found.append(
        Finding(
            "(f) rows in memory, DATA",
            "times the cost of half the rows and no other worker",
            f"<= {INDEXED_GOAL:g}",
            f"{cpu:.2f}",
            f"{wall:.2f}",
            cpu <= INDEXED_GOAL,
        )
    )
    return found


# In a worker


def pipelines(data: Data, worker: int) -> dict[str, Callable[[], Pipeline]]:
    device = jax.devices()[0]

    def distribute(dataset: Any, workers: int) -> Pipeline:
        layout = InputLayout((device,), workers, worker % workers)
        distributed = distributed_dataset(dataset, layout, InputOptions())
        return Pipeline(lambda: distributed, None, leaves=jax.tree.leaves)

    return worker_pipelines(rx, example_features(data), data, distribute)


def main() -> None:
    size, folder, worker = sys.argv[1:]
    answer = answers_only()
    jax.config.update("jax_num_cpu_devices", 1)
    answer(ready=True)
    serve(pipelines(data_of(size, folder), int(worker)), answer)


if __name__ == "__main__":
    main()
