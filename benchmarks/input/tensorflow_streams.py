"""Batches of tf.data, on the host and on the devices of a `MirroredStrategy`."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.input.data import DEVIATION, FEATURES, LABEL, MEAN, PAYLOAD, Data, Rows, data_of
from benchmarks.input.streams import Pipeline, Pipelines, Streams, cost_of
from benchmarks.input.workers import worker_pipelines
from benchmarks.training.tensorflow_steps import tensorflow_on


class TensorFlowStreams(Streams):
    """On the host, and on some virtual CPU devices."""

    def __init__(self, quick: bool, folder: str, replicas: int):
        self.tf, strategy = tensorflow_on(replicas)
        self.version = self.tf.__version__
        self.data = data_of(quick, folder)
        self.pipelines = pipelines(self.tf, strategy, self.data)

    def checkpoint(self) -> dict[str, Any]:
        """Returns what a plain iterator's state costs after half an epoch.

        A distributed one has none.
        """
        tf, rows = self.tf, self.data.a
        dataset = tf.data.Dataset.from_tensor_slices(rows.columns)
        dataset = dataset.shuffle(rows.count, seed=1).repeat().batch(rows.batch)
        iterator = iter(dataset)
        for _ in range(rows.batches // 2):
            next(iterator)
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            path = tf.train.Checkpoint(iterator=iterator).write(f"{folder}/state")
            saved = time.perf_counter() - begin
            size = sum(each.stat().st_size for each in Path(folder).iterdir())
            again = iter(dataset)

            def restore() -> None:
                tf.train.Checkpoint(iterator=again).read(path)
                next(again)

            restored = cost_of(restore)
        return {"bytes": size, "save": saved, "restore": restored.wall}


class TensorFlowWorker(Streams):
    """One worker of two, with one replica, without the other.

    TensorFlow has no public way for that; the function that is used here is the one by which its
    `MultiWorkerMirroredStrategy` makes data sets.
    """

    def __init__(self, quick: bool, folder: str, worker: int):
        from tensorflow.python.distribute import input_lib, input_util

        tf, strategy = tensorflow_on(1)
        self.version = tf.__version__
        data = data_of(quick, folder)

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

        self.pipelines = worker_pipelines(tf, example_features(tf, data), data, distribute)


def example_features(tf: Any, data: Data) -> dict[str, Any]:
    return {
        FEATURES: tf.io.FixedLenFeature([data.d.floats], tf.float32),
        LABEL: tf.io.FixedLenFeature([], tf.int64),
        PAYLOAD: tf.io.FixedLenFeature([], tf.string),
    }


def pipelines(tf: Any, strategy: Any, data: Data) -> Pipelines:
    """Returns all pipelines by their names."""
    auto = tf.data.AUTOTUNE
    features = example_features(tf, data)

    def normalise(images: Any, labels: Any) -> Any:
        return (tf.cast(images, tf.float32) / 255.0 - MEAN) / DEVIATION, labels

    def shuffled(rows: Rows) -> Any:
        return tf.data.Dataset.from_tensor_slices(rows.columns).shuffle(rows.count).repeat()

    # Without prefetch(AUTOTUNE): its buffer fills while the other sides take their turns, and the
    # next turn would find batches that nobody paid for.
    def host(rows: Rows, dataset: Any) -> Pipeline:
        return Pipeline(lambda: dataset, rows.batches, endless=True)

    def devices(rows: Rows, dataset: Any) -> Pipeline:
        distributed = strategy.experimental_distribute_dataset(dataset)

        def leaves(batch: Any) -> list[np.ndarray]:
            parts = (strategy.experimental_local_results(leaf) for leaf in batch)
            return [np.concatenate([each.numpy() for each in part]) for part in parts]

        return Pipeline(lambda: distributed, rows.batches, endless=True, leaves=leaves)

    def of_files(batches: int, dataset: Any) -> Pipeline:
        def leaves(batch: Any) -> list[Any]:
            return [leaf.numpy() for leaf in tf.nest.flatten(batch)]

        return Pipeline(lambda: dataset.prefetch(auto), batches, leaves=leaves)

    def records() -> Any:
        return tf.data.TFRecordDataset(data.d.paths(data.folder))

    def lines() -> Any:
        return tf.data.TextLineDataset(data.e.paths(data.folder))

    a, b, c, d, e = data.a, data.b, data.c, data.d, data.e
    return {
        "a": lambda: host(a, shuffled(a).batch(a.batch)),
        "b": lambda: host(b, shuffled(b).batch(b.batch)),
        "c": lambda: host(c, shuffled(c).batch(c.batch).map(normalise, auto)),
        "c element": lambda: host(c, shuffled(c).map(normalise, auto).batch(c.batch)),
        "a devices": lambda: devices(a, shuffled(a).batch(a.batch)),
        "b devices": lambda: devices(b, shuffled(b).batch(b.batch)),
        "c devices": lambda: devices(c, shuffled(c).batch(c.batch).map(normalise, auto)),
        "d raw": lambda: of_files(d.batches, records().batch(d.batch)),
        "d parse": lambda: of_files(
            d.batches,
            records().batch(d.batch).map(lambda some: tf.io.parse_example(some, features), auto),
        ),
        "d parse single": lambda: of_files(
            d.batches,
            records()
            .map(lambda one: tf.io.parse_single_example(one, features), auto)
            .batch(d.batch),
        ),
        "e": lambda: of_files(e.batches, lines().batch(e.batch)),
    }
