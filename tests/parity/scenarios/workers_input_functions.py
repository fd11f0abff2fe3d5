"""`distribute_datasets_from_function`: each worker makes its own pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._layout import LAYOUTS
from .._pipelines import rows
from .._registry import scenario
from .._worker import InJob

HOST = "host pipelines do not run on replicas"


@scenario(*LAYOUTS, eager_only=HOST)
def input_contexts(lib: InJob, strategy: Any) -> Any:
    seen = []

    def make(context: Any) -> Any:
        seen.append(
            {
                "pipelines": context.num_input_pipelines,
                "pipeline": context.input_pipeline_id,
                "replicas": context.num_replicas_in_sync,
                "per replica": context.get_per_replica_batch_size(
                    strategy.num_replicas_in_sync * 3
                ),
            }
        )
        return lib.data.Dataset.range(4).batch(2)

    strategy.distribute_datasets_from_function(make)
    return seen


@scenario(*LAYOUTS, eager_only=HOST)
def sharded_by_hand(lib: InJob, strategy: Any) -> Any:
    def make(context: Any) -> Any:
        dataset = lib.data.Dataset.range(18)
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)

    return rows(lib, strategy, strategy.distribute_datasets_from_function(make))


@scenario(*LAYOUTS, eager_only=HOST, drop=(True, False))
def unequal_numbers_of_batches(lib: InJob, strategy: Any, drop: bool) -> Any:
    """The first worker has most; the loop goes on until all are done."""

    def make(context: Any) -> Any:
        start, count = 100 * context.input_pipeline_id, 9 - 4 * context.input_pipeline_id
        return lib.data.Dataset.range(start, start + max(count, 0)).batch(2, drop_remainder=drop)

    return rows(lib, strategy, strategy.distribute_datasets_from_function(make))


@scenario(*LAYOUTS)
def sums_of_unequal_numbers_of_batches(lib: InJob, strategy: Any) -> Any:
    def make(context: Any) -> Any:
        count = 2 + 5 * (context.num_input_pipelines - 1 - context.input_pipeline_id)
        return lib.data.Dataset.from_tensor_slices(np.arange(count, dtype="float32")).batch(2)

    steps = []
    for batch in strategy.distribute_datasets_from_function(make):
        sums = lib.run(strategy, lambda x: lib.reduce_sum(x), args=(batch,))
        steps.append(strategy.reduce("SUM", sums, axis=None))
    return steps


@scenario(*LAYOUTS, eager_only=HOST)
def nothing_at_all(lib: InJob, strategy: Any) -> Any:
    distributed = strategy.distribute_datasets_from_function(
        lambda _: lib.data.Dataset.range(0).batch(2)
    )
    return rows(lib, strategy, distributed)


@scenario(*LAYOUTS, eager_only=HOST)
def for_ever(lib: InJob, strategy: Any) -> Any:
    distributed = strategy.distribute_datasets_from_function(
        lambda context: (
            lib.data.Dataset.range(
                10 * context.input_pipeline_id, 10 * context.input_pipeline_id + 3
            )
            .repeat()
            .batch(2)
        )
    )
    iterator = iter(distributed)
    return rows(lib, strategy, [next(iterator) for _ in range(3)])
