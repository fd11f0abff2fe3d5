"""Two workers that do the same: one prints, and one writes."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import replicax as rx

from ..processes import result, run_workers
from .event_files import scalars_in

ROWS, BATCH = 24, 8


def _train() -> None:
    import sys

    folder = Path(sys.argv[1])
    writer = rx.summary.create_file_writer(folder / "logs")  # before it is known who this is
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    dataset = rx.data.Dataset.from_tensor_slices(np.arange(ROWS, dtype=np.float32)).batch(BATCH)
    batches = strategy.experimental_distribute_dataset(dataset)
    with strategy.scope():
        mean = rx.metrics.Mean()

    def replica_fn(x: Any) -> Any:
        mean.update_state(x)
        return jnp.sum(x)

    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_fn, args=(x,)), axis=None)

    step = rx.function(step)
    written = []
    bar = rx.progress(batches, "epoch 1")
    with rx.profile(folder / "first") as first:
        for number, x in enumerate(bar):
            total = step(x)
            bar.show(total=total, mean=mean)  # to read a metric is a collective
            with writer.as_default(step=number):
                written += [rx.summary.scalar("total", total), rx.summary.scalar("mean", mean)]
    with rx.profile(folder / "all", all_workers=True) as all_of_them:
        strategy.run(lambda: jnp.ones(()))
    writer.close()
    result("written", written)
    result("steps", bar.step)
    result("rates", (bar.examples_per_second or 0) > 0)
    result("profiles", [first.folder is not None, all_of_them.folder is not None])


def test_the_first_worker_prints_and_writes(tmp_path: Path):
    first, second = run_workers(_train, 2, arguments=[str(tmp_path)])
    assert (first.results["steps"], second.results["steps"]) == (3, 3)
    assert first.results["rates"] and second.results["rates"]
    assert first.results["written"] == [True] * 6 and second.results["written"] == [False] * 6
    assert "epoch 1: step 3/3, total 156.0, mean 11.50, " in first.stdout
    assert "epoch 1" not in second.output
    assert scalars_in(tmp_path / "logs") == [
        *(("total", 0, 28.0), ("mean", 0, 3.5)),
        *(("total", 1, 92.0), ("mean", 1, 7.5)),
        *(("total", 2, 156.0), ("mean", 2, 11.5)),
    ]
    assert len(list((tmp_path / "logs").iterdir())) == 1
    assert (first.results["profiles"], second.results["profiles"]) == ([True, True], [False, True])
    assert len(list((tmp_path / "first").rglob("*.xplane.pb"))) == 1
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["worker_0", "worker_1"]
