"""Exact resume of distributed data sets, also on other numbers of replicas and workers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.pipelines import (
    POLICY,
    Calls,
    Dataset,
    all_workers,
    flat,
    on_host,
    shares,
    text_files,
    with_policy,
)
from tests.replicas import mirrored
from tests.scripts import run_python


def by_mail(state: Any) -> Any:
    return json.loads(json.dumps(state))


def steps_of(iterator: Any) -> list[Any]:
    return [shares(value) for value in iterator]


INDEXED = {
    "plain": lambda: Dataset.range(23).batch(4),
    "whole batches": lambda: Dataset.range(23).batch(4, drop_remainder=True),
    "shuffled": lambda: Dataset.range(23).shuffle(23, seed=2).batch(4),
    "shuffled without a seed": lambda: Dataset.range(23).shuffle(23).batch(4),
    "shuffled in a small buffer": lambda: Dataset.range(23).shuffle(5, seed=2).batch(4),
    "epochs": lambda: Dataset.range(10).shuffle(10, seed=2).repeat(3).batch(4),
    "batches of epochs": lambda: Dataset.range(10).shuffle(10).batch(4).repeat(3),
    "mapped": lambda: Dataset.range(23).map(abs).shuffle(9, seed=1).batch(4).map(abs),
    "rows": lambda: Dataset.from_tensor_slices(np.arange(23)).shuffle(23).take(19).batch(5),
    "zipped": lambda: Dataset.zip(Dataset.range(9), Dataset.range(9)).map(max).shuffle(9).batch(2),
    "anew": lambda: with_policy(Dataset.range(10).shuffle(10).batch(4).repeat(3), POLICY.OFF),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("replicas", range(1, 9))
def test_other_numbers_of_replicas_continue(name: str, replicas: int):
    make = INDEXED[name]
    for before in (1, 2, 3):
        first = iter(on_host(make(), 3))
        for _ in range(before):
            next(first)
        state = first.get_state()
        rest = [flat(step) for step in steps_of(first)]
        other = iter(on_host(make(), replicas))
        if name == "anew" and replicas == 1:  # one replica takes the batches as they are
            with pytest.raises(ValueError, match="split"):
                other.set_state(by_mail(state))
            return
        other.set_state(by_mail(state))
        assert [flat(step) for step in steps_of(other)] == rest


@settings(max_examples=40)
@given(
    count=st.integers(1, 40),
    batch=st.integers(1, 9),
    repeat=st.integers(1, 3),
    buffer=st.sampled_from([None, 3, 40]),
    first=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    second=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    data=st.data(),
)
def test_other_numbers_of_workers_and_replicas_continue(
    count: int, batch: int, repeat: int, buffer: Any, first: Any, second: Any, data: Any
):
    def make() -> Any:
        dataset = Dataset.range(count)
        if buffer is not None:
            dataset = dataset.shuffle(buffer, seed=7)
        return dataset.batch(batch).repeat(repeat)

    total = len(make())
    before = data.draw(st.integers(0, total))
    received, states = all_workers(make, *first, steps=before)
    assert len({json.dumps(state) for state in states}) == 1  # one state for all of them
    followed, _ = all_workers(make, *second, states=[by_mail(states[0])] * second[1])
    whole, _ = all_workers(make, *second)
    assert [steps[before:] for steps in whole] == followed
    rows = sorted(flat(received)) + sorted(flat(followed))
    assert sorted(rows) == sorted(list(range(count)) * repeat)


def test_the_iterations_that_follow_are_the_same_too():
    def make() -> Any:
        return on_host(Dataset.range(12).shuffle(12).batch(4), 2)

    first = make()
    steps_of(first)
    iterator = iter(first)
    next(iterator)
    state = iterator.get_state()
    rest, third = steps_of(iterator), steps_of(first)
    other = make()
    iterator = iter(other)
    iterator.set_state(state)
    assert steps_of(iterator) == rest and steps_of(other) == third


def test_a_state_goes_between_a_data_set_and_a_distributed_one():
    """For batches that are split each for itself, both count batches."""
    plain = iter(Dataset.range(12).shuffle(12, seed=1).batch(4))
    next(plain)
    distributed = iter(on_host(Dataset.range(12).shuffle(12, seed=1).batch(4), 2))
    try:
        distributed.set_state(plain.get_state())
    except ValueError:
        return  # refused is right too
    assert [flat(step) for step in steps_of(distributed)] == [batch.tolist() for batch in plain]


def test_setting_a_state_computes_nothing_that_was_received():
    calls = Calls()
    source = Dataset.range(1000).map(calls.of()).shuffle(1000, seed=1).batch(10)
    iterator = iter(on_host(source, 2))
    iterator.set_state(iterator.get_state() | {"position": 99})
    assert calls == []
    next(iterator)
    assert len(calls) == 10


def test_states_are_small():
    source = Dataset.from_tensor_slices(np.zeros((2000, 50), np.float32)).shuffle(2000).repeat()
    iterator = iter(mirrored(2).experimental_distribute_dataset(source.batch(8)))
    for _ in range(3):
        next(iterator)
    assert len(json.dumps(iterator.get_state())) < 200
    iterator.close()


# ------------------------------------------------------------------ files and streams


@pytest.mark.parametrize("shuffle", [{}, {"seed": 3}, None])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_files_continue_on_the_same_workers(shuffle: Any, workers: int, tmp_path: Path):
    names = text_files(tmp_path, 9, 4, 7, 5)
    seeds = {"seed": 3} if workers > 1 and shuffle == {} else shuffle

    def make() -> Any:
        lines: Any = rx.data.TextLineDataset(names)
        return (lines if seeds is None else lines.shuffle(6, **seeds)).batch(6)

    for before in (0, 1, 2):
        _, states = all_workers(make, 2, workers, steps=before)
        followed, _ = all_workers(make, 2, workers, states=[by_mail(state) for state in states])
        if seeds != {}:
            whole, _ = all_workers(make, 2, workers)
            assert [steps[before:] for steps in whole] == followed
        assert len(flat(followed)) <= 25


def test_unseeded_shuffles_of_one_worker_among_many_continue(tmp_path: Path):
    names = text_files(tmp_path, 9, 4, 7, 5)

    def worker() -> Any:
        lines = Dataset.list_files(names).interleave(rx.data.TextLineDataset, 2).shuffle(20)
        return on_host(lines.batch(4), 2, 2, 1)

    iterator = iter(worker())
    next(iterator)
    state = iterator.get_state()
    rest = steps_of(iterator)
    other = iter(worker())
    other.set_state(by_mail(state))
    assert steps_of(other) == rest


def test_files_on_one_worker_continue_on_other_replicas(tmp_path: Path):
    names = text_files(tmp_path, 9, 4, 7)

    def make() -> Any:
        return rx.data.TextLineDataset(names).shuffle(7, seed=1).batch(6)

    first = iter(on_host(make(), 4))
    next(first)
    state = first.get_state()
    rest = [flat(step) for step in steps_of(first)]
    for replicas in (1, 2, 3, 8):
        other = iter(on_host(make(), replicas))
        other.set_state(by_mail(state))
        assert [flat(step) for step in steps_of(other)] == rest


@pytest.mark.parametrize(
    ("have", "want"), [((2, 2), (2, 1)), ((2, 1), (2, 2)), ((1, 2), (2, 2)), ((1, 3), (1, 2))]
)
@pytest.mark.parametrize("policy", [POLICY.FILE, POLICY.OFF])
def test_files_on_other_workers_are_refused(have: Any, want: Any, policy: Any, tmp_path: Path):
    names = text_files(tmp_path, 9, 4, 7)

    def make() -> Any:
        return with_policy(rx.data.TextLineDataset(names).batch(6), policy)

    state = iter(on_host(make(), *have)).get_state()
    iterator = iter(on_host(make(), *want))
    with pytest.raises(ValueError, match="workers|replicas"):
        iterator.set_state(by_mail(state))


def test_another_policy_is_refused():
    """Positions mean other rows if batches are split by another rule."""

    def make(policy: Any) -> Any:
        return with_policy(Dataset.range(7).batch(10).repeat(4), policy)

    first = iter(on_host(make(POLICY.DATA), 2))
    next(first)
    iterator = iter(on_host(make(POLICY.OFF), 2))
    with pytest.raises(ValueError, match="policy|rule|split"):
        iterator.set_state(first.get_state())


def test_generators_are_counted_and_skipped():
    read: list[int] = []

    def generate() -> Any:
        for number in range(6):
            read.append(number)
            yield [2 * number, 2 * number + 1]

    def make() -> Any:
        return Dataset.from_generator(generate)

    first = iter(on_host(make(), 2))
    next(first)
    next(first)
    state = first.get_state()
    rest = [flat(step) for step in steps_of(first)]
    read.clear()
    other = iter(on_host(make(), 1))
    other.set_state(by_mail(state))
    assert [flat(step) for step in steps_of(other)] == rest and read[0] == 0


def test_a_state_of_another_data_set_is_refused():
    state = iter(on_host(Dataset.range(12).batch(4), 2)).get_state()
    with pytest.raises(ValueError, match="another data set"):
        iter(on_host(Dataset.range(12).batch(3), 2)).set_state(state)
    with pytest.raises(TypeError, match="get_state"):
        iter(on_host(Dataset.range(12).batch(3), 2)).set_state(5)


def test_functions_on_the_device_are_part_of_the_pipeline():
    def make() -> Any:
        return Dataset.range(24).shuffle(24).batch(4).map(lambda x: x * 2, on_device=True)

    strategy = mirrored(2)
    first = iter(strategy.experimental_distribute_dataset(make()))
    next(first)
    next(first)
    state = first.get_state()
    rest = steps_of(first)
    other = iter(strategy.experimental_distribute_dataset(make()))
    other.set_state(by_mail(state))
    assert steps_of(other) == rest


def test_a_new_process_continues_with_other_replicas(tmp_path: Path):
    (tmp_path / "program.py").write_text(
        "import json, sys, numpy as np, replicax as rx\n"
        "count, state = int(sys.argv[1]), sys.argv[2:]\n"
        "strategy = rx.distribute.MirroredStrategy([f'CPU:{i}' for i in range(count)])\n"
        "rows = rx.data.Dataset.from_tensor_slices(np.arange(50, dtype=np.int32))\n"
        "it = iter(strategy.experimental_distribute_dataset(rows.shuffle(50).repeat(2).batch(8)))\n"
        "if state: it.set_state(json.load(open(state[0])))\n"
        "else:\n"
        "    for _ in range(5): next(it)\n"
        "    json.dump(it.get_state(), open('state.json', 'w'))\n"
        "print(json.dumps([np.concatenate([np.asarray(p) for p in\n"
        "    strategy.experimental_local_results(v)]).tolist() for v in it]))\n"
    )
    first = run_python(["program.py", "2"], tmp_path, warm=True)
    second = run_python(["program.py", "5", "state.json"], tmp_path)
    assert first == second and len(json.loads(first)) == 8
