"""TensorFlow's side of `input.py`: tf.data and `MirroredStrategy`, in a child process on request.

Its arguments are the size and the folder of the data, and the number of replicas.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _child import answers_only, tensorflow_on
from _input_data import DEVIATION, FEATURES, LABEL, MEAN, PAYLOAD, Data, Rows, data_of
from _input_stream import Pipeline, cost_of, serve


def pipelines(tf: Any, strategy: Any, data: Data) -> dict[str, Callable[[], Pipeline]]:
    auto = tf.data.AUTOTUNE
    features = {
        FEATURES: tf.io.FixedLenFeature([data.d.floats], tf.float32),
        LABEL: tf.io.FixedLenFeature([], tf.int64),
        PAYLOAD: tf.io.FixedLenFeature([], tf.string),
    }

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


def checkpoint(tf: Any, rows: Rows) -> dict[str, Any]:
    """What a plain iterator's state costs after half an epoch: a distributed one has none."""
    dataset = (
        tf.data.Dataset.from_tensor_slices(rows.columns)
        .shuffle(rows.count, seed=1)
        .repeat()
        .batch(rows.batch)
    )
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
    return {"bytes": size, "save": saved, "restore": restored.wall, "restore_cpu": restored.cpu}


def main() -> None:
    size, folder, replicas = sys.argv[1:]
    answer = answers_only()
    tf, strategy = tensorflow_on(int(replicas))
    data = data_of(size, folder)
    answer(version=tf.__version__)
    serve(pipelines(tf, strategy, data), answer, checkpoint=lambda request: checkpoint(tf, data.a))


if __name__ == "__main__":
    main()
