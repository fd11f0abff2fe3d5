"""Words that tests of data sets share: elements as plain Python, and workers side by side."""

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import replicax as rx
from replicax._src.data.distributed import (
    Exchange,
    InputLayout,
    InputOptions,
    NoOthers,
    distributed_dataset,
)

Dataset: Any = rx.data.Dataset  # untyped, because structures and numbers of all kinds are passed
POLICY = rx.data.experimental.AutoShardPolicy
ON_HOST = InputOptions(experimental_fetch_to_device=False, experimental_per_replica_buffer_size=0)


def plain(value: Any) -> Any:
    """Arrays as lists, NumPy's numbers as Python's, data sets as the lists of their elements."""
    if isinstance(value, rx.data.Dataset):
        return elements(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(plain, value))
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value if isinstance(value, bytes) else np.asarray(value).tolist()


def elements(source: Iterable[Any]) -> list[Any]:
    """All elements, as plain Python."""
    return [plain(element) for element in source]


def with_policy(dataset: Any, policy: Any) -> Any:
    options = rx.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def text_files(folder: Path, *counts: int) -> list[str]:
    """Files with so many lines each; the lines are numbered through."""
    names: list[str] = []
    first = 0
    for index, count in enumerate(counts):
        path = folder / f"{index}.txt"
        path.write_text("".join(f"{first + number}\n" for number in range(count)))
        names.append(str(path))
        first += count
    return names


class Calls(list[Any]):
    """Remembers what a function was called with: `dataset.map(calls.of(fn))`."""

    def of(self, fn: Callable[..., Any] = lambda x: x) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.append(plain(args[0] if len(args) == 1 else args))
            return fn(*args)

        return counted


def reading_threads() -> list[str]:
    """The names of the threads that read ahead."""
    return [each.name for each in threading.enumerate() if each.name.startswith("rx.")]


# ------------------------------------------------------------------ replicas and workers


def shares(value: Any) -> list[Any]:
    """What each replica has of one leaf, as plain Python."""
    parts = value.values if isinstance(value, rx.distribute.DistributedValues) else (value,)
    return [plain(part) for part in parts]


def on_host(
    dataset: Any,
    replicas: int,
    workers: int = 1,
    worker: int = 0,
    meet: Callable[[], Exchange] = NoOthers,
    options: InputOptions = ON_HOST,
) -> Any:
    """The distributed data set of one worker that has `replicas` of its own."""
    layout = InputLayout(tuple(jax.devices("cpu")[:replicas]), workers, worker, meet)
    return distributed_dataset(dataset, layout, options)


class Meeting:
    """Where workers, in threads here, exchange words."""

    def __init__(self, workers: int):
        self._barrier = threading.Barrier(workers)
        self._words: list[Any] = [None] * workers

    def exchange(self, worker: int, word: Any) -> list[Any]:
        self._words[worker] = word
        self._barrier.wait(200)
        words = list(self._words)
        self._barrier.wait(200)
        return words


class Words(NoOthers):
    """An exchange that a function makes."""

    def __init__(self, exchange: Callable[[Any], list[Any]]):
        self._exchange = exchange

    def __call__(self, word: Any) -> list[Any]:
        return self._exchange(word)


def all_workers(
    make: Callable[[], Any],
    replicas: int,
    workers: int,
    states: Sequence[Any] | None = None,
    steps: int | None = None,
) -> tuple[list[list[list[Any]]], list[Any]]:
    """What every replica gets, and the states at the end: `found[worker][step][replica]`.

    Args:
      make: makes the data set. It is called for each worker, as in a program of many processes.
      replicas: of each worker.
      workers: how many.
      states: where the workers start; at the beginning by default.
      steps: how many to make; all by default.
    """
    meeting = Meeting(workers)
    found: list[list[Any]] = [[] for _ in range(workers)]
    after: list[Any] = [None] * workers
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            words = Words(functools.partial(meeting.exchange, worker))
            iterator = iter(on_host(make(), replicas, workers, worker, lambda: words))
            if states is not None:
                iterator.set_state(states[worker])
            while steps is None or len(found[worker]) < steps:
                value = next(iterator, None)
                if value is None:
                    break
                found[worker].append(shares(value))
            after[worker] = iterator.get_state()
            iterator.close()
        except BaseException as error:
            failures.append(error)
            meeting._barrier.abort()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise next(
            (e for e in failures if not isinstance(e, threading.BrokenBarrierError)), failures[0]
        )
    return found, after


def flat(found: Any) -> list[Any]:
    """All rows in nested lists."""
    return [row for part in found for row in flat(part)] if isinstance(found, list) else [found]
