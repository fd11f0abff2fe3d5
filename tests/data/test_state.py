"""States: what was received is not received again, and what was not follows, in its old order."""

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from replicax._src.data._node import Run, take_all
from tests.pipelines import Calls, Dataset, elements, plain, text_files
from tests.scripts import run_python


def received(iterator: Any, count: int) -> list[Any]:
    return [plain(next(iterator)) for _ in range(count)]


def continued(dataset: Any, state: Any) -> list[Any]:
    """What follows a state, in another data set; the state goes by mail."""
    iterator = iter(dataset)
    iterator.set_state(json.loads(json.dumps(state)))
    return elements(iterator)


def assert_continues(make: Callable[[], Any], count: int) -> None:
    """What follows after `count` elements also follows in a data set that was made again."""
    iterator = iter(make())
    before = received(iterator, count)
    state = iterator.get_state()
    rest = elements(iterator)
    assert continued(make(), state) == rest
    second = iter(make())
    second.set_state(state)
    assert second.get_state() == state
    if rest:
        assert plain(next(second)) == rest[0]
        assert continued(make(), second.get_state()) == rest[1:]
    assert len(before) == count


def stream(count: int) -> Any:
    def generate() -> Iterator[int]:
        yield from range(count)

    return Dataset.from_generator(generate, output_signature=rx.TensorSpec([], "int64"))


SOURCES: dict[str, Callable[[int], Any]] = {
    "range": Dataset.range,
    "slices": lambda count: Dataset.from_tensor_slices(np.arange(count)),
    "generator": stream,
    "filter": lambda count: Dataset.range(2 * count).filter(lambda x: x % 2 == 0),
    "concatenate": lambda n: Dataset.range(n // 2).concatenate(Dataset.range(n // 2, n)),
    "flat_map": lambda count: Dataset.range(count).flat_map(lambda x: Dataset.from_tensors(x)),
    "zip": lambda n: Dataset.zip(Dataset.range(n), stream(n)).map(lambda a, b: a + b),
}

operation = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 40)),
    st.tuples(st.just("skip"), st.integers(0, 5)),
    st.tuples(st.just("repeat"), st.integers(1, 3)),
    st.tuples(st.just("shuffle"), st.integers(1, 30), st.integers(0, 5)),
    st.tuples(st.just("shuffle"), st.integers(1, 30)),
    st.tuples(st.just("shard"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("rows"), st.integers(1, 4)),
    st.tuples(st.just("map")),
    st.tuples(st.just("filter")),
    st.tuples(st.just("cache")),
    st.tuples(st.just("prefetch"), st.integers(0, 3)),
    st.tuples(st.just("enumerate")),
    st.tuples(st.just("window"), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("vectorized")),
    st.tuples(st.just("interleave"), st.integers(1, 3)),
)
last = st.one_of(
    st.just(("nothing",)),
    st.tuples(st.just("batch"), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("padded_batch"), st.integers(1, 4)),
    st.tuples(st.just("rebatch"), st.integers(1, 4), st.integers(1, 4)),
)


def build(source: str, count: int, operations: Any) -> Any:
    dataset = SOURCES[source](count)
    for name, *args in operations:
        if name == "rows":
            dataset = dataset.batch(args[0]).unbatch()
        elif name == "map":
            dataset = dataset.map(lambda x: x + 1)
        elif name == "vectorized":
            dataset = dataset.map(lambda x: x * 2, vectorized=True)
        elif name == "filter":
            dataset = dataset.filter(lambda x: x % 5 != 1)
        elif name == "enumerate":
            dataset = dataset.enumerate().map(lambda number, x: 100 * number + x)
        elif name == "window":
            size = args[0]
            windows = dataset.window(size, args[1])
            dataset = windows.flat_map(lambda window: window)
        elif name == "interleave":
            dataset = dataset.interleave(lambda x: Dataset.range(x, x + 2), args[0])
        elif name == "rebatch":
            dataset = dataset.batch(args[0]).rebatch(args[1])
        elif name != "nothing":
            dataset = getattr(dataset, name)(*args)
    return dataset


