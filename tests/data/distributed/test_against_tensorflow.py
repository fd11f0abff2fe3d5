"""Data goes to workers and replicas as TensorFlow deals it out, and no row is lost or doubled."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from tests.pipelines import all_workers

from .cases import CASES, OTHERS, Case, Libraries

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "recorded" / "workers.json").read_text()
)["cases"]
RECORD_AGAIN = "run `python -m tests.data.distributed.record_workers` beside tensorflow-cpu"

# Streams that every worker reads as a whole are warned of, and are tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:AutoShardPolicy.DATA")

Steps = list[list[list[Any]]]
"""Of one worker: the rows of each of its replicas in each step."""


def libraries(folder: Path) -> Libraries:
    return Libraries(rx.data, rx.io, rx.TensorSpec, folder)


def steps_of_workers(
    make: Callable[[], Any], workers: int, replicas: int, steps: int | None = None
) -> list[Steps]:
    """Plays all workers side by side. Lines and records become numbers, as when recording."""
    found, _ = all_workers(make, replicas, workers, steps=steps)
    return [
        [[[_number(row) for row in share] for share in step] for step in of_worker]
        for of_worker in found
    ]


def _number(row: Any) -> Any:
    return int(row) if isinstance(row, bytes) else row


def rows_of(steps: Steps) -> list[Any]:
    return [row for step in steps for share in step for row in share]


def play(case: Case, folder: Path) -> list[Steps]:
    # Before any worker reads, because the files are written here.
    datasets = iter([case.dataset(libraries(folder)) for _ in range(case.workers)])
    return steps_of_workers(lambda: next(datasets), case.workers, case.replicas, case.steps)


def test_every_case_is_recorded_and_no_other() -> None:
    assert RECORDED.keys() == CASES.keys() | OTHERS.keys(), RECORD_AGAIN


@pytest.mark.parametrize("name", CASES)
def test_workers_and_replicas_get_what_they_get_in_tensorflow(name: str, tmp_path: Path) -> None:
    found, wanted = play(CASES[name], tmp_path), RECORDED[name]
    if not name.startswith("DATA"):
        found, wanted = without_idle_end(found), without_idle_end(wanted)
    assert found == wanted


def without_idle_end(workers: list[Steps]) -> list[Steps]:
    """Leaves out the last steps if nobody has a row in them.

    TensorFlow has such a step where the next share of a worker is to be of no rows: it gives that
    share before it sees that there is no more. replicax stops with the last row.
    """
    busy = [any(any(shares) for shares in step) for step in zip(*workers, strict=True)]
    last = max((number for number, is_busy in enumerate(busy, 1) if is_busy), default=0)
    return [steps[:last] for steps in workers]


# What TensorFlow does otherwise.

MIXED = {"lines beside numbers": 8, "lines, then numbers as lines": 16}


@pytest.mark.parametrize("label", MIXED)
def test_a_mix_of_files_and_other_sources_is_not_sharded_twice(label: str, tmp_path: Path) -> None:
    case = next(case for case in OTHERS.values() if case.label == label)
    recorded = [row for steps in RECORDED[case.name] for row in rows_of(steps)]
    found = [row for steps in play(case, tmp_path) for row in rows_of(steps)]
    assert len(found) == len(set(found)) == MIXED[label] > len(recorded)


@pytest.mark.parametrize("label", ("one file", "three files"))
def test_fewer_files_than_workers_are_sharded_by_rows(label: str, tmp_path: Path) -> None:
    case = OTHERS[f"AUTO {label} on 4 x 1"]
    assert {"raises": "InvalidArgumentError"} in RECORDED[case.name]
    by_rows = Case(label, "DATA", case.workers, case.replicas, case.make)
    with pytest.warns(UserWarning, match="fewer than there are workers"):
        found = play(case, tmp_path)
    assert found == play(by_rows, tmp_path)


@pytest.mark.parametrize("label", ("one file", "three files"))
def test_fewer_files_than_workers_are_refused_where_files_are_asked_for(
    label: str, tmp_path: Path
) -> None:
    case = OTHERS[f"FILE {label} on 4 x 1"]
    assert {"raises": "InvalidArgumentError"} in RECORDED[case.name]
    with pytest.raises(ValueError, match="for 4 workers"):
        play(case, tmp_path)


def test_files_are_refused_where_there_are_none(tmp_path: Path) -> None:
    case = OTHERS["FILE no files on 2 x 1"]
    assert RECORDED[case.name] == [{"raises": "NotFoundError"}] * 2
    with pytest.raises(ValueError, match="not read from files"):
        play(case, tmp_path)


# Laws.

WORKERS, REPLICAS = st.integers(1, 4), st.integers(1, 4)
BATCH_SIZES = st.integers(1, 17)


def _whole_batches(rows: list[int], batch_size: int, drop_remainder: bool) -> list[int]:
    return rows[: len(rows) - len(rows) % batch_size] if drop_remainder else rows


def _with_policy(dataset: Any, policy: str) -> Any:
    return Case("", policy, 1, 1, lambda the: dataset).dataset(libraries(Path()))


def _check_steps(found: list[Steps], batch_size: int, replicas: int) -> None:
    assert len({len(steps) for steps in found}) == 1, "all workers make as many steps"
    for step in zip(*found, strict=True):
        assert all(len(shares) == replicas for shares in step)
        assert sum(len(share) for shares in step for share in shares) <= batch_size


@given(
    rows=st.integers(0, 60),
    batch_size=BATCH_SIZES,
    drop_remainder=st.booleans(),
    workers=WORKERS,
    replicas=REPLICAS,
    policy=st.sampled_from(("AUTO", "DATA")),
)
def test_every_row_comes_once(
    rows: int, batch_size: int, drop_remainder: bool, workers: int, replicas: int, policy: str
) -> None:
    dataset = _with_policy(
        rx.data.Dataset.range(rows).batch(batch_size, drop_remainder=drop_remainder), policy
    )
    found = steps_of_workers(lambda: dataset, workers, replicas)
    wanted = _whole_batches(list(range(rows)), batch_size, drop_remainder)
    assert sorted(row for steps in found for row in rows_of(steps)) == wanted
    _check_steps(found, batch_size, replicas)


@given(
    rows=st.integers(0, 40),
    batch_size=BATCH_SIZES,
    drop_remainder=st.booleans(),
    workers=WORKERS,
    replicas=REPLICAS,
)
def test_every_worker_sees_every_row_without_sharding(
    rows: int, batch_size: int, drop_remainder: bool, workers: int, replicas: int
) -> None:
    dataset = _with_policy(
        rx.data.Dataset.range(rows).batch(batch_size, drop_remainder=drop_remainder), "OFF"
    )
    found = steps_of_workers(lambda: dataset, workers, replicas)
    wanted = _whole_batches(list(range(rows)), batch_size, drop_remainder)
    for steps in found:
        assert rows_of(steps) == wanted
    _check_steps(found, batch_size, replicas)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=4, max_size=8),
    batch_size=BATCH_SIZES,
    drop_remainder=st.booleans(),
    workers=WORKERS,
    replicas=REPLICAS,
    policy=st.sampled_from(("AUTO", "FILE", "DATA")),
    read=st.sampled_from(("text", "records")),
)
def test_every_row_of_files_comes_once(
    sizes: list[int],
    batch_size: int,
    drop_remainder: bool,
    workers: int,
    replicas: int,
    policy: str,
    read: str,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = getattr(libraries(Path(folder)), read)(*sizes)
        dataset = _with_policy(lines.batch(batch_size, drop_remainder=drop_remainder), policy)
        found = steps_of_workers(lambda: dataset, workers, replicas)
    count = itertools.count()
    files = [list(itertools.islice(count, size)) for size in sizes]
    shards = 1 if policy == "DATA" else workers
    wanted = []
    for shard in range(shards):
        own = [row for file in files[shard::shards] for row in file]
        wanted += _whole_batches(own, batch_size, drop_remainder)
    assert sorted(row for steps in found for row in rows_of(steps)) == sorted(wanted)
    _check_steps(found, batch_size, replicas)


@given(
    sizes=st.lists(st.integers(0, 12), max_size=6),
    workers=WORKERS,
    replicas=REPLICAS,
    policy=st.sampled_from(("AUTO", "DATA", "OFF")),
)
def test_every_row_of_batches_of_any_size_comes_once(
    sizes: list[int], workers: int, replicas: int, policy: str
) -> None:
    dataset = _with_policy(libraries(Path()).batches(*sizes), policy)
    found = steps_of_workers(lambda: dataset, workers, replicas)
    times = workers if policy == "OFF" else 1
    wanted = sorted([*range(sum(sizes))] * times)
    assert sorted(row for steps in found for row in rows_of(steps)) == wanted
    assert len({len(steps) for steps in found}) == 1
