"""Items that take less time to make than to hand over are made by who asks for them."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import jax
import pytest

import replicax as rx
from replicax._src.data import _ahead
from replicax._src.data._ahead import ReadAhead
from tests.pipelines import Dataset, flat, reading_threads, shares
from tests.replicas import mirrored

SOME = 30  # so many that the thread has ended
SLOW = 30  # so many slow ones that it has started again


@pytest.fixture(autouse=True)
def everything_is_quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_ahead, "_QUICK", 60.0)


class Source:
    """Numbers, and in which threads they were made."""

    def __init__(self, end: int = 1000, fails_at: int = -1):
        self.end, self.fails_at = end, fails_at
        self.number = self.closed = 0
        self.threads: list[str] = []

    def make(self) -> int:
        number, self.number = self.number, self.number + 1
        self.threads.append(threading.current_thread().name)
        if number == self.end:
            raise StopIteration
        if number == self.fails_at:
            raise KeyError(number)
        return number

    def close(self) -> None:
        self.closed += 1

    def ahead(self) -> ReadAhead:
        return ReadAhead(self.make, 2, self.close, may_rest=True)

    def made_here(self) -> bool:
        return self.threads[-1] == threading.current_thread().name


def test_the_thread_ends_and_items_go_on():
    source = Source()
    ahead = source.ahead()
    assert [ahead.get() for _ in range(SOME)] == list(range(SOME))
    assert source.made_here() and SOME <= source.number < SOME + 8
    assert source.threads[0] == "rx.data.ahead"
    ahead.close()
    assert source.closed == 1


def test_it_starts_again_after_slow_items_but_not_after_one():
    source = Source()
    ahead = source.ahead()
    found = [ahead.get() for _ in range(SOME)]
    made, ahead._work.quick = source.number, 0.0
    while source.number == made:  # up to the first that is slow
        found.append(ahead.get())
    ahead._work.quick = 60.0
    found += [ahead.get() for _ in range(SOME)]
    assert source.made_here()
    ahead._work.quick = 0.0
    found += [ahead.get() for _ in range(SLOW)]
    assert not source.made_here()
    assert found == list(range(len(found)))
    ahead.close()
    assert source.closed == 1


def test_the_thread_stays_if_it_may_not_end():
    source = Source()
    ahead = ReadAhead(source.make, 2, source.close)
    assert [ahead.get() for _ in range(SOME)] == list(range(SOME))
    assert set(source.threads) == {"rx.data.ahead"}
    ahead.close()


def test_an_interrupt_is_not_kept_for_later():
    source = Source()
    ahead = source.ahead()
    for _ in range(SOME):
        ahead.get()
    make, number = source.make, source.number

    def interrupted() -> int:
        if source.number == number + 2:
            source.number += 1
            raise KeyboardInterrupt
        return make()

    ahead._work.make = interrupted
    with pytest.raises(KeyboardInterrupt):
        for _ in range(8):
            ahead.get()
    ahead.close()


def test_the_end_and_an_error_are_as_in_the_thread():
    source = Source(end=SOME + 2, fails_at=SOME)
    ahead = source.ahead()
    assert [ahead.get() for _ in range(SOME)] == list(range(SOME))
    with pytest.raises(KeyError):
        ahead.get()
    assert ahead.get() == SOME + 1
    for _ in range(2):
        with pytest.raises(StopIteration):
            ahead.get()
    assert source.made_here() and source.closed == 1


def test_other_settings_of_jax_do_not_matter():
    source = Source()
    ahead = source.ahead()
    for _ in range(SOME):
        ahead.get()
    with jax.enable_x64(True):
        assert [ahead.get() for _ in range(SOME)] == list(range(SOME, 2 * SOME))
    assert set(source.threads[-SOME + 8 :]) == {"rx.data.ahead"}
    assert not source.made_here()
    ahead.close()


def distributed(dataset: Any) -> Any:
    return mirrored(2).experimental_distribute_dataset(dataset)


def test_batches_of_arrays_in_memory():
    iterator = iter(distributed(Dataset.range(4 * SOME).batch(4).take(SOME)))
    with jax.transfer_guard("disallow"):
        found = [flat(shares(next(iterator))) for _ in range(SOME - 1)]
    assert reading_threads() == []
    state = iterator.get_state()
    found.append(flat(shares(next(iterator))))
    assert [row for batch in found for row in batch] == list(range(4 * SOME))
    with pytest.raises(rx.errors.OutOfRangeError):
        iterator.get_next()
    iterator.set_state(state)
    assert flat(shares(next(iterator))) == list(range(4 * SOME - 4, 4 * SOME))
    iterator.close()


def test_functions_and_generators_of_the_user_keep_their_thread():
    def endless() -> Iterator[int]:
        yield from itertools.count()

    numbers = Dataset.range(1000).map(lambda x: x)
    for dataset in (numbers, Dataset.from_generator(endless), Dataset.range(1000).cache()):
        iterator = iter(distributed(dataset.batch(4)))
        for _ in range(SOME):
            next(iterator)
        assert len(reading_threads()) == 1
        iterator.close()