@settings(max_examples=150)
@given(
    source=st.sampled_from(sorted(SOURCES)),
    count=st.integers(0, 12),
    operations=st.lists(operation, max_size=4),
    end=last,
    data=st.data(),
)
def test_any_pipeline_continues_where_it_was(
    source: str, count: int, operations: Any, end: Any, data: Any
):
    def make() -> Any:
        return build(source, count, [*operations, end])

    size = len(elements(make()))
    assert_continues(make, data.draw(st.integers(0, size)))


@settings(max_examples=80)
@given(
    source=st.sampled_from(sorted(SOURCES)),
    count=st.integers(0, 12),
    operations=st.lists(operation.filter(lambda o: o[0] != "shuffle" or len(o) == 3), max_size=4),
    end=last,
    skipped=st.integers(0, 50),
)
def test_to_skip_is_to_drop(source: str, count: int, operations: Any, end: Any, skipped: int):
    def make() -> Any:
        return build(source, count, [*operations, end])

    assert elements(make().skip(skipped)) == elements(make())[skipped:]
    assert elements(make().skip(skipped).skip(2)) == elements(make())[skipped + 2 :]


@given(st.lists(st.integers(0, 7), max_size=6), st.integers(1, 4), st.integers(0, 3))
def test_readers_may_be_taken_from_and_skipped_in_any_order(moves: Any, size: int, repeats: int):
    """The reader of a batch of repeated, sharded, zipped things, driven by hand."""

    def make() -> Any:
        numbers = Dataset.range(11)
        pairs = Dataset.zip(numbers.repeat(repeats), numbers.shuffle(4, seed=1).repeat())
        return pairs.concatenate(numbers.shard(3, 1).enumerate()).batch(size)

    wanted = elements(make())
    reader = make()._data_set_node.open(Run())
    position = 0
    for turn, move in enumerate(moves):
        if turn % 2:
            assert reader.skip(move) == len(wanted[position : position + move])
        elif move:
            got = [plain(row) for row in take_all(reader, move).rows()]
            assert got == wanted[position : position + move]
        position = min(position + move, len(wanted))
    reader.close()


def test_a_state_is_small_and_plain():
    dataset = Dataset.from_tensor_slices(np.zeros((5000, 100))).shuffle(5000).repeat().batch(32)
    iterator = iter(dataset)
    received(iterator, 3)
    state = iterator.get_state()
    assert len(json.dumps(state)) < 200
    assert json.loads(json.dumps(state)) == state
    assert pickle.loads(pickle.dumps(state)) == copy.deepcopy(state) == state


def test_a_state_says_what_was_received_and_not_what_was_read_ahead():
    for ahead in (0, 1, 5):
        dataset = Dataset.range(20).map(lambda x: x).prefetch(ahead)
        iterator = iter(dataset)
        received(iterator, 4)
        rest = continued(Dataset.range(20).map(lambda x: x), iterator.get_state())
        assert rest == list(range(4, 20))
        iterator.close()


def test_setting_a_state_goes_back_and_forth():
    iterator = iter(Dataset.range(6).shuffle(6, seed=1))
    start = iterator.get_state()
    first = received(iterator, 2)
    middle = iterator.get_state()
    rest = elements(iterator)
    end = iterator.get_state()
    iterator.set_state(start)
    assert received(iterator, 6) == first + rest
    iterator.set_state(middle)
    assert elements(iterator) == rest
    iterator.set_state(end)
    assert elements(iterator) == [] and iterator.get_state() == end


