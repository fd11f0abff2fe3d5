"""Distributed iterators read ahead in a thread: how far, its errors, and that it ends."""

import gc
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from tests.pipelines import Calls, Dataset, flat, reading_threads, shares
from tests.replicas import mirrored
from tests.scripts import run_python

STRATEGY = mirrored(2)
PATIENCE = 60.0


def buffer_of(size: int) -> Any:
    return rx.distribute.InputOptions(experimental_per_replica_buffer_size=size)


def gone() -> bool:
    gc.collect()
    end = time.monotonic() + PATIENCE
    while reading_threads() and time.monotonic() < end:
        time.sleep(0.005)
    return not reading_threads()


def endless() -> Iterator[Any]:
    number = 0
    while True:
        yield [number, number + 1]
        number += 2


def distributed(options: Any = None) -> Any:
    return STRATEGY.experimental_distribute_dataset(Dataset.from_generator(endless), options)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_so_many_batches_wait_and_no_more(size: int):
    calls = Calls()
    rows = Dataset.range(200).batch(2).map(calls.of())
    iterator = iter(STRATEGY.experimental_distribute_dataset(rows, buffer_of(size)))
    calls.clear()
    next(iterator)
    end = time.monotonic() + PATIENCE
    while len(calls) < size + 1 and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(0.05)
    assert size + 1 <= len(calls) <= size + 3
    iterator.close()


def test_nothing_is_read_ahead_if_asked():
    calls = Calls()
    rows = Dataset.range(200).batch(2).map(calls.of())
    iterator = iter(STRATEGY.experimental_distribute_dataset(rows, buffer_of(0)))
    calls.clear()
    next(iterator)
    assert reading_threads() == [] and len(calls) == 1
    assert flat(shares(next(iterator))) == [2, 3] and len(calls) == 2


def test_nothing_starts_before_the_first_next():
    calls = Calls()
    rows = Dataset.range(8).map(calls.of()).batch(2)
    iterator = iter(STRATEGY.experimental_distribute_dataset(rows))
    assert calls == [] and reading_threads() == []
    next(iterator)
    iterator.close()


def test_the_thread_ends_with_the_data():
    values = list(STRATEGY.experimental_distribute_dataset(Dataset.range(8).batch(2)))
    assert len(values) == 4 and gone()


def test_the_thread_ends_after_a_break():
    for _ in distributed():
        break
    assert gone()


def test_the_thread_ends_after_an_exception_in_the_loop():
    with pytest.raises(KeyError):
        for _ in distributed():
            raise KeyError
    assert gone()


def test_the_thread_ends_after_close_and_del():
    iterator = iter(distributed())
    next(iterator)
    iterator.close()
    assert reading_threads() == []
    other = iter(distributed())
    next(other)
    del other
    assert gone()


def test_the_thread_ends_when_the_state_is_set():
    iterator = iter(STRATEGY.experimental_distribute_dataset(Dataset.range(100).batch(2)))
    for _ in range(5):
        next(iterator)
        iterator.set_state(iterator.get_state())
        assert len(reading_threads()) <= 1
    assert flat(shares(next(iterator))) == [10, 11]
    iterator.close()


def test_many_iterators_that_nobody_holds():
    source = distributed()
    for _ in range(20):
        next(iter(source))
    assert gone()


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit, Odd])
def test_errors_of_generators_arrive_at_next(error: Any, size: int):
    def generate() -> Iterator[Any]:
        yield [1, 2]
        yield [3, 4]
        raise error("the disk")

    source = Dataset.from_generator(generate)
    iterator = iter(STRATEGY.experimental_distribute_dataset(source, buffer_of(size)))
    assert [flat(shares(next(iterator))) for _ in range(2)] == [[1, 2], [3, 4]]
    with pytest.raises(error, match="the disk") as caught:
        next(iterator)
    assert any(frame.name == "generate" for frame in traceback.extract_tb(caught.tb))
    if issubclass(error, Exception):
        assert any("item 2" in note for note in caught.value.__notes__)
        assert next(iterator, None) is None  # a generator that has raised is at its end
    iterator.close()
    del caught
    assert gone()


def test_an_interrupt_loses_nothing():
    interrupted: list[int] = []

    def generate() -> Iterator[Any]:
        for number in range(4):
            if number == 2 and not interrupted:
                interrupted.append(number)
                raise KeyboardInterrupt
            yield [number, number]

    for size in (0, 1, 3):
        interrupted.clear()
        source = Dataset.from_generator(generate)
        iterator = iter(STRATEGY.experimental_distribute_dataset(source, buffer_of(size)))
        found = [shares(next(iterator)) for _ in range(2)]
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        found += [shares(value) for value in iterator]
        assert found == [[[n], [n]] for n in range(4)]


