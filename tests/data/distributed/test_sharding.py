"""Which worker gets which rows: nothing is lost, nothing comes twice, nothing is done in vain."""

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.pipelines import (
    POLICY,
    Calls,
    Dataset,
    Words,
    all_workers,
    flat,
    on_host,
    shares,
    text_files,
    with_policy,
)

HINT = rx.data.experimental.SHARD_HINT


def numbers(found: Any) -> list[int]:
    return sorted(int(row) for row in flat(found))


def sizes(found: Any) -> list[Any]:
    return [[[len(part) for part in step] for step in steps] for steps in found]


# ------------------------------------------------------------------ no row lost, none doubled


@settings(max_examples=80)
@given(
    count=st.integers(0, 50),
    batch=st.integers(1, 12),
    drop=st.booleans(),
    repeat=st.integers(1, 2),
    replicas=st.integers(1, 8),
    workers=st.integers(1, 4),
    shuffle=st.booleans(),
)
def test_every_row_goes_to_one_replica(
    count: int, batch: int, drop: bool, repeat: int, replicas: int, workers: int, shuffle: bool
):
    replicas = max(1, min(replicas, 8 // workers))

    def make() -> Any:
        dataset = Dataset.range(count)
        if shuffle:
            dataset = dataset.shuffle(7, seed=1)
        return dataset.batch(batch, drop).repeat(repeat)

    found, _ = all_workers(make, replicas, workers)
    kept = count - count % batch if drop else count
    assert len(numbers(found)) == kept * repeat
    if not shuffle:
        assert numbers(found) == sorted(list(range(kept)) * repeat)
    assert len({len(steps) for steps in found}) == 1  # all make as many steps
    assert len(found[0]) == len(make()) == len(on_host(make(), replicas, workers))


@settings(max_examples=25)
@given(
    counts=st.lists(st.integers(0, 12), min_size=4, max_size=6),
    batch=st.integers(1, 9),
    drop=st.booleans(),
    replicas=st.integers(1, 4),
    workers=st.integers(1, 4),
)
def test_every_line_of_every_file_goes_to_one_replica(
    counts: list[int], batch: int, drop: bool, replicas: int, workers: int, tmp_path_factory: Any
):
    names = text_files(tmp_path_factory.mktemp("files"), *counts)
    replicas = max(1, min(replicas, 8 // workers))

    def make() -> Any:
        return rx.data.TextLineDataset(names).batch(batch, drop)

    found, _ = all_workers(make, replicas, workers)
    assert len({len(steps) for steps in found}) == 1
    if drop:  # of each worker's own rows, the last ones are dropped
        mine = [sum(counts[worker::workers]) for worker in range(workers)]
        kept = [count - count % batch for count in mine]
        assert [len(flat(steps)) for steps in found] == kept
        assert len(set(numbers(found))) == sum(kept)
    else:
        assert numbers(found) == list(range(sum(counts)))


@settings(max_examples=25)
@given(
    count=st.integers(0, 30),
    batch=st.integers(1, 9),
    replicas=st.integers(1, 4),
    workers=st.integers(1, 3),
)
def test_without_sharding_every_worker_sees_every_row(
    count: int, batch: int, replicas: int, workers: int
):
    replicas = max(1, min(replicas, 8 // workers))

    def make() -> Any:
        return with_policy(Dataset.range(count).batch(batch), POLICY.OFF)

    found, _ = all_workers(make, replicas, workers)
    for steps in found:
        assert flat(steps) == list(range(count))  # in order
        assert all(sum(len(part) for part in step) <= batch for step in steps)


# ------------------------------------------------------------------ who gets what


def test_pieces_of_a_batch_go_round_the_workers():
    found, _ = all_workers(lambda: Dataset.range(23).batch(10), 2, 2)
    assert found[0] == [[[0, 1, 2], [6, 7, 8]], [[10, 11, 12], [16, 17, 18]], [[20], [22]]]
    assert found[1] == [[[3, 4, 5], [9]], [[13, 14, 15], [19]], [[21], []]]


def test_files_go_round_the_workers(tmp_path: Path):
    names = text_files(tmp_path, 13, 9)
    found, _ = all_workers(lambda: rx.data.TextLineDataset(names).batch(8), 2, 2)
    assert sizes(found) == [[[2, 2], [2, 2], [2, 2], [1, 0]], [[2, 2], [2, 2], [1, 0], [0, 0]]]
    assert numbers(found[0]) == list(range(13)) and numbers(found[1]) == list(range(13, 22))


def test_batches_smaller_than_the_number_of_replicas(tmp_path: Path):
    names = text_files(tmp_path, 3, 4)
    found, _ = all_workers(lambda: rx.data.TextLineDataset(names).batch(2), 2, 2)
    assert numbers(found) == list(range(7))
    one, _ = all_workers(lambda: with_policy(Dataset.range(5).batch(2), POLICY.OFF), 2, 2)
    assert flat(one[0]) == flat(one[1]) == list(range(5))


def test_the_stream_is_cut_anew_over_batch_borders():
    dataset = with_policy(Dataset.range(7).batch(10).repeat(2), POLICY.OFF)
    (found,), _ = all_workers(lambda: dataset, 4, 1)
    assert found == [
        [[0, 1, 2], [3, 4, 5], [6, 0], [1, 2]],
        [[3, 4, 5], [6], [], []],
    ]


def test_hints():
    def hinted() -> Any:
        return with_policy(Dataset.range(16).shard(HINT, HINT).batch(4), POLICY.HINT)

    found, _ = all_workers(hinted, 2, 2)
    assert flat(found[0]) == list(range(0, 16, 2)) and flat(found[1]) == list(range(1, 16, 2))
    without, _ = all_workers(lambda: with_policy(Dataset.range(8).batch(4), POLICY.HINT), 2, 2)
    assert flat(without[0]) == flat(without[1]) == list(range(8))


def test_files_named_by_data_sets_and_functions(tmp_path: Path):
    names = text_files(tmp_path, 5, 3, 4, 6)
    pattern = str(tmp_path / "*.txt")

    def lines(name: Any) -> Any:
        return rx.data.TextLineDataset(name).map(lambda line: line)

    makes = (
        lambda: rx.data.TextLineDataset(Dataset.list_files(pattern, seed=1)).batch(4),
        lambda: Dataset.list_files(pattern, seed=1).interleave(rx.data.TextLineDataset, 2).batch(4),
        lambda: Dataset.list_files(pattern, False).flat_map(rx.data.TextLineDataset).batch(4),
        lambda: Dataset.from_tensor_slices(names).interleave(lines, 3).shuffle(5, 1).batch(4),
        lambda: rx.data.TextLineDataset(names).map(lambda x: x).cache().batch(4).prefetch(2),
    )
    for make in makes:
        found, _ = all_workers(make, 2, 2)
        assert numbers(found) == list(range(18))
        assert on_host(make(), 2, 2)._sharding.policy is POLICY.FILE


def test_a_mix_of_files_and_others_is_divided_once(tmp_path: Path):
    lines = rx.data.TextLineDataset(text_files(tmp_path, 4, 4))
    more = [str(8 + number) for number in range(8)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zipped, _ = all_workers(
            lambda: Dataset.zip(lines, Dataset.range(8)).map(lambda line, _: line).batch(4), 1, 2
        )
        both, _ = all_workers(
            lambda: lines.concatenate(Dataset.from_tensor_slices(more)).batch(4), 1, 2
        )
    assert numbers(zipped) == list(range(8)) and numbers(both) == list(range(16))


def test_the_decision_is_told(tmp_path: Path):
    lines = rx.data.TextLineDataset(text_files(tmp_path, 4, 4))
    assert "FILE (every source is read from files)" in str(on_host(lines.batch(4), 2, 2))
    text = str(on_host(Dataset.range(8).batch(4), 2, 2, 1))
    assert "DATA (RangeDataset is not read from files)" in text and "worker: 1 of 2" in text
    off = with_policy(lines.batch(4), POLICY.OFF)
    assert "OFF (asked for)" in str(on_host(off, 2, 2))


# ------------------------------------------------------------------ no work in vain


@pytest.mark.parametrize(
    "around",
    [
        lambda mapped: mapped.batch(6),
        lambda mapped: mapped.shuffle(24, seed=1).batch(6),
        lambda mapped: mapped.repeat(2).batch(7),
        lambda mapped: Dataset.zip(mapped, Dataset.range(24)).map(lambda a, _: a).batch(6),
        lambda mapped: mapped.enumerate().map(lambda _, a: a).batch(5).repeat(2),
    ],
)
def test_a_worker_computes_its_own_rows_only(around: Any):
    for worker in range(3):
        calls = Calls()
        dataset = around(Dataset.range(24).map(calls.of()))
        found = [shares(value) for value in on_host(dataset, 2, 3, worker)]
        assert flat(found) == calls


def test_rows_of_records_are_chosen_before_they_are_parsed(tmp_path: Path):
    name = str(tmp_path / "a.tfrecord")
    with rx.io.TFRecordWriter(name) as writer:
        for number in range(12):
            writer.write(str(number).encode())
    calls = Calls()
    dataset = with_policy(
        rx.data.TFRecordDataset(name).map(calls.of(lambda r: int(r))).batch(6), POLICY.DATA
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [shares(value) for value in on_host(dataset, 1, 2, 1)]
    assert flat(found) == [3, 4, 5, 9, 10, 11]
    assert [int(call) for call in calls if isinstance(call, bytes)] == [3, 4, 5, 9, 10, 11]


def test_a_worker_opens_its_files_only(tmp_path: Path):
    names = text_files(tmp_path, 3, 3, 3, 3)
    Path(names[1]).unlink()
    Path(names[3]).unlink()
    found = [shares(value) for value in on_host(rx.data.TextLineDataset(names).batch(4), 1, 2, 0)]
    assert numbers(found) == [0, 1, 2, 6, 7, 8]


def test_the_warning_is_there_only_where_it_is_true(tmp_path: Path):
    lines = rx.data.TextLineDataset(text_files(tmp_path, 4, 4))
    quiet = [
        (Dataset.range(8).shuffle(8, seed=1).map(lambda x: x).batch(4), 2),
        (Dataset.range(8).batch(4).cache().repeat(2), 2),
        (lines.batch(4), 2),
        (lines.batch(4), 1),
        (with_policy(lines.batch(4), POLICY.OFF), 2),
        (Dataset.from_generator(lambda: iter([[1, 2]])), 1),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dataset, workers in quiet:
            on_host(dataset, 1, workers)
    loud = [
        Dataset.from_generator(lambda: iter([[1, 2]])),
        with_policy(lines.batch(4), POLICY.DATA),
        Dataset.range(8).filter(lambda x: True).batch(4),
    ]
    for dataset in loud:
        with pytest.warns(UserWarning, match="every worker reads all of.*FILE") as said:
            on_host(dataset, 1, 2)
        assert len(said) == 1


# ------------------------------------------------------------------ what is refused


def test_fewer_files_than_workers(tmp_path: Path):
    lines = rx.data.TextLineDataset(text_files(tmp_path, 4))
    with pytest.raises(ValueError, match=r"1 file\(s\) for 2 workers.*DATA"):
        on_host(with_policy(lines.batch(4), POLICY.FILE), 1, 2)
    with pytest.warns(UserWarning, match="fewer than there are workers"):
        distributed = on_host(lines.batch(4), 1, 2)
    assert distributed._sharding.policy is POLICY.DATA
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, _ = all_workers(lambda: lines.batch(4), 1, 2)
    assert numbers(found) == [0, 1, 2, 3]


def test_files_asked_for_where_there_are_none():
    for dataset in (Dataset.range(8).batch(4), Dataset.from_generator(lambda: iter([[1]]))):
        with pytest.raises(ValueError, match="FILE.*not read from files.*DATA"):
            on_host(with_policy(dataset, POLICY.FILE), 1, 2)


def test_rows_are_refused_where_batches_are_meant(tmp_path: Path):
    lines = rx.data.TextLineDataset(text_files(tmp_path, 4, 4))
    for dataset in (
        Dataset.range(8),
        Dataset.range(8).shuffle(8).repeat(),
        Dataset.range(8).map(lambda x: x * 2),
        Dataset.from_tensor_slices(list(range(8))).filter(lambda x: True).prefetch(1),
        lines,
        lines.shuffle(4),
        Dataset.range(8).batch(4).unbatch(),
        Dataset.range(8).enumerate(),
        Dataset.zip(Dataset.range(8), Dataset.range(8)),
    ):
        with pytest.raises(ValueError, match=r"(?s)batch"):
            list(on_host(dataset, 2))


def test_different_numbers_of_batches_end_together(tmp_path: Path):
    names = text_files(tmp_path, 2, 20)
    found, _ = all_workers(lambda: rx.data.TextLineDataset(names).batch(4), 1, 2)
    assert len(found[0]) == len(found[1]) == 10
    assert found[0][1:] == [[[]]] * 9


def test_a_worker_without_any_row(tmp_path: Path):
    names = text_files(tmp_path, 0, 6)
    rows = rx.data.TextLineDataset(names).map(lambda line: {"n": [int(line), 0], "t": line})
    assert len(list(on_host(rows.batch(2), 1, 2, 1))) == 6
    shapes = [[[2, 2]], [[2]]]  # of each leaf, on each replica there
    others = iter([shapes] * 4 + [None])  # twice for a step: the second time with empty shares
    steps = Words(lambda word: [word, next(others)])
    meetings = iter([Words(lambda word: [word, word]), steps])
    empties = list(on_host(rows.batch(2), 1, 2, 0, lambda: next(meetings)))
    assert len(empties) == 2
    for value in empties:
        assert value["n"].values[0].shape == (0, 2) and value["t"].values[0].shape == (0,)