def test_the_iterations_that_follow_are_those_that_would_have_followed():
    def make() -> Any:
        return Dataset.range(10).shuffle(10).repeat(2)

    dataset = make()
    elements(dataset)
    iterator = iter(dataset)
    received(iterator, 3)
    state = iterator.get_state()
    rest, next_one = elements(iterator), elements(dataset)
    fresh = make()
    iterator = iter(fresh)
    iterator.set_state(state)
    assert elements(iterator) == rest and elements(fresh) == next_one


def test_far_positions_cost_nothing():
    calls = Calls()
    dataset = Dataset.range(1000).map(calls.of()).shuffle(1000, seed=1).repeat().batch(10)
    iterator = iter(dataset)
    state = iterator.get_state()
    iterator.set_state(state | {"position": 10**9 + 3})
    next(iterator)
    assert len(calls) == 10


def test_a_cache_behind_a_shuffle_continues_in_the_order_that_it_keeps():
    def make() -> Any:
        return Dataset.range(12).shuffle(12).cache().repeat(3)

    for count in (0, 5, 12, 14, 30):
        assert_continues(make, count)
    dataset = make()
    elements(dataset)
    iterator = iter(dataset)  # the second iteration, from the cache
    received(iterator, 4)
    state = iterator.get_state()
    assert continued(make(), state) == elements(iterator)


def test_shuffles_made_by_functions_continue_in_their_order():
    def made(x: Any) -> Any:
        return Dataset.range(x, x + 6).shuffle(6)

    for make in (
        lambda: Dataset.range(3).flat_map(made),
        lambda: Dataset.range(3).interleave(made, 2),
        lambda: Dataset.range(3).flat_map(made).repeat(2),
    ):
        for count in (0, 4, 13):
            assert_continues(make, count)


def test_text_files_continue(tmp_path: Path):
    names = text_files(tmp_path, 7, 0, 5, 9)
    pattern = str(tmp_path / "*.txt")
    for make in (
        lambda: rx.data.TextLineDataset(names),
        lambda: rx.data.TextLineDataset(names).shuffle(6).batch(4),
        lambda: Dataset.list_files(pattern).interleave(rx.data.TextLineDataset, 2),
        lambda: Dataset.list_files(pattern, seed=3).flat_map(rx.data.TextLineDataset),
    ):
        for count in (0, 3, 5):
            assert_continues(make, count)


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (lambda: Dataset.range(6), lambda: Dataset.range(7)),
        (lambda: Dataset.range(6).batch(2), lambda: Dataset.range(6).batch(3)),
        (lambda: Dataset.range(6).batch(2), lambda: Dataset.range(6)),
        (lambda: Dataset.range(6).batch(5), lambda: Dataset.range(6).batch(5, True)),
        (lambda: Dataset.range(6).skip(1), lambda: Dataset.range(6).skip(2)),
        (lambda: Dataset.range(6).take(3), lambda: Dataset.range(6).take(4)),
        (lambda: Dataset.range(6).repeat(2), lambda: Dataset.range(6).repeat(3)),
        (lambda: Dataset.range(6).shard(2, 0), lambda: Dataset.range(6).shard(2, 1)),
        (lambda: Dataset.range(6).shuffle(6, 1), lambda: Dataset.range(6).shuffle(6, 2)),
        (lambda: Dataset.range(6).shuffle(6, 1), lambda: Dataset.range(6).shuffle(5, 1)),
        (lambda: Dataset.range(6).shuffle(6), lambda: Dataset.range(6)),
        (lambda: Dataset.range(6).shuffle(6), lambda: Dataset.range(6).shuffle(6, 1)),
        (lambda: Dataset.range(6).shuffle(6, 1), lambda: Dataset.range(6).shuffle(6, 1, False)),
        (lambda: Dataset.range(6).window(2), lambda: Dataset.range(6).window(3)),
        (lambda: Dataset.range(6).padded_batch(2), lambda: Dataset.range(6).padded_batch(3)),
        (lambda: Dataset.range(6).enumerate(), lambda: Dataset.range(6).enumerate(3)),
        (
            lambda: Dataset.range(6).interleave(Dataset.range, 2),
            lambda: Dataset.range(6).interleave(Dataset.range, 3),
        ),
    ],
)
def test_states_of_other_data_sets_are_refused(make: Any, other: Any):
    state = iter(make()).get_state()
    iterator = iter(other())
    with pytest.raises(ValueError, match="another data set.*same pipeline"):
        iterator.set_state(state)
    assert elements(iterator) == elements(other()) or "seeds" in iterator.get_state()


