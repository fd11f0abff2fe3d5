"""Reading ahead on the host: how far, in which thread, and that nothing is left behind."""

import gc
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import replicax as rx
from tests.pipelines import Calls, Dataset, elements, plain, reading_threads


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_elements_are_read_ahead_and_not_further():
    for size in (1, 2, 4):
        calls = Calls()
        iterator = iter(Dataset.range(100).map(calls.of()).prefetch(size))
        next(iterator)
        assert wait_for(lambda: len(calls) >= size)  # noqa: B023
        time.sleep(0.05)
        assert size <= len(calls) <= size + 1 + 1
        iterator.close()


def test_no_size_and_zero():
    calls = Calls()
    assert elements(Dataset.range(3).map(calls.of()).prefetch(0)) == [0, 1, 2]
    for size in (rx.data.AUTOTUNE, None):
        assert elements(Dataset.range(3).prefetch(size)) == [0, 1, 2]


def test_no_thread_without_a_prefetch():
    iterator = iter(Dataset.range(9).map(lambda x: x).batch(2))
    next(iterator)
    assert reading_threads() == []
    in_the_middle = iter(Dataset.range(9).prefetch(2).map(lambda x: x))
    next(in_the_middle)
    assert plain(next(in_the_middle)) == 1
    in_the_middle.close()


def test_functions_run_in_the_thread():
    names: list[str] = []

    def fn(x: Any) -> Any:
        names.append(threading.current_thread().name)
        return x

    assert elements(Dataset.range(3).map(fn).prefetch(1)) == [0, 1, 2]
    assert all(name.startswith("rx.") for name in names)


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def test_no_thread_is_left_at_the_end():
    assert elements(Dataset.range(3).prefetch(2)) == [0, 1, 2]
    assert wait_for(lambda: not reading_threads())


def test_no_thread_is_left_after_a_break():
    for _ in Dataset.from_generator(endless).prefetch(3):
        break
    gc.collect()
    assert wait_for(lambda: not reading_threads())


def test_no_thread_is_left_after_an_exception_in_the_loop():
    with pytest.raises(KeyError):
        for _ in Dataset.from_generator(endless).prefetch(3):
            raise KeyError
    gc.collect()
    assert wait_for(lambda: not reading_threads())


def test_no_thread_is_left_after_close_and_del():
    iterator = iter(Dataset.from_generator(endless).prefetch(3))
    next(iterator)
    assert len(reading_threads()) == 1
    iterator.close()
    assert reading_threads() == []
    iterator.close()
    other = iter(Dataset.from_generator(endless).prefetch(3))
    next(other)
    del other
    gc.collect()
    assert wait_for(lambda: not reading_threads())


def test_no_thread_is_left_in_a_cycle():
    holder: list[Any] = [iter(Dataset.from_generator(endless).prefetch(3))]
    holder.append(holder)
    next(holder[0])
    del holder
    gc.collect()
    assert wait_for(lambda: not reading_threads())


def test_the_users_generator_is_closed():
    closed: list[int] = []

    def generate() -> Iterator[int]:
        try:
            yield from endless()
        finally:
            closed.append(1)

    for dataset in (Dataset.from_generator(generate), Dataset.from_generator(generate).prefetch(2)):
        closed.clear()
        iterator = iter(dataset.batch(2).map(lambda x: x))
        next(iterator)
        iterator.close()
        assert wait_for(lambda: closed == [1])
        closed.clear()
        for _ in dataset:
            break
        gc.collect()
        assert wait_for(lambda: closed == [1])


def test_an_iterator_that_was_closed_can_be_used_again():
    iterator = iter(Dataset.range(6).prefetch(2))
    assert [plain(next(iterator)) for _ in range(2)] == [0, 1]
    iterator.close()
    assert [plain(next(iterator)), plain(next(iterator))] == [2, 3]
    iterator.close()


class Odd(BaseException):
    """Not an Exception: like KeyboardInterrupt and SystemExit."""


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit, Odd, MemoryError])
@pytest.mark.parametrize("ahead", [0, 2])
def test_errors_arrive_at_next_with_the_users_frame(error: Any, ahead: int):
    def fail_at_two(x: Any) -> Any:
        if x == 2:
            raise error("two")
        return x

    iterator = iter(Dataset.range(5).map(fail_at_two).prefetch(ahead))
    assert [plain(next(iterator)) for _ in range(2)] == [0, 1]
    with pytest.raises(error) as caught:
        next(iterator)
    assert any(frame.name == "fail_at_two" for frame in traceback.extract_tb(caught.tb))
    if issubclass(error, Exception):
        assert any("fail_at_two" in note and "map()" in note for note in caught.value.__notes__)
    iterator.close()
    assert wait_for(lambda: not reading_threads())


@pytest.mark.parametrize("ahead", [0, 2])
def test_errors_of_generators_name_the_item(ahead: int):
    def generate() -> Iterator[int]:
        yield 0
        raise OSError("the disk")

    iterator = iter(Dataset.from_generator(generate).prefetch(ahead))
    next(iterator)
    with pytest.raises(OSError, match="the disk") as caught:
        next(iterator)
    assert any("item 1" in note and "generate" in note for note in caught.value.__notes__)
    assert any(frame.name == "generate" for frame in traceback.extract_tb(caught.tb))
    assert next(iterator, None) is None  # a generator that has raised is at its end


def test_a_slow_function_does_not_keep_close_waiting_for_ever():
    release = threading.Event()

    def fn(x: Any) -> Any:
        if x == 1:
            release.wait(20)
        return x

    iterator = iter(Dataset.range(3).map(fn).prefetch(1))
    next(iterator)
    threading.Timer(0.2, release.set).start()
    iterator.close()
    assert wait_for(lambda: not reading_threads())


@pytest.mark.parametrize("ahead", [0, 2])
def test_several_threads_may_read_from_one_iterator(ahead: int):
    dataset = Dataset.from_generator(lambda: iter(range(400))).map(lambda x: x).prefetch(ahead)
    iterator = iter(dataset)
    found: list[int] = []
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for element in iterator:
                found.append(int(element))
                time.sleep(0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == [] and sorted(found) == list(range(400))
    assert iterator.get_state()["position"] == 400
