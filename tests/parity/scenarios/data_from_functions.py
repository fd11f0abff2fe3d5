"""Distributed data sets from functions and NumPy arrays, with options, and in training."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._expected import raises
from .._library import Library
from .._pipelines import (
    HOST_ONLY,
    distributed_rows,
    element,
    narrow,
    rows,
    with_policy,
)
from .._registry import ours, scenario

ONE_REPLICA = ("default", "one_device", "mirrored1")
SEVERAL = ("mirrored2", "mirrored3", "mirrored4", "mirrored8")


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


FIVE = np.arange(5, dtype="int32")


# Data sets from functions.

FUNCTIONS: dict[str, Callable[[Library, Any], Any]] = {
    "even": lambda lib, context: _range(lib, 16).batch(2),
    "leftovers": lambda lib, context: _range(lib, 10).batch(3),
    "static shapes": lambda lib, context: _range(lib, 10).batch(2, drop_remainder=True),
    "static shapes from a function": lambda lib, context: (
        _range(lib, 10).map(lambda x: x * 2).batch(2, drop_remainder=True)
    ),
    "after a function of batches": lambda lib, context: (
        _range(lib, 10).batch(2, drop_remainder=True).map(lambda x: x + 1)
    ),
    "static shapes from many": lambda lib, context: (
        _range(lib, 10)
        .flat_map(lambda x: lib.data.Dataset.from_tensors(x))
        .batch(2, drop_remainder=True)
    ),
    "unbatched": lambda lib, context: (
        _range(lib, 10).batch(3).unbatch().batch(2, drop_remainder=True)
    ),
    "batched again": lambda lib, context: _range(lib, 10).batch(3).rebatch(2, drop_remainder=True),
    "scalars": lambda lib, context: _range(lib, 10),
    "lists": lambda lib, context: _of_sizes(lib, 2, 1, 3, 0, 1),
    "infinite": lambda lib, context: _range(lib, 5).repeat().batch(2),
    "nothing": lambda lib, context: _range(lib, 0).batch(2),
    "fewer than replicas": lambda lib, context: _range(lib, 1).batch(2),
    "sharded": lambda lib, context: (
        _range(lib, 10).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)
    ),
    "per replica": lambda lib, context: _range(lib, 60).batch(
        context.get_per_replica_batch_size(24)
    ),
    "rows": lambda lib, context: lib.data.Dataset.from_tensor_slices(
        np.ones((3, 2), "int32")
    ).batch(2),
    "another policy": lambda lib, context: with_policy(lib, _range(lib, 10).batch(3), "DATA"),
    "a dataset of files": lambda lib, context: lib.data.Dataset.from_tensor_slices(
        ["1", "2", "3"]
    ).batch(2),
}


@scenario(*ONE_REPLICA, *SEVERAL, function=tuple(FUNCTIONS), eager_only=HOST_ONLY)
def from_function(lib: Library, strategy: Any, function: str) -> Any:
    distributed = strategy.distribute_datasets_from_function(
        lambda context: FUNCTIONS[function](lib, context)
    )
    return {
        "steps": rows(lib, strategy, itertools.islice(iter(distributed), 6)),
        "spec": narrow(lib.spec(distributed.element_spec)),
    }


@scenario("default", "one_device", "mirrored1", "mirrored3", eager_only=HOST_ONLY)
def from_function_by_its_old_name(lib: Library, strategy: Any) -> Any:
    distributed = strategy.experimental_distribute_datasets_from_function(
        lambda context: _range(lib, 7).batch(2)
    )
    return rows(lib, strategy, distributed)


@scenario("one_device", "mirrored2", "mirrored3", eager_only=HOST_ONLY)
def from_function_of_structures(lib: Library, strategy: Any) -> Any:
    return list(
        strategy.distribute_datasets_from_function(
            lambda context: lib.data.Dataset.from_tensor_slices(
                {"a": FIVE, "b": (np.ones((5, 2), "float32"),)}
            ).batch(2)
        )
    )


@scenario("mirrored2", "one_device", eager_only=HOST_ONLY)
def from_function_ends(lib: Library, strategy: Any) -> Any:
    distributed = strategy.distribute_datasets_from_function(
        lambda context: _range(lib, 3).batch(2)
    )
    iterator, other = iter(distributed), iter(distributed)
    optionals = [other.get_next_as_optional() for _ in range(4)]
    return {
        "next": [lib.outcome(lambda: rows(lib, strategy, [next(iterator)])) for _ in range(4)],
        "get_next": lib.outcome(iterator.get_next),
        "has_value": [bool(optional.has_value()) for optional in optionals],
    }


@scenario(*ONE_REPLICA, "mirrored2", "mirrored4", eager_only=HOST_ONLY)
def input_contexts(lib: Library, strategy: Any) -> Any:
    seen: list[Any] = []

    def dataset_fn(context: Any) -> Any:
        seen.append(
            {
                "pipelines": context.num_input_pipelines,
                "pipeline": context.input_pipeline_id,
                "replicas": context.num_replicas_in_sync,
            }
        )
        return _range(lib, 8).batch(2)

    distributed = strategy.distribute_datasets_from_function(dataset_fn)
    calls = len(seen)
    list(distributed)
    list(distributed)
    return {"calls": calls, "calls after iterating": len(seen), "contexts": seen}


@scenario(eager_only=HOST_ONLY)
def an_input_context(lib: Library) -> Any:
    default = lib.distribute.InputContext()
    context = lib.distribute.InputContext(
        num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=4
    )
    return {
        "default": [
            default.num_input_pipelines,
            default.input_pipeline_id,
            default.num_replicas_in_sync,
        ],
        "fields": [
            context.num_input_pipelines,
            context.input_pipeline_id,
            context.num_replicas_in_sync,
        ],
        "batch sizes": {
            str(size): lib.outcome(lambda s=size: context.get_per_replica_batch_size(s))
            for size in (8, 4, 0, 10, 3)
        },
        "of one": default.get_per_replica_batch_size(7),
    }


@scenario("mirrored2", case=("nothing", "a list", "no arguments"), eager_only=HOST_ONLY)
def from_function_refused(lib: Library, strategy: Any, case: str) -> Any:
    functions: dict[str, Callable[..., Any]] = {
        "nothing": lambda context: None,
        "a list": lambda context: [1, 2],
        "no arguments": lambda: _range(lib, 8).batch(2),
    }
    return lib.refuses(lambda: list(strategy.distribute_datasets_from_function(functions[case])))


@scenario("mirrored2", eager_only=HOST_ONLY)
def a_failing_function(lib: Library, strategy: Any) -> Any:
    def fail(context: Any) -> Any:
        raise LookupError("on purpose")

    return lib.outcome(lambda: strategy.distribute_datasets_from_function(fail))


# Options.


@scenario(eager_only=HOST_ONLY)
def input_options(lib: Library) -> Any:
    def fields(options: Any) -> Any:
        return {
            "fetch": options.experimental_fetch_to_device,
            "mode": options.experimental_replication_mode.name,
            "place": options.experimental_place_dataset_on_device,
            "buffer": options.experimental_per_replica_buffer_size,
        }

    modes = lib.distribute.InputReplicationMode
    return {
        "default": fields(lib.distribute.InputOptions()),
        "None": fields(lib.distribute.InputOptions(experimental_fetch_to_device=None)),
        "set": fields(
            lib.distribute.InputOptions(
                experimental_fetch_to_device=False,
                experimental_replication_mode=modes.PER_REPLICA,
                experimental_place_dataset_on_device=True,
                experimental_per_replica_buffer_size=3,
            )
        ),
        "modes": {mode.name: mode.value for mode in modes},
        "equal": lib.distribute.InputOptions() == lib.distribute.InputOptions(),
        "unknown": lib.outcome(lambda: lib.distribute.InputOptions(nonsense=1)),
    }


ONE, REPLICA = ("default", "one_device"), "PER_REPLICA"
CONTRADICTION = "options that contradict each other are refused"
EVERYWHERE = "options are checked alike with every strategy"
A_REPLICA = "one device is a replica too"
ONE_PIPELINE = {
    "steps": [[[0, 1]], [[2, 3]], [[4]]],
    "spec": "int32[?]",
    "contexts": [[1, 0, 1]],
}


@scenario(
    *("default", "one_device", "mirrored1", "mirrored2", "mirrored3"),
    mode=("PER_WORKER", "PER_REPLICA"),
    fetch=(True, False),
    place=(True, False),
    how=("dataset", "function"),
    eager_only=HOST_ONLY,
)
@ours(CONTRADICTION, raises("ValueError"), mode="PER_WORKER", place=True, how="dataset")
@ours(EVERYWHERE, raises("NotImplementedError"), strategy="default", mode=REPLICA, how="dataset")
@ours(EVERYWHERE, raises("ValueError"), strategy="default", mode="PER_WORKER", place=True)
@ours(
    EVERYWHERE,
    raises("ValueError"),
    strategy=ONE,
    mode=REPLICA,
    place=True,
    fetch=True,
    how="function",
)
@ours(A_REPLICA, ONE_PIPELINE, strategy="one_device", mode=REPLICA, place=False, how="function")
@ours(A_REPLICA, ONE_PIPELINE, strategy="one_device", mode=REPLICA, fetch=False, how="function")
def with_input_options(
    lib: Library, strategy: Any, mode: str, fetch: bool, place: bool, how: str
) -> Any:
    options = lib.distribute.InputOptions(
        experimental_fetch_to_device=fetch,
        experimental_replication_mode=lib.distribute.InputReplicationMode[mode],
        experimental_place_dataset_on_device=place,
    )
    contexts: list[Any] = []

    def dataset_fn(context: Any) -> Any:
        contexts.append([context.num_input_pipelines, context.input_pipeline_id])
        contexts[-1].append(context.num_replicas_in_sync)
        start = 100 * context.input_pipeline_id
        return lib.data.Dataset.range(start, start + 5 - context.input_pipeline_id).batch(2)

    def act() -> Any:
        if how == "dataset":
            distributed = strategy.experimental_distribute_dataset(_range(lib, 7).batch(4), options)
        else:
            distributed = strategy.distribute_datasets_from_function(dataset_fn, options)
        return {
            "steps": rows(lib, strategy, distributed),
            "spec": narrow(lib.spec(distributed.element_spec)),
            "contexts": contexts,
        }

    return lib.outcome(act)


@scenario("mirrored2", "one_device", buffer=(0, 1, 3), eager_only=HOST_ONLY)
def with_a_buffer(lib: Library, strategy: Any, buffer: int) -> Any:
    options = lib.distribute.InputOptions(experimental_per_replica_buffer_size=buffer)
    return rows(
        lib, strategy, strategy.experimental_distribute_dataset(_range(lib, 9).batch(4), options)
    )


# NumPy.

ARRAYS: dict[str, Any] = {
    "an array": np.arange(6.0, dtype="float32").reshape(3, 2),
    "a tuple": (np.arange(3), np.arange(3.0)),
    "a dict": {"a": np.arange(3), "b": np.ones((3, 2))},
    "a list of arrays": [np.arange(2), np.arange(2) + 5],
}


@scenario("default", "one_device", "mirrored2", case=tuple(ARRAYS), eager_only=HOST_ONLY)
def make_numpy_dataset(lib: Library, strategy: Any, case: str) -> Any:
    def describe() -> Any:
        dataset = lib.make_numpy_dataset(strategy, ARRAYS[case])
        return {
            "spec": lib.spec(dataset.element_spec),
            "elements": [element(lib, item) for item in dataset],
        }

    return lib.outcome(describe)


@scenario("mirrored2", eager_only=HOST_ONLY)
def make_and_distribute_a_numpy_dataset(lib: Library, strategy: Any) -> Any:
    dataset = lib.make_numpy_dataset(strategy, FIVE)
    return distributed_rows(lib, strategy, dataset.batch(2))


# Training with it.


@scenario("default", "one_device", "mirrored2", "mirrored4")
def running(lib: Library, strategy: Any) -> Any:
    dataset = lib.data.Dataset.from_tensor_slices(np.arange(11, dtype="float32")).batch(4)
    results = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        sums = lib.run(strategy, lambda x: lib.reduce_sum(x), args=(batch,))
        squares = lib.run(strategy, lambda x: x * x, args=(batch,))
        results.append(
            {
                "sum": strategy.reduce("SUM", sums, axis=None),
                "mean": strategy.reduce("MEAN", squares, axis=0),
            }
        )
    return results


@scenario("default", "one_device", "mirrored2", "mirrored4")
def running_on_structures(lib: Library, strategy: Any) -> Any:
    dataset = lib.data.Dataset.from_tensor_slices(
        {"x": np.arange(12, dtype="float32").reshape(6, 2), "y": np.arange(6, dtype="int32")}
    ).batch(4)

    def replica_fn(batch: Any) -> Any:
        return {"x": lib.reduce_sum(batch["x"], axis=1), "y": batch["y"] + 1}

    return [
        lib.run(strategy, replica_fn, args=(batch,))
        for batch in strategy.experimental_distribute_dataset(dataset)
    ]


IN_FUNCTION = "the function is compiled already"


@scenario("one_device", "mirrored2", "mirrored4", eager_only=IN_FUNCTION)
def a_data_set_into_a_function(lib: Library, strategy: Any) -> Any:
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


@scenario("one_device", "mirrored2", "mirrored4", eager_only=IN_FUNCTION)
def an_iterator_into_a_function(lib: Library, strategy: Any) -> Any:
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


@scenario("one_device", "mirrored2", "mirrored3", eager_only=IN_FUNCTION)
def a_signature_from_the_spec(lib: Library, strategy: Any) -> Any:
    dataset = lib.data.Dataset.from_tensor_slices(np.arange(11, dtype="float32")).batch(4)
    distributed = strategy.experimental_distribute_dataset(dataset)

    @lib.function(input_signature=[distributed.element_spec])
    def step(batch: Any) -> Any:
        sums = strategy.run(lambda x: lib.reduce_sum(x), args=(batch,))
        return strategy.reduce("SUM", sums, axis=None)

    return [step(batch) for batch in distributed]