def test_what_does_not_change_elements_does_not_change_the_state():
    state = iter(Dataset.range(6).batch(2)).get_state()
    options = rx.data.Options()
    for other in (
        Dataset.range(6).batch(2).prefetch(2),
        Dataset.range(6).prefetch(1).batch(2).with_options(options),
    ):
        iterator = iter(other)
        iterator.set_state(state)
        assert elements(iterator) == elements(Dataset.range(6).batch(2))


@pytest.mark.parametrize("state", [None, 3, {}, {"position": 1}, [1, 2]])
def test_what_is_no_state_is_refused(state: Any):
    with pytest.raises(TypeError, match="set_state takes what get_state returned"):
        iter(Dataset.range(3)).set_state(state)


def test_a_state_of_another_version_is_refused():
    iterator = iter(Dataset.range(3))
    with pytest.raises(ValueError, match="version 99"):
        iterator.set_state(iterator.get_state() | {"version": 99})


def test_an_element_that_failed_is_passed():
    """After an error the iterator goes on, and so does a state of it."""

    def fail_at_2(x: Any) -> Any:
        if x == 2:
            raise KeyError("two")
        return x

    def make() -> Any:
        return Dataset.range(6).map(fail_at_2)

    iterator = iter(make())
    assert received(iterator, 2) == [0, 1]
    with pytest.raises(KeyError):
        next(iterator)
    assert received(iterator, 1) == [3]
    assert continued(make(), iterator.get_state()) == [4, 5]


def test_an_error_of_the_source_passes_nothing():
    """What could not be read was not received: perhaps it can be read the next time."""
    broken = [True]

    def generate() -> Iterator[int]:
        for number in range(5):
            if number == 2 and broken[0]:
                raise OSError("the network")
            yield number

    iterator = iter(Dataset.from_generator(generate))
    assert received(iterator, 2) == [0, 1]
    with pytest.raises(OSError):
        next(iterator)
    state = iterator.get_state()
    broken[0] = False
    assert continued(Dataset.from_generator(generate), state) == [2, 3, 4]


def test_an_iterator_that_was_closed_continues_in_its_order():
    def make() -> Any:
        shuffled = Dataset.range(8).shuffle(8, seed=1)
        return shuffled.concatenate(shuffled).shuffle(3, seed=2).repeat(2)

    wanted = elements(make())
    iterator = iter(make())
    found: list[Any] = []
    for count in (3, 9, 6):
        found += received(iterator, count)
        iterator.close()
    assert found + elements(iterator) == wanted


def test_a_new_process_continues(tmp_path: Path):
    (tmp_path / "program.py").write_text(
        "import json, sys, numpy as np, replicax as rx\n"
        "D = rx.data.Dataset\n"
        "d = D.from_tensor_slices(np.arange(50)).shuffle(50).repeat(3).shuffle(20).batch(7)\n"
        "it = iter(d)\n"
        "if len(sys.argv) > 1: it.set_state(json.load(open(sys.argv[1])))\n"
        "else:\n"
        "    for _ in range(9): next(it)\n"
        "    json.dump(it.get_state(), open('state.json', 'w'))\n"
        "print(json.dumps([[b.tolist() for b in it], [b.tolist() for b in d]]))\n"
    )
    first = run_python(["program.py"], tmp_path, warm=True)
    second = run_python(["program.py", "state.json"], tmp_path)
    assert first == second and len(json.loads(first)[0]) == 13
