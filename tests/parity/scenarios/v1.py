"""`compat.v1.distribute`: what only its strategies have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._library import Library
from .._observation import Observation
from .._pipelines import HOST_ONLY, element, rows
from .._registry import scenario

KINDS = (
    *("older_one_device", "older_mirrored1", "older_mirrored2", "older_mirrored3"),
    "older_central2",
)
SEVERAL = ("older_mirrored2", "older_mirrored3")

# Rows, batch size, drop_remainder.
SIZES = (
    *((8, 4, False), (10, 4, False), (7, 10, False), (17, 8, False), (5, 2, False)),
    *((1, 8, False), (0, 4, False), (12, 5, True), (16, 8, True), (3, 4, True)),
)


def _range(lib: Library, count: int) -> Any:
    return lib.data.Dataset.range(count)


def _all_of(iterator: Any) -> Iterator[Any]:
    """What `get_next` gives until it raises."""
    while True:
        try:
            yield iterator.get_next()
        except Exception as error:
            assert "OutOfRange" in type(error).__name__, error
            return


def _twice(lib: Library, strategy: Any, iterator: Any) -> Observation:
    """Describes the steps of an iterator, its end, and the first step after `initialize()`."""
    steps = rows(lib, strategy, _all_of(iterator))
    end = [lib.outcome(iterator.get_next), lib.outcome(lambda: next(iterator))]
    begun = iterator.initialize()
    again = rows(lib, strategy, _all_of(iterator))
    return {"steps": steps, "end": end, "initialize": begun, "the same again": steps == again}


@scenario(*KINDS, eager_only=HOST_ONLY)
def dataset_iterator(lib: Library, strategy: Any) -> Any:
    return [
        _twice(
            lib,
            strategy,
            strategy.make_dataset_iterator(
                _range(lib, count).batch(size, drop_remainder=drop_remainder)
            ),
        )
        for count, size, drop_remainder in SIZES
    ]


@scenario(*KINDS, eager_only=HOST_ONLY)
def dataset_iterator_begun_anew_in_the_middle(lib: Library, strategy: Any) -> Any:
    iterator = strategy.make_dataset_iterator(_range(lib, 20).batch(4))
    before = rows(lib, strategy, [iterator.get_next(), iterator.get_next()])
    nothing = iterator.initializer
    return [before, nothing, rows(lib, strategy, [iterator.get_next()])]


FUNCTIONS = {
    "even": lambda lib, context: _range(lib, 12).batch(1),
    "a batch too many": lambda lib, context: _range(lib, 13).batch(1),
    "a smaller last batch": lambda lib, context: _range(lib, 11).batch(2),
    "static shapes": lambda lib, context: _range(lib, 10).batch(2, drop_remainder=True),
    "scalars": lambda lib, context: _range(lib, 10),
    "unknown number": lambda lib, context: (
        _range(lib, 7).filter(lambda x: x >= 0).batch(2)  # all of them
    ),
    "nothing": lambda lib, context: _range(lib, 0).batch(2),
    "fewer than replicas": lambda lib, context: _range(lib, 1).batch(2),
    "sharded": lambda lib, context: (
        _range(lib, 10).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)
    ),
    "per replica": lambda lib, context: _range(lib, 60).batch(
        context.get_per_replica_batch_size(24)
    ),
}


@scenario(*KINDS, function=tuple(FUNCTIONS), eager_only=HOST_ONLY)
def input_fn_iterator(lib: Library, strategy: Any, function: str) -> Any:
    calls = []

    def input_fn(context: Any) -> Any:
        calls.append(
            (context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync)
        )
        return FUNCTIONS[function](lib, context)

    with strategy.scope():
        iterator = strategy.make_input_fn_iterator(input_fn)
    return [_twice(lib, strategy, iterator), calls]


@scenario(*SEVERAL, kind=("dict", "tuple", "nest"), eager_only=HOST_ONLY)
def input_fn_iterator_of_structures(lib: Library, strategy: Any, kind: str) -> Any:
    numbers, texts = np.arange(7, dtype="int32"), np.arange(7, dtype="float32") / 2
    arrays = {
        "dict": {"a": numbers, "b": texts},
        "tuple": (numbers, texts),
        "nest": {"a": (numbers, {"c": texts})},
    }[kind]

    def input_fn(context: Any) -> Any:
        def keep(*parts: Any) -> Any:
            return True

        # So that nobody knows how many there are.
        return lib.data.Dataset.from_tensor_slices(arrays).filter(keep).batch(2)

    steps = list(_all_of(strategy.make_input_fn_iterator(input_fn)))
    return [
        [element(lib, part) for part in strategy.experimental_local_results(step)] for step in steps
    ]


@scenario(*KINDS, eager_only=HOST_ONLY)
def input_fn_iterator_of_a_function(lib: Library, strategy: Any) -> Any:
    made = []

    def next_value() -> Any:
        made.append(None)
        return lib.constant([float(len(made))])

    iterator = strategy.make_input_fn_iterator(lambda context: next_value)
    before = len(made)
    values = [iterator.get_next(), next(iterator)]
    begun = iterator.initialize()
    has_value = bool(iterator.get_next_as_optional().has_value())
    return [before, values, begun, iterator.get_next(), has_value]


@scenario("older_mirrored2", "older_one_device", eager_only=HOST_ONLY)
def input_fn_iterator_for_each_replica(lib: Library, strategy: Any) -> Any:
    mode = lib.v1.distribute.InputReplicationMode.PER_REPLICA
    return lib.outcome(
        lambda: strategy.make_input_fn_iterator(lambda context: _range(lib, 4), mode)
    )


@scenario(*KINDS)
def run_with_an_iterator(lib: Library, strategy: Any) -> Any:
    iterator = strategy.make_dataset_iterator(_range(lib, 7).batch(4))

    def step() -> Any:
        return strategy.experimental_run(lambda x: lib.cast(x, "float32") * 2.0, iterator)

    results = [lib.call(step), lib.call(step), lib.outcome(lambda: lib.call(step))]
    iterator.initialize()
    return [*results, lib.call(step)]


@scenario(*KINDS)
def run_with_a_structure(lib: Library, strategy: Any) -> Any:
    def input_fn(context: Any) -> Any:
        arrays = {"x": np.arange(8, dtype="float32"), "y": (np.arange(8, dtype="float32") + 1,)}
        return lib.data.Dataset.from_tensor_slices(arrays).batch(2)

    def replica_fn(inputs: Any) -> Any:
        product = lib.reduce_sum(inputs["x"] * inputs["y"][0])
        return {"product": product * lib.replica_number()}

    iterator = strategy.make_input_fn_iterator(input_fn)
    return lib.call(lambda: strategy.experimental_run(replica_fn, iterator))


@scenario(*KINDS)
def run_without_an_iterator(lib: Library, strategy: Any) -> Any:
    return lib.call(lambda: strategy.experimental_run(lib.replica_number))


@scenario(*KINDS)
def training_by_run(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        total = lib.variable(0.0, aggregation="SUM")

    def replica_fn(x: Any) -> Any:
        total.assign_add(lib.reduce_sum(lib.cast(x, "float32")))

    iterator = strategy.make_dataset_iterator(_range(lib, 12).batch(6))
    for _ in range(2):
        lib.call(lambda: strategy.experimental_run(replica_fn, iterator) and None)
    return strategy.extended.read_var(total)


@scenario(*KINDS, op=("SUM", "MEAN"))
def reduce_by_its_default(lib: Library, strategy: Any, op: str) -> Any:
    op = lib.v1.distribute.ReduceOp[op]
    value = lib.run(strategy, lambda: lib.constant([1.0, 2.0]) * lib.replica_number())
    return [strategy.reduce(op, value), strategy.reduce(op, value, 0)]


@scenario(*KINDS, eager_only=HOST_ONLY)
def numpy_data_sets(lib: Library, strategy: Any) -> Any:
    rows, labels = np.arange(6, dtype="float32").reshape(3, 2), np.arange(3, dtype="int32")
    inputs = (rows, (rows, labels), {"x": rows, "y": {"z": labels}}, [rows, rows + 1])
    made = [strategy.experimental_make_numpy_dataset(each) for each in inputs]
    made.append(strategy.experimental_make_numpy_dataset(rows, session=None))
    made += [strategy.extended.experimental_make_numpy_dataset(each, None) for each in inputs]
    return [[element(lib, item) for item in dataset] for dataset in made]


@scenario(*KINDS)
def unwrapped_and_grouped(lib: Library, strategy: Any) -> Any:
    value = lib.run(strategy, lib.replica_number)
    return [strategy.unwrap(value), strategy.unwrap(3.0), strategy.group(value)]


@scenario(*KINDS, eager_only="nothing runs")
def updated_config(lib: Library, strategy: Any) -> Any:
    config = lib.v1.ConfigProto(allow_soft_placement=True, device_count={"CPU": 2})
    config.gpu_options.allow_growth = True
    updated = strategy.update_config_proto(config)
    updated.gpu_options.per_process_gpu_memory_fraction = 0.5
    return [str(updated), str(config), updated.SerializeToString().hex()]


@scenario("older_mirrored2", "older_one_device", eager_only="nothing runs")
def loss_reduction(lib: Library, strategy: Any) -> Any:
    before = lib.v1.distribute.get_loss_reduction().name
    with strategy.scope():
        return [before, lib.v1.distribute.get_loss_reduction().name]
