"""Distributed data sets of numbers: what each replica of each worker gets, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._layout import LAYOUTS, Layout
from .._observation import Observation
from .._pipelines import distributed_rows, narrow, rows, with_policy
from .._registry import ours, scenario
from .._worker import InJob

HOST = "host pipelines do not run on replicas"

# Rows, batch size, drop_remainder.
SIZES = (
    *((8, 4, False), (10, 4, False), (23, 10, False), (17, 8, False), (13, 9, False)),
    *((5, 2, False), (3, 1, False), (1, 8, False), (0, 4, False)),
    *((23, 10, True), (16, 8, True), (3, 4, True)),
)


def _range(lib: InJob, *arguments: int) -> Any:
    return lib.data.Dataset.range(*arguments)


def _in_turn(layout: Layout, worker: int, **_: Any) -> Observation:
    """Three rows in batches of one, read by every worker: its replicas take turns with all."""
    first = -worker * layout.devices % layout.replicas
    last = max(-w * layout.devices % layout.replicas for w in range(layout.workers))
    turns = {first + row * layout.replicas: [row] for row in range(3)}
    return [
        [turns.get(step * layout.devices + index, []) for index in range(layout.devices)]
        for step in range((last + 2 * layout.replicas) // layout.devices + 1)
    ]


@scenario(*LAYOUTS, eager_only=HOST, policy=("AUTO", "DATA", "OFF", "HINT"), size=SIZES)
@ours("no step without a row", _in_turn, policy=("OFF", "HINT"), size=((3, 1, False),))
def steps(lib: InJob, strategy: Any, policy: str, size: tuple[int, int, bool]) -> Any:
    count, batch, drop = size
    dataset = with_policy(lib, _range(lib, count).batch(batch, drop_remainder=drop), policy)
    return distributed_rows(lib, strategy, dataset)


def _of_sizes(lib: InJob, *sizes: int) -> Any:
    def generate() -> Iterator[Any]:
        start = 0
        for size in sizes:
            yield np.arange(start, start + size, dtype="int32")
            start += size

    return lib.data.Dataset.from_generator(
        generate, output_signature=lib.TensorSpec([None], "int32")
    )


PIPELINES = {
    "map": lambda lib: _range(lib, 10).batch(6).map(lambda x: x + 1),
    "filter before": lambda lib: _range(lib, 15).filter(lambda x: x % 3 != 0).batch(6),
    "take": lambda lib: _range(lib, 30).batch(6).take(3),
    "skip": lambda lib: _range(lib, 16).batch(6).skip(1),
    "repeat": lambda lib: _range(lib, 7).batch(10).repeat(2),
    "repeat for ever": lambda lib: _range(lib, 7).batch(5).repeat(),
    "repeat for ever before": lambda lib: _range(lib, 7).repeat().batch(5),
    "repeat for ever before, dropping": lambda lib: _range(lib, 7).repeat().batch(6, True),
    "cache": lambda lib: _range(lib, 10).batch(6).cache(),
    "shard before": lambda lib: _range(lib, 23).shard(2, 1).batch(5),
    "concatenate": lambda lib: _range(lib, 6).batch(5).concatenate(_range(lib, 20, 27).batch(5)),
    "padded_batch": lambda lib: _range(lib, 10).padded_batch(6),
    "batches of a generator": lambda lib: _of_sizes(lib, 9, 5, 6, 7, 2),
    "rows": lambda lib: lib.data.Dataset.from_tensor_slices(
        np.arange(20, dtype="int32").reshape(10, 2)
    ).batch(6),
}


@scenario(*LAYOUTS, eager_only=HOST, policy=("AUTO", "OFF"), pipeline=tuple(PIPELINES))
def pipelines(lib: InJob, strategy: Any, policy: str, pipeline: str) -> Any:
    dataset = with_policy(lib, PIPELINES[pipeline](lib), policy)
    return distributed_rows(lib, strategy, dataset, 4)


@scenario(*LAYOUTS, eager_only=HOST)
def shard_hints(lib: InJob, strategy: Any) -> Any:
    hint = lib.data.experimental.SHARD_HINT
    dataset = with_policy(lib, _range(lib, 16).shard(hint, hint).batch(4), "HINT")
    return distributed_rows(lib, strategy, dataset)


@scenario(*LAYOUTS, eager_only=HOST)
def files_are_asked_for(lib: InJob, strategy: Any) -> Any:
    """FILE over numbers is refused on every worker."""
    dataset = with_policy(lib, _range(lib, 8).batch(4), "FILE")
    return lib.refuses(lambda: list(strategy.experimental_distribute_dataset(dataset)))


@scenario(*LAYOUTS, eager_only=HOST)
def structures(lib: InJob, strategy: Any) -> Any:
    data = {"a": np.arange(5, dtype="int32"), "b": (np.zeros((5, 2), "float32"),)}
    dataset = lib.data.Dataset.from_tensor_slices(data).batch(4)
    return [
        {"a": lib.local(step["a"]), "b": lib.local(step["b"][0])}
        for step in strategy.experimental_distribute_dataset(dataset)
    ]


@scenario(*LAYOUTS, eager_only=HOST)
def kind_of_elements(lib: InJob, strategy: Any) -> Any:
    """One replica here or several: whether elements are wrapped."""
    return list(strategy.experimental_distribute_dataset(_range(lib, 5).batch(4)))


@scenario(*LAYOUTS, eager_only=HOST)
def element_specs(lib: InJob, strategy: Any) -> Any:
    made = {
        "batch": _range(lib, 16).batch(8),
        "dropping": _range(lib, 16).batch(24, drop_remainder=True),
        "infinite": _range(lib, 16).repeat().batch(24),
        "infinite, dropping": _range(lib, 16).repeat().batch(24, drop_remainder=True),
    }
    return {
        name: narrow(lib.spec(strategy.experimental_distribute_dataset(each).element_spec))
        for name, each in made.items()
    }


@scenario(*LAYOUTS, eager_only=HOST)
def ends(lib: InJob, strategy: Any) -> Any:
    def step(value: Any) -> Any:
        return rows(lib, strategy, [value])[0]

    def iterator() -> Any:
        return iter(strategy.experimental_distribute_dataset(_range(lib, 5).batch(4)))

    by_next, by_get_next, by_optional = iterator(), iterator(), iterator()
    optionals = [by_optional.get_next_as_optional() for _ in range(4)]
    return {
        "next": [lib.outcome(lambda: step(next(by_next))) for _ in range(4)],
        "get_next": [lib.outcome(lambda: step(by_get_next.get_next())) for _ in range(4)],
        "has_value": [bool(optional.has_value()) for optional in optionals],
        "get_value": [step(optional.get_value()) for optional in optionals[:2]],
    }


@scenario(*LAYOUTS)
def sums_of_an_epoch(lib: InJob, strategy: Any) -> Any:
    """Every row once, with a last batch that is uneven or leaves workers empty."""
    seen = {}
    for count in (8, 11, 9):
        dataset = lib.data.Dataset.from_tensor_slices(np.arange(count, dtype="float32")).batch(8)
        steps = []
        for batch in strategy.experimental_distribute_dataset(dataset):
            sums = lib.run(strategy, lambda x: lib.reduce_sum(x), args=(batch,))
            steps.append(strategy.reduce("SUM", sums, axis=None))
        seen[str(count)] = steps
    return seen


@scenario(*LAYOUTS, eager_only="one call, two ways")
def iterator_in_a_function(lib: InJob, strategy: Any) -> Any:
    dataset = lib.data.Dataset.from_tensor_slices(np.arange(11, dtype="float32")).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))

    @lib.function
    def step(batches: Any) -> Any:
        sums = strategy.run(lambda x: lib.reduce_sum(x), args=(next(batches),))
        return strategy.reduce("SUM", sums, axis=None)

    return {
        "steps": [step(iterator) for _ in range(3)],
        "end": lib.refuses(lambda: step(iterator)),
    }


@scenario(*LAYOUTS, eager_only="one call, two ways")
def loop_in_a_function(lib: InJob, strategy: Any) -> Any:
    dataset = lib.data.Dataset.from_tensor_slices(np.arange(11, dtype="float32")).batch(4)
    distributed = strategy.experimental_distribute_dataset(dataset)

    @lib.function
    def epoch(batches: Any) -> Any:
        total = lib.constant(0.0)
        for batch in batches:
            sums = strategy.run(lambda x: lib.reduce_sum(x), args=(batch,))
            total = total + strategy.reduce("SUM", sums, axis=None)
        return total

    return [epoch(distributed), epoch(distributed)]


@scenario(*LAYOUTS, eager_only=HOST)
def shuffled_with_a_seed(lib: InJob, strategy: Any) -> Any:
    """The workers agree on the order: together they see each row once."""
    dataset = _range(lib, 24).shuffle(24, seed=1).batch(8)
    distributed = strategy.experimental_distribute_dataset(dataset)
    seen = []
    for batch in distributed:
        gathered = strategy.gather(batch, axis=0)
        seen += lib.to_numpy(gathered).tolist()
    return {"every row once": sorted(seen) == list(range(24)), "in order": seen == list(range(24))}


@scenario(*LAYOUTS, eager_only=HOST)
def cardinalities(lib: InJob, strategy: Any) -> Any:
    def cardinality(dataset: Any) -> Any:
        found: Any = strategy.experimental_distribute_dataset(dataset).cardinality
        count: Any = found() if callable(found) else found
        return int(count)

    return {
        "batches": cardinality(_range(lib, 10).batch(4)),
        "infinite": cardinality(_range(lib, 10).repeat().batch(4)),
        "nothing": cardinality(_range(lib, 0).batch(4)),
    }


@scenario(*LAYOUTS, eager_only=HOST)
def without_fetching_to_the_devices(lib: InJob, strategy: Any) -> Any:
    options = lib.distribute.InputOptions(experimental_fetch_to_device=False)
    distributed = strategy.experimental_distribute_dataset(_range(lib, 9).batch(4), options)
    return rows(lib, strategy, itertools.islice(iter(distributed), 4))
