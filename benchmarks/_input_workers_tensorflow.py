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
from _input_worker_pipelines import worker_pipelines


def pipelines(tf: Any, strategy: Any, data: Data, worker: int) -> dict[str, Callable[[], Pipeline]]:
    from tensorflow.python.distribute import input_lib, input_util

    features = {
        FEATURES: tf.io.FixedLenFeature([data.d.floats], tf.float32),
        LABEL: tf.io.FixedLenFeature([], tf.int64),
        PAYLOAD: tf.io.FixedLenFeature([], tf.string),
    }

    def distribute(dataset: Any, workers: int) -> Pipeline:
        distributed = input_util.get_distributed_dataset(
            dataset,
            input_lib.InputWorkers([("/device:CPU:0", ("/device:CPU:0",))]),
            strategy,
            num_replicas_in_sync=workers,
            input_context=tf.distribute.InputContext(workers, worker % workers, workers),
        )

        def leaves(batch: Any) -> list[Any]:
            values = tf.nest.flatten(batch)
            return [strategy.experimental_local_results(value)[0].numpy() for value in values]

        return Pipeline(lambda: distributed, None, leaves=leaves)

    return worker_pipelines(tf, features, data, distribute)


def main() -> None:
    size, folder, worker = sys.argv[1:]
    answer = answers_only()
    tf, strategy = tensorflow_on(1)
    answer(version=tf.__version__)
    serve(pipelines(tf, strategy, data_of(size, folder), int(worker)), answer)


if __name__ == "__main__":
    main()
