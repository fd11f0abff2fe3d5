"""Distributed data sets of files: dealt out by file, or by row."""

from __future__ import annotations

from typing import Any

from .._layout import LAYOUTS, Layout
from .._observation import Observation
from .._pipelines import distributed_rows, numbers, with_policy
from .._registry import ours, scenario
from .._worker import InJob

HOST = "host pipelines do not run on replicas"


def _by_row(layout: Layout, worker: int, rows: int, batch: int) -> Observation:
    """Each batch in one share for each replica of all; the shares go round the workers."""
    steps = []
    for start in range(0, rows, batch):
        whole = list(range(start, min(start + batch, rows)))
        size = -(-len(whole) // layout.replicas)
        shares = (index * layout.workers + worker for index in range(layout.devices))
        steps.append([whole[share * size : (share + 1) * size] for share in shares])
    return steps


FILES = {
    "even": (4, 4, 4, 4),
    "uneven": (13, 9, 5, 2),
    "three": (4, 4, 4),
    "five": (3, 1, 2, 5, 2),
    "an empty one": (5, 0, 3, 2),
}


@scenario(
    *LAYOUTS,
    eager_only=HOST,
    policy=("AUTO", "FILE", "DATA", "OFF"),
    files=("even", "uneven", "five", "an empty one"),
    batch=(4, 7),
)
def lines(lib: InJob, strategy: Any, policy: str, files: str, batch: int) -> Any:
    names = lib.text_files(f"lines-{files}", numbers(*FILES[files]))
    dataset = with_policy(lib, lib.data.TextLineDataset(names).batch(batch), policy)
    return distributed_rows(lib, strategy, dataset)


@scenario("2x1", "3x1", "2x2", eager_only=HOST, policy=("AUTO", "DATA"))
def records(lib: InJob, strategy: Any, policy: str) -> Any:
    names = lib.record_files("records", numbers(*FILES["three"]))
    dataset = with_policy(lib, lib.data.TFRecordDataset(names).batch(4), policy)
    return distributed_rows(lib, strategy, dataset)


PIPELINES = {
    "dropping": lambda lib, names: lib.data.TextLineDataset(names).batch(4, drop_remainder=True),
    "repeat": lambda lib, names: lib.data.TextLineDataset(names).batch(4).repeat(2),
    "take": lambda lib, names: lib.data.TextLineDataset(names).take(6).batch(4),
    "skip": lambda lib, names: lib.data.TextLineDataset(names).skip(2).batch(4),
    "interleave": lambda lib, names: (
        lib.data.Dataset.from_tensor_slices(names)
        .interleave(lib.data.TextLineDataset, cycle_length=2)
        .batch(4)
    ),
    "flat_map": lambda lib, names: (
        lib.data.Dataset.from_tensor_slices(names).flat_map(lib.data.TextLineDataset).batch(4)
    ),
    "zip": lambda lib, names: (
        lib.data.Dataset.zip((lib.data.TextLineDataset(names), lib.data.TextLineDataset(names)))
        .map(lambda a, b: a)
        .batch(4)
    ),
}


@scenario(*LAYOUTS, eager_only=HOST, pipeline=tuple(PIPELINES))
def pipelines_by_file(lib: InJob, strategy: Any, pipeline: str) -> Any:
    names = lib.text_files("lines-uneven", numbers(*FILES["uneven"]))
    dataset = with_policy(lib, PIPELINES[pipeline](lib, names), "FILE")
    return distributed_rows(lib, strategy, dataset)


@scenario("2x1", "3x1", "2x2", eager_only=HOST, source=("zip", "concatenate"))
@ours(
    "files beside other sources are shared by row, and no row is lost",
    lambda layout, worker, source: _by_row(layout, worker, 12, 4),
    source="concatenate",
)
def files_beside_numbers(lib: InJob, strategy: Any, source: str) -> Any:
    names = lib.text_files("lines-beside", numbers(4, 4))
    lines = lib.data.TextLineDataset(names)
    if source == "zip":
        dataset = lib.data.Dataset.zip((lib.data.Dataset.range(8), lines)).map(lambda a, b: b)
    else:
        others = lib.data.Dataset.from_tensor_slices(["8", "9", "10", "11"])
        dataset = lines.concatenate(others)
    return distributed_rows(lib, strategy, dataset.batch(4))


ONE_WORKER_FAILS = "the first worker gets an error, the others wait for it for ever"


@scenario(*LAYOUTS, eager_only=HOST, not_in_tensorflow=ONE_WORKER_FAILS)
@ours(
    "fewer files than workers are shared by row",
    lambda layout, worker: _by_row(layout, worker, 9, 4),
)
def fewer_files_than_workers(lib: InJob, strategy: Any) -> Any:
    names = lib.text_files("one-file", numbers(9))
    return distributed_rows(lib, strategy, lib.data.TextLineDataset(names).batch(4))


@scenario(*LAYOUTS, eager_only=HOST, not_in_tensorflow=ONE_WORKER_FAILS)
@ours("all workers are told", True)
def fewer_files_than_workers_by_file(lib: InJob, strategy: Any) -> Any:
    names = lib.text_files("one-file", numbers(9))
    dataset = with_policy(lib, lib.data.TextLineDataset(names).batch(4), "FILE")
    return lib.refuses(lambda: list(strategy.experimental_distribute_dataset(dataset)))
