"""Distributed data sets on one worker: what each replica gets in each step, and how it ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._expected import raises
from .._layout import LAYOUTS
from .._library import Library
from .._observation import Observation
from .._pipelines import (
    HOST_ONLY,
    distributed_rows,
    element,
    folder,
    narrow,
    numbers,
    rows,
    with_policy,
    write_records,
    write_text,
)
from .._registry import ours, scenario

ONE_REPLICA = ("default", "one_device", "mirrored1")
SEVERAL = ("mirrored2", "mirrored3", "mirrored4", "mirrored8")
POLICIES = ("AUTO", "DATA", "FILE", "OFF", "HINT")

# Rows, batch size, drop_remainder.
SIZES = (
    *((8, 4, False), (10, 4, False), (10, 10, False), (7, 10, False), (23, 10, False)),
    *((17, 8, False), (13, 9, False), (5, 2, False), (3, 1, False), (1, 8, False)),
    *((0, 4, False), (12, 5, True), (23, 10, True), (16, 8, True), (7, 2, True), (3, 4, True)),
)


def _of_numbers(lib: Library, source: str, count: int, path: Path) -> Any:
    """The numbers from 0 on, from one of the sources; files of unequal lengths."""
    sizes = (count // 3, count - count // 3)
    match source:
        case "range":
            return lib.data.Dataset.range(count)
        case "slices":
            return lib.data.Dataset.from_tensor_slices(np.arange(count, dtype="int32"))
        case "text":
            return lib.data.TextLineDataset(write_text(path, numbers(*sizes)))
        case "records":
            return lib.data.TFRecordDataset(write_records(lib, path, numbers(*sizes)))
    raise ValueError(source)


def _steps(lib: Library, strategy: Any, policy: str, source: str) -> Observation:
    observed = {}
    for count, size, drop in SIZES:
        with folder() as path:
            batches = _of_numbers(lib, source, count, path).batch(size, drop_remainder=drop)
            dataset = with_policy(lib, batches, policy)
            label = f"{count} by {size}{' dropping' if drop else ''}"
            observed[label] = distributed_rows(lib, strategy, dataset)
    return observed


@scenario(
    *SEVERAL, policy=POLICIES, source=("range", "slices", "text", "records"), eager_only=HOST_ONLY
)
def steps(lib: Library, strategy: Any, policy: str, source: str) -> Any:
    return _steps(lib, strategy, policy, source)


@scenario(*ONE_REPLICA, policy=("AUTO", "OFF"), source=("range", "text"), eager_only=HOST_ONLY)
def steps_of_one_replica(lib: Library, strategy: Any, policy: str, source: str) -> Any:
    return _steps(lib, strategy, policy, source)


def _cut_anew(count: int, size: int, drop: bool) -> Observation:
    """The numbers in shares for two replicas, as even as they can be, over the ends of batches."""
    numbers = iter(range(count - count % size if drop else count))
    shares = (size - size // 2, size // 2)
    cut = ([list(itertools.islice(numbers, share)) for share in shares] for _ in itertools.count())
    return list(itertools.takewhile(any, cut))


NO_ROW_IS_LOST = "the last rows are not lost, even if they are too few for all replicas"
CUT_ANEW = {
    f"{n} by {size}{' dropping' * drop}": _cut_anew(n, size, drop) for n, size, drop in SIZES
}


@scenario("central2", policy=("AUTO", "OFF"), source=("range", "text"), eager_only=HOST_ONLY)
@ours(NO_ROW_IS_LOST, CUT_ANEW, policy="AUTO", source="text")
@ours(NO_ROW_IS_LOST, CUT_ANEW, policy="OFF")
def steps_with_central_storage(lib: Library, strategy: Any, policy: str, source: str) -> Any:
    return _steps(lib, strategy, policy, source)


Make = Callable[[Library], Any]


def _range(lib: Library, *arguments: int) -> Any:
    return lib.data.Dataset.range(*arguments)


def _of_sizes(lib: Library, *sizes: int) -> Any:
    """Batches of the given sizes, from a generator: no operation tells of their size."""

    def generate() -> Iterator[Any]:
        start = 0
        for size in sizes:
            yield np.arange(start, start + size, dtype="int32")
            start += size

    return lib.data.Dataset.from_generator(
        generate, output_signature=lib.TensorSpec([None], "int32")
    )


PIPELINES: dict[str, Make] = {
    "map": lambda lib: _range(lib, 10).batch(6).map(lambda x: x + 1),
    "map to fewer rows": lambda lib: _range(lib, 10).batch(6).map(lambda x: x[:5]),
    "map before": lambda lib: _range(lib, 10).map(lambda x: x + 1).batch(6),
    "filter": lambda lib: _range(lib, 22).batch(6).filter(lambda x: x[0] != 6),
    "filter before": lambda lib: _range(lib, 15).filter(lambda x: x % 3 != 0).batch(6),
    "take": lambda lib: _range(lib, 30).batch(6).take(3),
    "skip": lambda lib: _range(lib, 16).batch(6).skip(1),
    "repeat": lambda lib: _range(lib, 7).batch(10).repeat(2),
    "repeat for ever": lambda lib: _range(lib, 7).batch(5).repeat(),
    "repeat before": lambda lib: _range(lib, 7).repeat(2).batch(5),
    "repeat for ever before": lambda lib: _range(lib, 7).repeat().batch(5),
    "repeat for ever before, dropping": lambda lib: _range(lib, 7).repeat().batch(6, True),
    "repeat, dropping": lambda lib: _range(lib, 14).batch(6, drop_remainder=True).repeat(2),
    "prefetch": lambda lib: _range(lib, 10).batch(6).prefetch(2),
    "cache": lambda lib: _range(lib, 10).batch(6).cache(),
    "shard": lambda lib: _range(lib, 23).batch(5).shard(2, 1),
    "shard before": lambda lib: _range(lib, 23).shard(2, 1).batch(5),
    "concatenate": lambda lib: _range(lib, 6).batch(5).concatenate(_range(lib, 20, 27).batch(5)),
    "concatenate another size": lambda lib: (
        _range(lib, 6).batch(5).concatenate(_range(lib, 20, 27).batch(3))
    ),
    "concatenate before": lambda lib: _range(lib, 6).concatenate(_range(lib, 20, 27)).batch(5),
    "batch of batches": lambda lib: _range(lib, 20).batch(2).batch(6),
    "unbatch and batch": lambda lib: _range(lib, 10).batch(3).unbatch().batch(6),
    "unbatch": lambda lib: _range(lib, 20).batch(2).batch(6).unbatch(),
    "rebatch": lambda lib: _range(lib, 16).batch(4).rebatch(6),
    "rebatch to a list": lambda lib: _range(lib, 17).batch(4).rebatch([6, 4]),
    "padded_batch": lambda lib: _range(lib, 10).padded_batch(6),
    "window": lambda lib: _range(lib, 10).window(6).flat_map(lambda window: window.batch(6)),
    "flat_map": lambda lib: _range(lib, 3).flat_map(
        lambda x: lib.data.Dataset.range(x * 10, x * 10 + 10).batch(6)
    ),
    "interleave": lambda lib: _range(lib, 3).interleave(
        lambda x: lib.data.Dataset.range(x * 10, x * 10 + 10).batch(6), cycle_length=2
    ),
    "zip": lambda lib: lib.data.Dataset.zip(
        (_range(lib, 10).batch(6), _range(lib, 10).batch(6))
    ).map(lambda a, b: a),
    "zip of other sizes": lambda lib: lib.data.Dataset.zip(
        (_range(lib, 10).batch(6), _range(lib, 10).batch(5))
    ).map(lambda a, b: a),
    "enumerate": lambda lib: _range(lib, 10).enumerate().batch(6).map(lambda i, x: i),
    "batches of a generator": lambda lib: _of_sizes(lib, 9, 5, 6, 7, 2),
    "empty batches of a generator": lambda lib: _of_sizes(lib, 3, 0, 2),
    "batch of a generator": lambda lib: lib.data.Dataset.from_generator(
        lambda: iter(range(10)), output_signature=lib.TensorSpec([], "int32")
    ).batch(6),
    "rows": lambda lib: lib.data.Dataset.from_tensor_slices(
        np.arange(20, dtype="int32").reshape(10, 2)
    ).batch(6),
    "one batch": lambda lib: lib.data.Dataset.from_tensors(np.arange(7, dtype="int32")),
    "options before": lambda lib: with_policy(lib, _range(lib, 10), "OFF").batch(6),
}


@scenario(
    *("one_device", "mirrored2", "mirrored4"),
    policy=("AUTO", "DATA", "OFF"),
    pipeline=tuple(PIPELINES),
    eager_only=HOST_ONLY,
)
@ours(
    "the user's own rebatch stays",
    lambda pipeline, **_: [
        [list(range(start, stop))]
        for start, stop in itertools.pairwise(
            (0, 6, 12, 16) if pipeline == "rebatch" else (0, 6, 10, 16, 17)
        )
    ],
    strategy="one_device",
    policy=("AUTO", "DATA"),
    pipeline=("rebatch", "rebatch to a list"),
)
def pipelines(lib: Library, strategy: Any, policy: str, pipeline: str) -> Any:
    dataset = PIPELINES[pipeline](lib)
    if policy != "AUTO":
        dataset = with_policy(lib, dataset, policy)
    return distributed_rows(lib, strategy, dataset, 6)


def _zip(lib: Library, *datasets: Any) -> Any:
    return lib.data.Dataset.zip(datasets)


PAIRS: dict[str, Make] = {
    "zip": lambda lib: _zip(lib, _range(lib, 10).batch(6), _range(lib, 10).batch(6)),
    "zip before": lambda lib: _zip(lib, _range(lib, 10), _range(lib, 10)).batch(6),
    "zip of other lengths": lambda lib: _zip(
        lib, _range(lib, 10).batch(6), _range(lib, 6).batch(6)
    ),
    "zip and take": lambda lib: _zip(lib, _range(lib, 10).batch(6), _range(lib, 10).batch(6)).take(
        1
    ),
    "zip with repeat": lambda lib: _zip(
        lib, _range(lib, 16).batch(6), _range(lib, 16).batch(6).repeat()
    ),
    "zip of other sizes": lambda lib: _zip(lib, _range(lib, 12).batch(6), _range(lib, 12).batch(5)),
    "enumerate before": lambda lib: _range(lib, 10).enumerate().batch(6),
    "static": lambda lib: _zip(lib, _range(lib, 12).batch(6, True), _range(lib, 12).batch(6, True)),
}


@scenario(
    "mirrored2", "mirrored4", policy=("DATA", "OFF"), pipeline=tuple(PAIRS), eager_only=HOST_ONLY
)
def pipelines_of_pairs(lib: Library, strategy: Any, policy: str, pipeline: str) -> Any:
    dataset = with_policy(lib, PAIRS[pipeline](lib), policy)

    def act() -> Any:
        steps = list(strategy.experimental_distribute_dataset(dataset))
        return [rows(lib, strategy, [step[part] for step in steps]) for part in (0, 1)]

    return lib.outcome(act)


SPECS: dict[str, Make] = {
    **{name: PIPELINES[name] for name in ("map", "repeat for ever", "rows", "batch of batches")},
    "batch": lambda lib: _range(lib, 16).batch(8),
    "dropping, divides": lambda lib: _range(lib, 16).batch(24, drop_remainder=True),
    "dropping, does not divide": lambda lib: _range(lib, 16).batch(7, drop_remainder=True),
    "infinite": lambda lib: _range(lib, 16).repeat().batch(24),
    "infinite, dropping": lambda lib: _range(lib, 16).repeat().batch(24, drop_remainder=True),
    "batches of a generator": lambda lib: _of_sizes(lib, 4),
    "one batch": lambda lib: lib.data.Dataset.from_tensors(np.arange(24, dtype="int32")),
    "pairs": lambda lib: lib.data.Dataset.zip((_range(lib, 8), _range(lib, 8))).batch(24, True),
    "a dict": lambda lib: lib.data.Dataset.from_tensor_slices(
        {"a": np.zeros((6, 2), "float32"), "b": ["x"] * 6}
    ).batch(3),
}


@scenario("default", "one_device", "mirrored1", "mirrored2", "mirrored3", eager_only=HOST_ONLY)
def element_specs(lib: Library, strategy: Any) -> Any:
    return {
        name: narrow(lib.spec(strategy.experimental_distribute_dataset(make(lib)).element_spec))
        for name, make in SPECS.items()
    }


FIVE = np.arange(5, dtype="int32")
STRUCTURES: dict[str, Make] = {
    "numbers": lambda lib: _range(lib, 5),
    "floats": lambda lib: lib.data.Dataset.from_tensor_slices(np.arange(5, dtype="float32")),
    "small numbers": lambda lib: lib.data.Dataset.from_tensor_slices(np.arange(5, dtype="uint8")),
    "truths": lambda lib: lib.data.Dataset.from_tensor_slices([True, False, True, False, True]),
    "rows": lambda lib: lib.data.Dataset.from_tensor_slices(np.zeros((5, 2), "float32")),
    "a tuple": lambda lib: lib.data.Dataset.from_tensor_slices((FIVE, np.ones((5, 2), "float32"))),
    "a tuple of one": lambda lib: lib.data.Dataset.from_tensor_slices((FIVE,)),
    "a dict": lambda lib: lib.data.Dataset.from_tensor_slices({"b": FIVE, "a": [1.0] * 5}),
    "a nest": lambda lib: lib.data.Dataset.from_tensor_slices(
        ({"a": FIVE, "b": (FIVE * 2, FIVE > 2)}, FIVE)
    ),
}


@scenario(
    *("one_device", "mirrored1", "mirrored2", "mirrored4"),
    structure=tuple(STRUCTURES),
    eager_only=HOST_ONLY,
)
def structures(lib: Library, strategy: Any, structure: str) -> Any:
    dataset = STRUCTURES[structure](lib).batch(5)
    return list(strategy.experimental_distribute_dataset(dataset))


@scenario("default", "one_device", "mirrored2", "mirrored4", eager_only=HOST_ONLY)
def strings(lib: Library, strategy: Any) -> Any:
    dataset = lib.data.Dataset.from_tensor_slices(["a", "bc", "", "d", "e"]).batch(3)
    return [
        [element(lib, item) for item in strategy.experimental_local_results(step)]
        for step in strategy.experimental_distribute_dataset(dataset)
    ]


# Iterating.


@scenario("default", "one_device", "mirrored2", "mirrored4", eager_only=HOST_ONLY)
def ends(lib: Library, strategy: Any) -> Any:
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
        "no value": lib.outcome(optionals[2].get_value),
        "itself": iter(by_next) is by_next,
        "spec": narrow(lib.spec(by_next.element_spec)),
    }


@scenario("one_device", "mirrored2", eager_only=HOST_ONLY)
def ends_of_nothing(lib: Library, strategy: Any) -> Any:
    def iterator() -> Any:
        return iter(strategy.experimental_distribute_dataset(_range(lib, 0).batch(4)))

    return {
        "next": lib.outcome(lambda: next(iterator())),
        "get_next": lib.outcome(lambda: iterator().get_next()),
        "has_value": bool(iterator().get_next_as_optional().has_value()),
    }


@scenario("one_device", "mirrored2", "mirrored3", eager_only=HOST_ONLY)
def optionals_of_infinite_data(lib: Library, strategy: Any) -> Any:
    dataset = _range(lib, 3).repeat().batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    values = [iterator.get_next_as_optional() for _ in range(3)]
    return {
        "has_value": [bool(optional.has_value()) for optional in values],
        "get_value": rows(lib, strategy, [optional.get_value() for optional in values]),
    }


@scenario("default", "one_device", "mirrored2", *LAYOUTS, eager_only=HOST_ONLY)
def iterated_twice(lib: Library, strategy: Any) -> Any:
    distributed = strategy.experimental_distribute_dataset(_range(lib, 7).batch(4))
    first, second = iter(distributed), iter(distributed)
    return {
        "in turn": rows(lib, strategy, [next(first), next(second), next(first)]),
        "afterwards": rows(lib, strategy, distributed),
        "again": rows(lib, strategy, distributed),
    }


@scenario("one_device", "mirrored2", reshuffle=(True, False), eager_only=HOST_ONLY)
def shuffled(lib: Library, strategy: Any, reshuffle: bool) -> Any:
    dataset = _range(lib, 40).shuffle(40, seed=1, reshuffle_each_iteration=reshuffle).batch(8)
    distributed = strategy.experimental_distribute_dataset(dataset)
    epochs = [rows(lib, strategy, distributed) for _ in range(2)]
    flat = [[row for step in epoch for share in step for row in share] for epoch in epochs]
    return {
        "every row once": [sorted(epoch) == list(range(40)) for epoch in flat],
        "same in both": flat[0] == flat[1],
        "in order": flat[0] == list(range(40)),
        "sizes": [[len(share) for share in step] for step in epochs[0]],
    }


@scenario("default", "one_device", "mirrored2", "mirrored4", eager_only=HOST_ONLY)
def cardinalities(lib: Library, strategy: Any) -> Any:
    def cardinality(dataset: Any) -> Any:
        found: Any = strategy.experimental_distribute_dataset(dataset).cardinality
        count: Any = found() if callable(found) else found
        return int(count)

    return {
        "batches": cardinality(_range(lib, 10).batch(4)),
        "dropping": cardinality(_range(lib, 10).batch(4, drop_remainder=True)),
        "infinite": cardinality(_range(lib, 10).repeat().batch(4)),
        "unknown": cardinality(_range(lib, 10).filter(lambda x: x > 0).batch(4)),
        "nothing": cardinality(_range(lib, 0).batch(4)),
    }


@scenario("mirrored2")
def in_replica_context(lib: Library, strategy: Any) -> Any:
    iterator = iter(strategy.experimental_distribute_dataset(_range(lib, 4).batch(4)))
    return lib.refuses(lambda: strategy.run(lambda: next(iterator)))


UNBATCHED: dict[str, Make] = {
    "scalars": lambda lib: _range(lib, 8),
    "pairs": lambda lib: lib.data.Dataset.zip((_range(lib, 8), _range(lib, 8))),
    "one scalar among batches": lambda lib: lib.data.Dataset.zip(
        (_range(lib, 8).batch(4), _range(lib, 8))
    ),
    "strings": lambda lib: lib.data.Dataset.from_tensor_slices(["a", "b"]),
    "rows": lambda lib: lib.data.Dataset.from_tensor_slices(np.zeros((4, 6), "float32")),
}


@scenario("mirrored2", "mirrored3", case=tuple(UNBATCHED), eager_only=HOST_ONLY)
@ours("data that is not batched cannot be split", raises("ValueError"))
def unbatched(lib: Library, strategy: Any, case: str) -> Any:
    return lib.outcome(lambda: list(strategy.experimental_distribute_dataset(UNBATCHED[case](lib))))


@scenario("default", "one_device", "mirrored1", eager_only=HOST_ONLY)
@ours("what several replicas refuse, one refuses", raises("ValueError"))
def unbatched_on_one_replica(lib: Library, strategy: Any) -> Any:
    return distributed_rows(lib, strategy, _range(lib, 3))


@scenario("one_device", "mirrored2", case=("a list", "an array", "None"), eager_only=HOST_ONLY)
def no_data_set(lib: Library, strategy: Any, case: str) -> Any:
    value = {"a list": [1, 2], "an array": np.arange(4), "None": None}[case]
    return lib.refuses(lambda: list(strategy.experimental_distribute_dataset(value)))


@scenario("mirrored2", "one_device", eager_only=HOST_ONLY)
def distributed_twice(lib: Library, strategy: Any) -> Any:
    distributed = strategy.experimental_distribute_dataset(_range(lib, 8).batch(4))
    return lib.refuses(lambda: list(strategy.experimental_distribute_dataset(distributed)))


@scenario("mirrored2", eager_only=HOST_ONLY)
def a_failing_map(lib: Library, strategy: Any) -> Any:
    def fail(x: Any) -> Any:
        raise LookupError("on purpose")

    return lib.refuses(
        lambda: list(strategy.experimental_distribute_dataset(_range(lib, 8).batch(4).map(fail)))
    )
