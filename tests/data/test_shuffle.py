"""The laws of shuffling: a permutation, within the buffer, the same for the same seed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from tests.pipelines import Dataset, elements, text_files
from tests.scripts import run_python


@given(count=st.integers(0, 60), size=st.integers(1, 70), seed=st.integers(-(2**63), 2**63 - 1))
def test_a_shuffle_is_a_permutation_within_its_buffer(count: int, size: int, seed: int):
    order = elements(Dataset.range(count).shuffle(size, seed=seed))
    assert sorted(order) == list(range(count))
    for position, element in enumerate(order):  # nothing comes before it is in the buffer
        assert element < position + size


@pytest.mark.parametrize("count", [1000, 3001])
@pytest.mark.parametrize("size", [2, 100, 700, 1500])
def test_long_shuffles_are_permutations_within_their_buffer(count: int, size: int):
    order = np.array(elements(Dataset.range(count).shuffle(size, seed=3)))
    assert sorted(order) == list(range(count))
    assert (order - np.arange(count)).max() < size
    assert (order != np.arange(count)).any()


def test_a_buffer_of_one_changes_nothing():
    assert elements(Dataset.range(600).shuffle(1)) == list(range(600))


def test_a_full_shuffle_is_even():
    """Every element is about as often at every place."""
    counts = np.zeros((4, 4))
    dataset = Dataset.range(4).shuffle(4, seed=1)
    for _ in range(800):
        for place, element in enumerate(dataset):
            counts[place, element] += 1
    assert counts.min() > 150 and counts.max() < 250


def test_a_small_buffer_draws_evenly_from_it():
    firsts = np.zeros(6)
    dataset = Dataset.range(6).shuffle(3, seed=1)
    for _ in range(600):
        firsts[next(iter(dataset))] += 1
    assert firsts[:3].min() > 150 and not firsts[3:].any()


def test_the_seed_decides():
    def order(**options: Any) -> list[int]:
        return elements(Dataset.range(50).shuffle(50, **options))

    assert order(seed=1) == order(seed=1) != order(seed=2)
    assert order(seed=0) != order(seed=2**40)
    assert order(seed=-1) == order(seed=-1) != order(seed=1)
    assert order() != order()  # each data set draws its own


def test_each_iteration_has_an_order_of_its_own():
    dataset = Dataset.range(50).shuffle(50, seed=1)
    first, second, third = elements(dataset), elements(dataset), elements(dataset)
    assert first != second != third != first
    again = Dataset.range(50).shuffle(50, seed=1)
    assert [elements(again), elements(again), elements(again)] == [first, second, third]
    derived = dataset.batch(10)  # a data set of its own: it starts from the first iteration
    assert [row for batch in elements(derived) for row in batch] == first


def test_the_same_order_in_every_iteration_if_asked():
    for seed in (None, 5):
        dataset = Dataset.range(50).shuffle(50, seed=seed, reshuffle_each_iteration=False)
        first = elements(dataset)
        assert first == elements(dataset) == elements(dataset.take(100))
        assert elements(dataset.repeat(2)) == first * 2


def test_each_repetition_has_an_order_of_its_own():
    dataset = Dataset.range(20).shuffle(20, seed=1).repeat(3)
    order = elements(dataset)
    epochs = [order[:20], order[20:40], order[40:]]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    nested = elements(Dataset.range(8).shuffle(8, seed=1).repeat(2).repeat(2))
    assert len({tuple(nested[i : i + 8]) for i in range(0, 32, 8)}) == 4


def test_two_iterators_at_once_have_different_orders():
    dataset = Dataset.range(50).shuffle(50, seed=1)
    one, other = iter(dataset), iter(dataset)
    pairs = list(zip(one, other))
    assert [a for a, _ in pairs] != [b for _, b in pairs]
    assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == list(range(50))


def test_a_data_set_that_is_shuffled_once_and_used_twice():
    shuffled = Dataset.range(30).shuffle(30, seed=1)
    order = elements(shuffled.concatenate(shuffled))
    assert sorted(order[:30]) == sorted(order[30:]) == list(range(30))
    assert order[:30] != order[30:]


def test_everything_is_shuffled_without_a_size():
    for size in (None, rx.data.UNKNOWN_CARDINALITY):
        assert sorted(elements(Dataset.range(300).shuffle(size))) == list(range(300))
    stream = Dataset.range(300).filter(lambda x: True)
    assert sorted(elements(stream.shuffle(None))) == list(range(300))


def test_what_is_shuffled_may_be_anything(tmp_path: Path):
    lines = text_files(tmp_path, 5, 4)
    text = rx.data.TextLineDataset(lines).shuffle(4, seed=1)
    assert sorted(elements(text)) == [str(n).encode() for n in range(9)]
    pairs = Dataset.zip(Dataset.range(9), Dataset.range(10, 19)).shuffle(5, seed=1)
    assert all(b == a + 10 for a, b in elements(pairs))
    batches = Dataset.range(9).batch(2).shuffle(5, seed=1)
    assert sorted(elements(batches)) == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    mapped = Dataset.range(9).map(lambda x: x * 2).shuffle(4, seed=1)
    assert sorted(elements(mapped)) == list(range(0, 18, 2))
    generated = Dataset.from_generator(lambda: iter(range(600))).shuffle(7, seed=1)
    order = elements(generated)
    assert sorted(order) == list(range(600)) and all(x < i + 7 for i, x in enumerate(order))


def test_the_order_does_not_depend_on_what_is_asked_for_at_a_time():
    """Batches, single elements and skipping walk through one order."""
    for size in (3, 40, 500):
        dataset = Dataset.range(900).shuffle(size, seed=4)
        order = elements(dataset.take(900))
        in_batches = [row for batch in elements(dataset.batch(7)) for row in batch]
        assert in_batches == order
        assert elements(dataset.map(lambda x: x)) == order
        assert elements(dataset.skip(433)) == order[433:]
        assert elements(dataset.batch(10).skip(50).unbatch()) == order[500:]


def test_the_order_is_the_same_in_another_process(tmp_path: Path):
    (tmp_path / "program.py").write_text(
        "import json, replicax as rx\n"
        "D = rx.data.Dataset\n"
        "d = D.range(40).shuffle(9, seed=5).repeat(2).batch(7).shuffle(3, seed=2)\n"
        "print(json.dumps([[b.tolist() for b in d] for _ in range(2)]))\n"
    )
    dataset = Dataset.range(40).shuffle(9, seed=5).repeat(2).batch(7).shuffle(3, seed=2)
    there = json.loads(run_python(["program.py"], tmp_path, warm=True))
    assert there == [elements(dataset), elements(dataset)]
