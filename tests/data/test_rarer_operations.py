"""Grouping, choosing and going along: what recorded scenarios and random pipelines do not show."""

from typing import Any

import jax
import numpy as np
import pytest

import replicax as rx
from replicax._src.data._node import Run, take_all
from replicax._src.data.distributed import InputLayout, InputOptions, distributed_dataset
from tests.pipelines import Calls, Dataset, elements, plain, text_files


def rows_of(lengths: Any) -> Any:
    return Dataset.from_tensor_slices(np.asarray(lengths)).map(lambda n: np.full(n, n, np.int32))


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.1, 0.9], [3.0, 1.0]])
def test_data_sets_are_drawn_as_often_as_their_weights_say(weights: list[float]):
    parts = [Dataset.from_tensors(np.int64(i)).repeat() for i in range(2)]
    drawn = Dataset.sample_from_datasets(parts, weights, seed=5).take(4000)
    assert np.mean(elements(drawn)) == pytest.approx(weights[1] / sum(weights), abs=0.03)


def test_weights_may_change_along_the_way():
    parts = [Dataset.from_tensors(np.int64(i)).repeat() for i in range(2)]
    weights = Dataset.from_tensor_slices(np.array([[1.0, 0.0], [0.0, 0.5], [0.3, 0.0]]))
    assert elements(Dataset.sample_from_datasets(parts, weights.repeat(2))) == [0, 1, 0] * 2


def test_sampling_is_even_where_its_readers_are_taken_from_and_skipped_in_any_order():
    def make() -> Any:
        parts = [Dataset.range(40), Dataset.range(100, 130), Dataset.range(200, 204)]
        return Dataset.sample_from_datasets(parts, [0.5, 0.3, 0.2], seed=3)

    wanted = elements(make())
    reader = make()._data_set_node.open(Run())
    found: list[Any] = []
    for count in (3, 5, 1, 11):
        found += take_all(reader, count).rows()
        assert reader.skip(count) == count
        found += wanted[len(found) : len(found) + count]
    assert [int(each) for each in found] == wanted[: len(found)]


def test_batches_of_several_data_sets_are_put_together_column_by_column():
    parts = [
        Dataset.from_tensor_slices({"x": np.arange(30.0) + 100 * i, "y": np.full(30, i)})
        for i in range(3)
    ]
    order = np.random.default_rng(0).integers(0, 3, 60)
    order = order[[np.sum(order[:k] == order[k]) < 30 for k in range(60)]]
    chosen = Dataset.choose_from_datasets(parts, Dataset.from_tensor_slices(order))
    (batch,) = chosen.batch(60)
    assert batch["y"].tolist() == order.tolist()
    assert batch["x"].tolist() == [each["x"].item() for each in chosen]
    mixed = Dataset.choose_from_datasets(
        [Dataset.from_tensor_slices(np.zeros((9, 2))), Dataset.from_tensor_slices(np.ones((9, 3)))],
        Dataset.range(2).repeat(9),
    )
    with pytest.raises(ValueError, match="their shapes or dtypes differ"):
        list(mixed.batch(18))


def test_random_numbers_are_even_and_the_same_for_a_seed():
    numbers = np.array(elements(Dataset.random(seed=1).take(4000)))
    assert abs(numbers.mean() / 2**31 - 1) < 0.05
    assert len(set(numbers.tolist())) > 3990
    assert elements(Dataset.random(seed=1).skip(3990).take(10)) == numbers[3990:].tolist()


@pytest.mark.parametrize("initial", [None, [0.8, 0.15, 0.05]])
def test_classes_come_as_wanted(initial: Any):
    labels = np.random.default_rng(2).choice(3, 6000, p=[0.8, 0.15, 0.05])
    dataset = Dataset.from_tensor_slices(labels).rejection_resample(
        lambda label: label, [0.25, 0.5, 0.25], initial, seed=1
    )
    found = [int(number) for number, label in dataset if number == label]
    shares = np.bincount(found, minlength=3) / len(found)
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25], atol=0.06)
    again = [int(number) for number, _ in dataset]  # another iteration draws others
    assert again != found and abs(len(again) - len(found)) < len(found) / 4


def test_functions_are_called_when_an_element_is_asked_for():
    calls = Calls()
    keys = calls.of(lambda x: x % 2)
    iterator = iter(Dataset.range(10).group_by_window(keys, lambda key, some: some.batch(2), 2))
    assert calls == []
    next(iterator)
    assert calls == [0, 1, 2]
    scanned = Calls()
    sums = Dataset.range(10).scan(np.int64(0), scanned.of(lambda state, x: (state + x, state)))
    next(iter(sums))
    assert len(scanned) == 1


