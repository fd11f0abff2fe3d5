"""Corners that were rough once."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.pipelines import elements

Dataset: Any = rx.data.Dataset


def records(folder: Path, count: int) -> Any:
    name = str(folder / "records")
    with rx.io.TFRecordWriter(name) as writer:
        for number in range(count):
            feature = rx.train.Feature(int64_list=rx.train.Int64List(value=[number]))
            features = rx.train.Features(feature={"x": feature})
            writer.write(rx.train.Example(features=features).SerializeToString())
    return rx.data.TFRecordDataset(name)


FEATURES = {"x": rx.io.FixedLenFeature([], "int64")}


def test_a_function_that_does_more_than_parse_does_it(tmp_path: Path):
    def branching(record: Any) -> Any:
        example = rx.io.parse_single_example(record, FEATURES)
        return example["x"] if isinstance(record, bytes) else example["x"] * 0 - 1

    def guarded(record: Any) -> Any:
        try:
            return rx.io.parse_single_example(record, FEATURES)["x"] + 1
        except TypeError:
            return rx.io.parse_single_example(record, FEATURES)["x"]

    data = records(tmp_path, 3)
    assert elements(data.map(branching)) == [0, 1, 2]
    assert elements(data.map(guarded)) == [1, 2, 3]
    assert elements(data.map(lambda r: rx.io.parse_single_example(r, FEATURES)["x"])) == [0, 1, 2]


def test_parsing_before_and_after_batch_is_the_same(tmp_path: Path):
    data = records(tmp_path, 5)
    before = data.map(lambda r: rx.io.parse_single_example(r, FEATURES)).batch(2)
    after = data.batch(2).map(lambda r: rx.io.parse_example(r, FEATURES))
    assert elements(before) == elements(after) == [{"x": [0, 1]}, {"x": [2, 3]}, {"x": [4]}]


def test_batches_of_records_are_plain_arrays(tmp_path: Path):
    batch = next(iter(records(tmp_path, 2).batch(2)))
    assert type(batch) is np.ndarray
    batch[0] = b"mine"


def test_memory_that_is_no_arrays_is_copied_too():
    def generate() -> Iterator[Any]:
        memory = bytearray(4)
        for number in range(3):
            memory[0] = number
            yield np.frombuffer(memory, np.uint8)

    assert elements(Dataset.from_generator(generate).batch(3)) == [
        [[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0]]
    ]


def test_windows_that_overlap_have_the_same_elements():
    random = np.random.default_rng(0)
    calls: list[int] = []

    def noisy(x: Any) -> Any:
        calls.append(int(x))
        return random.integers(1000)

    windows = elements(Dataset.range(6).map(noisy).window(3, shift=1, drop_remainder=True))
    assert all(one[1:] == other[:-1] for one, other in zip(windows, windows[1:]))
    assert all(calls.count(number) == 1 for number in range(2, 6))  # the first are looked at too


def test_many_data_sets_are_concatenated():
    dataset = Dataset.range(1)
    for number in range(1, 600):
        dataset = dataset.concatenate(Dataset.range(number, number + 1))
    assert elements(dataset) == list(range(600))


def test_functions_beside_each_other_are_called_ahead_where_one_is_asked_for():
    calls: list[int] = []
    dataset = Dataset.range(6).map(lambda x: calls.append(int(x)) or x, num_parallel_calls=3)
    iterator = iter(dataset)
    next(iterator)
    assert sorted(calls) == [0, 1, 2]
    assert elements(iterator) == [1, 2, 3, 4, 5]


def test_files_take_turns_in_blocks_as_one_by_one(tmp_path: Path):
    names = []
    for number, count in enumerate([5, 700, 3, 900]):
        path = tmp_path / f"{number}.txt"
        path.write_text("".join(f"{number}-{line}\n" for line in range(count)))
        names.append(os.fspath(path))
    for cycle, block in ((2, 1), (3, 4), (4, 2)):
        woven = Dataset.from_tensor_slices(names).interleave(rx.data.TextLineDataset, cycle, block)
        single = Dataset.from_tensor_slices(names).interleave(
            lambda name: rx.data.TextLineDataset(name).filter(lambda line: True), cycle, block
        )
        assert elements(woven) == elements(single)


def test_a_hint_needs_its_policy():
    hint = rx.data.experimental.SHARD_HINT
    dataset = Dataset.range(8).shard(hint, hint).batch(2)
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(ValueError, match="AutoShardPolicy.HINT"):
        strategy.experimental_distribute_dataset(dataset)
    with pytest.raises(ValueError, match="AutoShardPolicy.HINT"):
        list(dataset)


# ------------------------------------------------------------------ nothing, and what it looks like


def test_a_shuffle_of_what_is_skipped_wholly():
    assert elements(Dataset.range(2).shard(2, 0).skip(9).shuffle(2)) == []
    assert elements(Dataset.range(5).shard(3, 1).skip(2).shuffle(9).batch(2)) == []


@pytest.mark.parametrize("operation", ["flat_map", "interleave"])
def test_the_spec_of_data_sets_of_which_the_first_is_empty(operation: str):
    def rows(number: Any) -> Any:
        return Dataset.range(number).map(lambda x: np.zeros((2, 3), np.float32))

    dataset = getattr(Dataset.range(4), operation)(rows)
    assert dataset.element_spec == rx.TensorSpec((2, 3), np.float32)


@pytest.mark.parametrize("operation", ["flat_map", "interleave"])
def test_the_spec_of_data_sets_that_look_different(operation: str):
    def rows(number: Any) -> Any:
        return Dataset.from_tensors(np.zeros((int(number), 3), np.float32))

    dataset = getattr(Dataset.range(1, 4), operation)(rows)
    assert dataset.element_spec == rx.TensorSpec((None, 3), np.float32)


def test_the_spec_of_data_sets_made_of_batches():
    batches = Dataset.range(10).batch(4)  # of which the last is smaller
    dataset = batches.flat_map(lambda x: Dataset.from_tensors(x))
    assert dataset.element_spec == batches.element_spec
    whole = Dataset.range(10).batch(4, drop_remainder=True)
    assert whole.flat_map(lambda x: Dataset.from_tensors(x)).element_spec == whole.element_spec


def test_the_spec_of_a_map_over_batches_that_were_filtered():
    batches = Dataset.range(10).batch(3).filter(lambda x: len(x) == 1)
    assert [len(batch) for batch in batches] == [1]
    assert batches.map(lambda x: x * 2).element_spec == batches.element_spec
    rows, total = Dataset.range(1).batch(3).map(lambda x: (x, np.sum(x))).element_spec
    assert (rows.shape, total.shape) == ((None,), ())


def test_a_data_set_of_empty_data_sets_says_that_nothing_is_known():
    dataset = Dataset.range(3).flat_map(lambda i: Dataset.range(0).map(lambda x: x))
    with pytest.raises(ValueError, match="no elements.*check the data"):
        print(dataset.element_spec)
