"""What one worker of two reads, in the same lines for replicax and for TensorFlow."""

from collections.abc import Callable
from typing import Any

from benchmarks.input.data import Data
from benchmarks.input.streams import Pipeline, Pipelines

WORKERS = 2


def worker_pipelines(
    library: Any, features: Any, data: Data, distribute: Callable[[Any, int], Pipeline]
) -> Pipelines:
    """Returns what a worker reads, by name.

    Args:
        library: `replicax` or `tensorflow`.
        features: of the examples, in the library's own words.
        data: the files and arrays.
        distribute: returns one worker's part of a data set, among so many workers.
    """
    policies = library.data.experimental.AutoShardPolicy

    def pipeline(dataset: Any, policy: str, workers: int = WORKERS) -> Pipeline:
        options = library.data.Options()
        options.experimental_distribute.auto_shard_policy = policies[policy]
        return distribute(dataset.with_options(options), workers)

    def records() -> Any:
        dataset = library.data.TFRecordDataset(data.d.paths(data.folder)).batch(data.d.batch)
        return dataset.map(
            lambda some: library.io.parse_example(some, features), library.data.AUTOTUNE
        )

    def text() -> Any:
        return library.data.TextLineDataset(data.e.paths(data.folder)).batch(data.e.batch)

    def rows(share: int = 1) -> Any:
        count = data.a.count // share
        columns = tuple(each[:count] for each in data.a.columns)
        dataset = library.data.Dataset.from_tensor_slices(columns)
        return dataset.shuffle(count, seed=1).batch(data.a.batch // share)

    return {
        "records FILE": lambda: pipeline(records(), "FILE"),
        "records DATA": lambda: pipeline(records(), "DATA"),
        "text FILE": lambda: pipeline(text(), "FILE"),
        "text DATA": lambda: pipeline(text(), "DATA"),
        "rows DATA": lambda: pipeline(rows(), "DATA"),
        "half the rows": lambda: pipeline(rows(WORKERS), "DATA", 1),
    }