@pytest.mark.parametrize("size", [0, 1])
def test_errors_of_functions_arrive_at_next(size: int):
    def fail_at_four(x: Any) -> Any:
        if x == 4:
            raise ZeroDivisionError("at four")
        return x

    rows = Dataset.range(8).map(fail_at_four).batch(2)
    iterator = iter(STRATEGY.experimental_distribute_dataset(rows, buffer_of(size)))
    assert [flat(shares(next(iterator))) for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(ZeroDivisionError, match="at four") as caught:
        next(iterator)
    names = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert "fail_at_four" in names
    assert any("fail_at_four" in note and "map()" in note for note in caught.value.__notes__)
    del caught
    iterator.close()
    assert gone()


def test_the_first_batches_come_before_the_error():
    """What was good is not lost, however far was read ahead."""

    def generate() -> Iterator[Any]:
        for number in range(4):
            yield [number, number]
        raise OSError

    for size in (0, 1, 3, 10):
        source = STRATEGY.experimental_distribute_dataset(
            Dataset.from_generator(generate), buffer_of(size)
        )
        iterator = iter(source)
        assert [shares(next(iterator)) for _ in range(4)] == [[[n], [n]] for n in range(4)]
        with pytest.raises(OSError):
            next(iterator)


def test_the_state_is_of_what_was_received():
    for size in (0, 1, 4):
        rows = Dataset.range(40).batch(2)
        iterator = iter(STRATEGY.experimental_distribute_dataset(rows, buffer_of(size)))
        for step in range(3):
            assert iterator.get_state()["position"] == step
            next(iterator)
        iterator.close()
        assert iterator.get_state()["position"] == 3
        assert flat(shares(next(iterator))) == [6, 7]
        iterator.close()


def test_a_step_of_training_does_not_wait():
    """The pipeline computes the next batch while the loop is busy with one."""
    computed = threading.Semaphore(0)

    def fn(x: Any) -> Any:
        computed.release()
        return x

    rows = Dataset.range(20).batch(2).map(fn)
    iterator = iter(STRATEGY.experimental_distribute_dataset(rows, buffer_of(1)))
    while computed.acquire(blocking=False):
        pass  # it was called for the spec
    next(iterator)
    computed.acquire(timeout=PATIENCE)
    for _ in range(9):
        assert computed.acquire(timeout=PATIENCE)  # which is not asked for yet
        next(iterator)
    iterator.close()


def test_a_generator_that_is_slow_to_end_does_not_hang_the_loop():
    release = threading.Event()

    def generate() -> Iterator[Any]:
        yield [1, 2]
        release.wait(PATIENCE)
        yield [3, 4]

    iterator = iter(STRATEGY.experimental_distribute_dataset(Dataset.from_generator(generate)))
    next(iterator)
    threading.Timer(0.2, release.set).start()
    iterator.close()
    assert gone()


def test_programs_end_while_a_thread_reads(tmp_path: Path):
    (tmp_path / "program.py").write_text(
        "import itertools, jax, numpy as np, replicax as rx\n"
        "strategy = rx.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])\n"
        "def batches(): return (np.zeros((64, 64)) for _ in itertools.count())\n"
        "source = rx.data.Dataset.from_generator(batches)\n"
        "iterators = [iter(strategy.experimental_distribute_dataset(source)) for _ in range(3)]\n"
        "for iterator in iterators: next(iterator)\n"
        "print('done')\n"
        "raise SystemExit(0)\n"
    )
    assert "done" in run_python(["-W", "ignore", "program.py"], tmp_path)


def test_ctrl_c_interrupts_a_loop_that_waits_for_data(tmp_path: Path):
    (tmp_path / "program.py").write_text(
        "import os, signal, threading, replicax as rx\n"
        "strategy = rx.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])\n"
        "stop, ended = threading.Event(), []\n"
        "def generate():\n"
        "    yield [1, 2]\n"
        "    ended.append(stop.wait())\n"
        "source = rx.data.Dataset.from_generator(generate)\n"
        "iterator = iter(strategy.experimental_distribute_dataset(source))\n"
        "next(iterator)\n"
        "try:\n"
        "    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    next(iterator)\n"
        "except KeyboardInterrupt: print('interrupted', not ended)\n"
        "stop.set()\n"
        "print(next(iterator, 'the end'))\n"
    )
    said = run_python(["program.py"], tmp_path, warm=True)
    assert "interrupted True" in said and "the end" in said
