"""Batches of tf.data, on the host and on the devices of a `MirroredStrategy`."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.input.chains import Chains
from benchmarks.input.data import DEVIATION, MEAN, Rows, data_of
from benchmarks.input.streams import Pipeline, Streams, cost_of
from benchmarks.training.tensorflow_steps import tensorflow_on


class TensorFlowStreams(Streams):
    """On the host, and on some virtual CPU devices."""

    def __init__(self, quick: bool, folder: str, replicas: int):
        self.tf, strategy = tensorflow_on(replicas)
        tf = self.tf
        self.version, auto = tf.__version__, tf.data.AUTOTUNE
        self.data = data_of(quick, folder)

        def normalise(images: Any, labels: Any) -> Any:
            return (tf.cast(images, tf.float32) / 255.0 - MEAN) / DEVIATION, labels

        # Without prefetch(AUTOTUNE): its buffer fills while the other sides take their turns, and
        # the next turn would find batches that nobody paid for.
        def host(rows: Rows, dataset: Any) -> Pipeline:
            return Pipeline(lambda: dataset, rows.batches, endless=True)

        def devices(rows: Rows, dataset: Any) -> Pipeline:
            distributed = strategy.experimental_distribute_dataset(dataset)

            def leaves(batch: Any) -> list[np.ndarray]:
                parts = (strategy.experimental_local_results(leaf) for leaf in batch)
                return [np.concatenate([each.numpy() for each in part]) for part in parts]

            return Pipeline(lambda: distributed, rows.batches, endless=True, leaves=leaves)

        def files(batches: int, dataset: Any) -> Pipeline:
            def leaves(batch: Any) -> list[Any]:
                return [leaf.numpy() for leaf in tf.nest.flatten(batch)]

            return Pipeline(lambda: dataset.prefetch(auto), batches, leaves=leaves)

        self.pipelines = Chains(tf, self.data, auto).streams(normalise, host, devices, files)

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

        self.pipelines = Chains(tf, data_of(quick, folder)).workers(distribute)
