"""Data sets of other libraries, for tests: contents, order, sharding, state, errors.

Each test of a library runs against its stand-in (`stand_ins.py`), and against the library itself
where it is installed.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.pipelines import Dataset, all_workers, elements, flat, on_host, shares

from_source = Dataset.from_source


def installed(libraries: dict[str, Any], name: str) -> Any:
    if name not in libraries:
        pytest.skip(f"{name} is not installed")
    return libraries[name]


def steps(dataset: Any, replicas: int = 2) -> list[Any]:
    """What the replicas of one worker get of the first leaf, step for step."""
    with on_host_iterator(dataset, replicas) as iterator:
        return [shares(_first_leaf(value)) for value in iterator]


def _first_leaf(value: Any) -> Any:
    while isinstance(value, tuple | dict):
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return value


class on_host_iterator:
    """An iterator over a distributed data set that is closed in the end."""

    def __init__(self, *args: Any):
        self._iterator = iter(on_host(*args))

    def __enter__(self) -> Any:
        return self._iterator

    def __exit__(self, *error: object) -> None:
        self._iterator.close()


def rest_after(make: Callable[[], Any], received: int) -> tuple[list[Any], list[Any]]:
    """What follows after some elements, and what follows where a new data set continues there."""
    one, other = iter(make()), iter(make())
    for _ in range(received):
        next(one)
    other.set_state(one.get_state())
    return elements(one), elements(other)


def rows_of_workers(make: Callable[[], Any], replicas: int, workers: int) -> list[list[Any]]:
    """All rows that each worker gets, if their elements are single leaves."""
    found, _ = all_workers(make, replicas, workers)
    return [flat(each) for each in found]


def batches(*sizes: int) -> list[np.ndarray]:
    """Batches of these sizes; their rows are numbered through."""
    ends = list(itertools.accumulate(sizes))
    return [np.arange(end - size, end, dtype=np.int32) for size, end in zip(sizes, ends)]
