"""TensorFlow's side of `_input_workers.py`: one worker of two, with one replica.

TensorFlow has no public way to be one of two workers without the other; the function that is used
here is the one by which its `MultiWorkerMirroredStrategy` makes data sets.
"""

import sys
from collections.abc import Callable
from typing import Any

from _child import answers_only, tensorflow_on
from _input_data import FEATURES, LABEL, PAYLOAD, Data, data_of
from _input_stream import Pipeline, serve

WORKERS = 2


def pipelines(tf: Any, strategy: Any, data: Data, worker: int) -> dict[str, Callable[[], Pipeline]]:
    from tensorflow.python.distribute import input_lib, input_util

    features = {
        FEATURES: tf.io.FixedLenFeature([data.d.floats], tf.float32),
        LABEL: tf.io.FixedLenFeature([], tf.int64),
        PAYLOAD: tf.io.FixedLenFeature([], tf.string),
    }
    auto = tf.data.AUTOTUNE

    def pipeline(dataset: Any, policy: str, workers: int = WORKERS) -> Pipeline:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[
            policy
        ]
        distributed = input_util.get_distributed_dataset(
            dataset.with_options(options),
            input_lib.InputWorkers([("/device:CPU:0", ("/device:CPU:0",))]),
            strategy,
            num_replicas_in_sync=workers,
            input_context=tf.distribute.InputContext(workers, worker % workers, workers),
        )

        def leaves(batch: Any) -> list[Any]:
            values = tf.nest.flatten(batch)
            return [strategy.experimental_local_results(value)[0].numpy() for value in values]

        return Pipeline(lambda: distributed, None, leaves=leaves)

    def records() -> Any:
        dataset = tf.data.TFRecordDataset(data.d.paths(data.folder)).batch(data.d.batch)
        return dataset.map(lambda some: tf.io.parse_example(some, features), auto)

    def text() -> Any:
        return tf.data.TextLineDataset(data.e.paths(data.folder)).batch(data.e.batch)

    def rows(share: int = 1) -> Any:
        count = data.a.count // share
        dataset = tf.data.Dataset.from_tensor_slices(tuple(each[:count] for each in data.a.columns))
        return dataset.shuffle(count, seed=1).batch(data.a.batch // share)

    return {
        "records FILE": lambda: pipeline(records(), "FILE"),
        "records DATA": lambda: pipeline(records(), "DATA"),
        "text FILE": lambda: pipeline(text(), "FILE"),
        "text DATA": lambda: pipeline(text(), "DATA"),
        "rows DATA": lambda: pipeline(rows(), "DATA"),
        "half the rows": lambda: pipeline(rows(WORKERS), "DATA", 1),
    }


def main() -> None:
    size, folder, worker = sys.argv[1:]
    answer = answers_only()
    tf, strategy = tensorflow_on(1)
    answer(version=tf.__version__)
    serve(pipelines(tf, strategy, data_of(size, folder), int(worker)), answer)


if __name__ == "__main__":
    main()
