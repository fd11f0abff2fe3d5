"""When functions of data sets run, whose memory elements are in, and how they are iterated."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.pipelines import Calls, Dataset, elements, plain


def spec(shape: Any, dtype: Any) -> Any:
    return rx.TensorSpec.on_host(shape, np.dtype(dtype))


# ------------------------------------------------------------------ what is computed, and when


def test_nothing_runs_before_it_is_asked_for():
    calls = Calls()
    made: list[int] = []

    def generate() -> Iterator[int]:
        made.append(1)
        yield from range(3)

    dataset = Dataset.from_generator(generate).map(calls.of()).shuffle(2).batch(2).prefetch(1)
    iterator = iter(dataset)
    assert made == [] and calls == []
    iterator.close()


def test_functions_run_only_for_elements_that_are_used():
    calls = Calls()
    numbers = Dataset.range(100).map(calls.of())
    assert elements(numbers.shuffle(100, seed=1).skip(5).take(2).batch(2)) == [calls]
    calls.clear()
    assert elements(numbers.shard(10, 3).take(2)) == calls == [3, 13]
    calls.clear()
    assert elements(numbers.skip(98)) == calls == [98, 99]
    calls.clear()
    assert elements(numbers.batch(10).skip(9)) == [calls] == [list(range(90, 100))]
    calls.clear()
    assert elements(numbers.repeat(3).skip(299)) == calls == [99]
    calls.clear()
    pairs = Dataset.zip(numbers, Dataset.range(100)).shuffle(100, seed=2).take(1)
    assert [elements(pairs)[0][0]] == calls


def test_functions_run_for_used_elements_only_also_across_epochs_and_partial_batches():
    calls = Calls()
    numbers = Dataset.range(5).map(calls.of())
    assert elements(numbers.repeat(2).shuffle(10, seed=1).take(1)) == calls
    calls.clear()
    assert elements(numbers.batch(2).shuffle(3, seed=1).take(1)) == [calls]


def test_a_generator_is_advanced_by_what_is_asked_for():
    read: list[int] = []

    def generate() -> Iterator[int]:
        for number in range(10_000):
            read.append(number)
            yield number

    source = Dataset.from_generator(generate, output_signature=rx.TensorSpec([], "int32"))

    def after(dataset: Any, count: int = 1) -> int:
        read.clear()
        iterator = iter(dataset)
        for _ in range(count):
            next(iterator)
        iterator.close()
        return len(read)

    assert after(source) == 1 and after(source, 3) == 3
    assert after(source.batch(4)) == 4 and after(source.batch(4).unbatch()) <= 4
    assert after(source.map(lambda x: x).enumerate(), 2) == 2
    assert after(source.filter(lambda x: x % 5 == 4)) == 5
    assert after(source.shard(3, 2), 2) == 6 and after(source.skip(3)) == 4
    assert after(source.window(3)) == 3
    assert after(Dataset.zip(source, Dataset.range(9)), 2) == 2
    assert after(source.cache(), 2) == 2
    assert after(source.batch(2).rebatch(3)) == 4
    assert after(source.padded_batch(3)) == 3
    assert after(source.take(5), 2) == 2
    assert after(source.flat_map(Dataset.from_tensors), 2) == 2
    assert after(Dataset.range(2).flat_map(lambda x: source), 2) == 2
    assert after(Dataset.range(2).flat_map(lambda x: source.batch(2))) <= 4
    assert after(Dataset.range(2).flat_map(lambda x: source.filter(lambda y: y % 2 == 1))) <= 4
    assert after(Dataset.range(2).interleave(lambda x: source.batch(2), 2)) <= 4
    assert after(source.shuffle(3, seed=1)) <= 8


def test_an_endless_generator_can_be_used():
    def generate() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    source = Dataset.from_generator(generate)
    assert elements(source.take(2)) == [0, 1]
    assert elements(source.batch(2).take(2)) == [[0, 1], [2, 3]]
    assert elements(Dataset.zip(source, Dataset.range(2))) == [(0, 0), (1, 1)]
    assert len(elements(source.shuffle(10).take(5))) == 5


# ------------------------------------------------------------------ whose memory


def test_rows_of_the_users_arrays_cannot_be_written_to():
    x = np.zeros((4, 2))
    for dataset in (Dataset.from_tensor_slices(x), Dataset.from_tensors(x)):
        with pytest.raises(ValueError, match="read-only"):
            next(iter(dataset))[...] = 1

    def in_place(row: Any) -> Any:
        row += 1
        return row

    with pytest.raises(ValueError, match="read-only"):
        list(Dataset.from_tensor_slices(x).map(in_place))
    assert x.flags.writeable and not x.any()


def test_batches_are_the_users_own():
    x = np.zeros((4, 2))
    for batch in Dataset.from_tensor_slices(x).batch(2):
        batch += 1
    for batch in Dataset.from_tensor_slices(x).batch(2).map(lambda b: b):
        batch += 1
    assert not x.any()


def reused() -> Iterator[Any]:
    buffer = np.zeros(2, np.float32)
    for number in range(4):
        buffer[:] = number
        yield buffer


def reused_dict() -> Iterator[Any]:
    row: dict[str, Any] = {}
    for number in range(4):
        row["x"] = number
        yield row


def test_a_generator_may_use_its_buffer_again():
    dataset = Dataset.from_generator(reused)
    wanted = [[number] * 2 for number in range(4)]
    for each in (
        dataset.cache(),
        dataset.batch(3).unbatch(),
        dataset.window(4).flat_map(lambda window: window),
        Dataset.zip(dataset, Dataset.range(4)).map(lambda x, _: x).batch(4).unbatch(),
        dataset.prefetch(3),
        dataset,
    ):
        assert elements(list(each)) == wanted, each
    assert sorted(elements(dataset.shuffle(4))) == wanted
    assert elements(Dataset.from_generator(reused_dict).batch(4)) == [{"x": [0, 1, 2, 3]}]
    assert [row["x"] for row in list(Dataset.from_generator(reused_dict))] == [0, 1, 2, 3]


def test_views_of_a_buffer_that_is_used_again():
    def broadcast() -> Iterator[Any]:
        for buffer in reused():
            yield np.broadcast_to(buffer, (1, 2))

    def read_only() -> Iterator[Any]:
        for buffer in reused():
            view = buffer.view()
            view.flags.writeable = False
            yield view

    def matrices() -> Iterator[Any]:
        for buffer in reused():
            yield buffer.view(np.matrix)

    for generate in (broadcast, read_only, matrices):
        found = np.concatenate(list(Dataset.from_generator(generate).batch(4)))
        assert found.reshape(4, 2).tolist() == [[number] * 2 for number in range(4)], generate


def test_an_iterator_may_use_its_buffer_again():
    looked_at = Dataset.from_source(reused())
    assert looked_at.element_spec.dtype == np.float32
    for dataset in (Dataset.from_source(reused()), looked_at):
        assert elements(dataset.batch(4)) == [[[number] * 2 for number in range(4)]]


def test_a_function_of_map_may_use_its_buffer_again():
    buffer = np.zeros(2)

    def fill(number: Any) -> Any:
        buffer[:] = number
        return buffer

    wanted = [[number] * 2 for number in range(4)]
    dataset = Dataset.range(4).map(fill)
    assert elements(dataset.batch(4).unbatch()) == wanted
    assert elements(list(dataset.cache())) == wanted
    assert elements(dataset.shuffle(4, seed=1)) != [[3.0] * 2] * 4


# ------------------------------------------------------------------ iterating


def test_an_iterator_ends_for_ever():
    two = Dataset.range(2)
    for dataset in (two, two.map(lambda x: x), two.prefetch(1)):
        iterator = iter(dataset)
        assert iter(iterator) is iterator and elements(iterator) == [0, 1]
        for _ in range(3):
            assert next(iterator, None) is None
        with pytest.raises(rx.errors.OutOfRangeError, match="no more elements: all 2"):
            iterator.get_next()
        assert not iterator.get_next_as_optional().has_value()


def test_optionals():
    iterator = iter(Dataset.range(1))
    optional = iterator.get_next_as_optional()
    assert optional.has_value() and int(optional.get_value()) == 0
    assert optional.element_spec == spec((), int)
    empty = iterator.get_next_as_optional()
    assert not empty.has_value() and empty.element_spec == spec((), int)
    with pytest.raises(ValueError, match=r"no value: ask has_value\(\)"):
        empty.get_value()
    assert rx.experimental.Optional.from_value(3).get_value() == 3


def test_optionals_run_nothing_more():
    calls = Calls()

    def generate() -> Iterator[int]:
        calls.append("start")
        yield from range(3)

    iterator = iter(Dataset.from_generator(generate).map(calls.of()))
    optional = iterator.get_next_as_optional()
    assert optional.has_value() and plain(optional.get_value()) == 0
    assert calls == ["start", 0]
    strategy = rx.distribute.OneDeviceStrategy("CPU:0")
    batches = Dataset.from_generator(generate).batch(3)
    distributed = iter(strategy.experimental_distribute_dataset(batches))
    calls.clear()
    assert distributed.get_next_as_optional().has_value() and calls == ["start"]
    assert not distributed.get_next_as_optional().has_value() and calls == ["start"]


def test_iterators_are_independent():
    dataset = Dataset.range(4).map(lambda x: x)
    one, other = iter(dataset), iter(dataset)
    assert [plain(next(each)) for each in (one, one, other, one)] == [0, 1, 0, 2]
    assert elements(dataset.as_numpy_iterator()) == [0, 1, 2, 3]
    assert [(plain(a), plain(b)) for a, b in zip(dataset, dataset)] == [(n, n) for n in range(4)]


def test_lengths():
    assert len(Dataset.range(5)) == 5 and bool(Dataset.range(0))
    with pytest.raises(TypeError, match="forever"):
        len(Dataset.range(5).repeat())
    with pytest.raises(TypeError, match="not known.*sum"):
        len(Dataset.range(5).filter(lambda x: True))
