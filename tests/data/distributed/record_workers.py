"""Records how TensorFlow deals data out: `python -m tests.data.distributed.record_workers`.

Needs `pip install tensorflow-cpu`. One process plays all workers, one after the other: each is
given the `InputContext` that it would have. What its pipeline gives goes to its replicas in turn;
steps go on until no worker has anything left.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .cases import CASES, OTHERS, Case, Libraries

RECORDED = Path(__file__).parent / "recorded" / "workers.json"
DEVICES = 4


def main() -> None:
    """Plays all cases in TensorFlow and replaces the recorded file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf: Any = importlib.import_module("tensorflow")
    tf.get_logger().setLevel("ERROR")
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * DEVICES,
    )
    lines = [
        f"    {json.dumps(name)}: {json.dumps(_play(tf, case))}"
        for name, case in {**CASES, **OTHERS}.items()
    ]
    RECORDED.parent.mkdir(exist_ok=True)
    body = ",\n".join(lines)
    RECORDED.write_text(
        f'{{\n  "tensorflow": "{tf.__version__}",\n  "cases": {{\n{body}\n  }}\n}}\n'
    )
    print(f"{len(lines)} cases recorded from TensorFlow {tf.__version__}")


def _play(tf: Any, case: Case) -> list[Any]:
    """Returns the steps of each worker: for each, the rows of each of its replicas."""
    workers = [_play_worker(tf, case, worker) for worker in range(case.workers)]
    most = max((len(steps) for steps in workers if isinstance(steps, list)), default=0)
    for steps in workers:
        if isinstance(steps, list):
            steps.extend([[[] for _ in range(case.replicas)] for _ in range(most - len(steps))])
    return workers


def _play_worker(tf: Any, case: Case, worker: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        try:
            dataset = case.dataset(Libraries(tf.data, tf.io, tf.TensorSpec, Path(folder)))
            shares = _of_worker(tf, dataset, case, worker)
            if case.steps is not None:
                shares = shares.take(case.steps * case.replicas)
            rows = [_readable(share.numpy()) for share in shares]
        except tf.errors.OpError as error:
            return {"raises": type(error).__name__}
    rows += [[] for _ in range(-len(rows) % case.replicas)]
    return [rows[i : i + case.replicas] for i in range(0, len(rows), case.replicas)]


def _of_worker(tf: Any, dataset: Any, case: Case, worker: int) -> Any:
    """Returns what the replicas of one worker take from in turn."""
    distribute: Any = importlib.import_module("tensorflow.python.distribute.input_lib")
    replicas = case.workers * case.replicas
    devices = [f"CPU:{index}" for index in range(case.replicas)]
    distributed = distribute.DistributedDataset(
        distribute.InputWorkers([("/device:CPU:0", devices)]),
        tf.distribute.MirroredStrategy(devices),
        dataset,
        num_replicas_in_sync=replicas,
        input_context=tf.distribute.InputContext(case.workers, worker, replicas),
    )
    (shares,) = distributed._cloned_datasets
    return shares


def _readable(rows: Any) -> list[Any]:
    return (rows.astype(int) if rows.dtype == object else rows).tolist()


if __name__ == "__main__":
    main()