def test_an_element_that_fails_is_in_its_place_and_the_others_follow():
    def fails(x: Any) -> Any:
        if x == 1:
            raise LookupError("on purpose")
        return x

    def one_error(dataset: Any) -> list[Any]:
        iterator, found = iter(dataset), []
        while True:
            try:
                found.append(plain(next(iterator)))
            except StopIteration:
                return found
            except LookupError:
                found.append("error")

    numbers = Dataset.range(4)
    assert one_error(numbers.scan(np.int64(0), lambda s, x: (s + fails(x), s + x))) == [
        *(0, "error", 2, 5)
    ]
    assert one_error(numbers.take_while(lambda x: fails(x) < 3)) == [0, "error", 2]
    assert one_error(numbers.map(fails).unique()) == [0, "error", 2, 3]
    grouped = numbers.group_by_window(lambda x: fails(x) * 0, lambda key, some: some.batch(4), 4)
    assert one_error(grouped) == ["error", [0, 2, 3]]


def test_ignored_errors_can_be_heard_of():
    def fails(x: Any) -> Any:
        if x == 1:
            raise LookupError("on purpose")
        return x

    with pytest.warns(UserWarning, match="leaves an element out: LookupError: on purpose"):
        assert elements(Dataset.range(3).map(fails).ignore_errors(log_warning=True)) == [0, 2]


def test_a_source_that_fails_for_good_ends_what_ignores_errors(tmp_path):
    files = text_files(tmp_path, 1, 1)
    lines = rx.data.TextLineDataset([files[0], str(tmp_path / "missing"), files[1]])
    assert elements(lines.ignore_errors()) == [b"0"]


def test_buckets_to_the_boundary_need_shapes_that_are_right():
    rows = rows_of([2, 2, 4])  # the first ones look as if all had two
    with pytest.raises(ValueError, match=r"told to fill element up to \(2,\)"):
        elements(rows.bucket_by_sequence_length(len, [8], [3, 1], pad_to_bucket_boundary=True))
    told = rows.bucket_by_sequence_length(len, [8], [3, 1], [None], None, True)
    assert [batch.shape for batch in told] == [(3, 7)]


def test_ragged_batches_keep_all_but_the_first_dimension():
    rows = rows_of([1, 3]).map(lambda x: np.stack([x, x], axis=1))
    (batch,) = rows.ragged_batch(2, row_splits_dtype=np.int32)
    assert batch.rows.shape == (2, 3, 2) and batch.lengths.tolist() == [1, 3]
    assert batch.lengths.dtype == np.int32
    with pytest.raises(ValueError, match="differ in their first dimension alone"):
        list(rows_of([1, 3]).map(lambda x: np.outer(x, x)).ragged_batch(2))


# ------------------------------------------------------------------ over replicas and workers


def shares(dataset: Any, workers: int = 1, replicas: int = 2) -> list[list[Any]]:
    """What each worker's replicas get, as lists."""
    found = []
    for worker in range(workers):
        layout = InputLayout(tuple(jax.devices("cpu")[:replicas]), workers, worker)
        distributed = distributed_dataset(dataset, layout, InputOptions())
        found.append(
            [
                [np.asarray(part).tolist() for part in getattr(step, "values", (step,))]
                for step in distributed
            ]
        )
    return found


def test_buckets_are_split_batch_by_batch():
    batches = rows_of([1, 4, 1, 4, 2, 5]).bucket_by_sequence_length(len, [3], [2, 2])
    ((first, *_),) = shares(batches)
    assert first == [[[1]], [[1]]]


def test_ragged_batches_are_split_with_their_lengths():
    layout = InputLayout(tuple(jax.devices("cpu")[:2]), 1, 0)
    batches = rows_of([1, 3, 2, 2]).ragged_batch(4, row_splits_dtype=np.int32)
    (step,) = distributed_dataset(batches, layout, InputOptions())
    assert type(step) is rx.io.PaddedRows
    lengths: Any = step.lengths
    assert [np.asarray(part).tolist() for part in lengths.values] == [[1, 3], [2, 2]]


@pytest.mark.filterwarnings("ignore:AutoShardPolicy.DATA")
def test_workers_take_parts_of_the_same_sample():
    parts = [Dataset.range(first, first + 8, output_type=np.int32) for first in (0, 100)]
    dataset = Dataset.sample_from_datasets(parts, seed=1).batch(4)
    both = shares(dataset, workers=2, replicas=1)
    steps = [[part for worker in both for part in worker[step][0]] for step in range(4)]
    assert sorted(sum(steps, [])) == sorted(elements(dataset.unbatch()))


def test_workers_sample_from_files_of_their_own(tmp_path):
    parts = []
    for name in "ab":
        (tmp_path / name).mkdir()
        lines = rx.data.TextLineDataset(text_files(tmp_path / name, 4, 4))
        parts.append(lines.map(lambda line, name=name: line + name.encode()))
    dataset = Dataset.sample_from_datasets(parts, seed=1).batch(2)
    seen = [
        {line for step in worker for part in step for line in part}
        for worker in shares(dataset, workers=2, replicas=1)
    ]
    assert not seen[0] & seen[1]
    assert len(seen[0] | seen[1]) == 16
