"""Batches of `rx.data`, by the same chains as tf.data's."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx
from benchmarks.input.data import (
    DEVIATION,
    FEATURES,
    LABEL,
    MEAN,
    PAYLOAD,
    Data,
    Rows,
    data_of,
    scale_and_offset,
)
from benchmarks.input.streams import Pipeline, Pipelines, Streams
from benchmarks.input.workers import worker_pipelines
from benchmarks.training.jax_steps import use_cpu_devices
from replicax._src.data._blocks import RecordRows
from replicax._src.data._files import Files, names_node
from replicax._src.data.distributed import InputLayout, InputOptions, distributed_dataset
from replicax._src.records import scan_tfrecords


class ReplicaxStreams(Streams):
    """On the host, and on the devices of a strategy."""

    alone = False

    def __init__(self, data: Data, strategy: Any):
        self.pipelines = pipelines(data, strategy)


class ReplicaxWorker(Streams):
    """One worker of two, without the other."""

    version = jax.__version__

    def __init__(self, quick: bool, folder: str, worker: int):
        use_cpu_devices(1)
        data, device = data_of(quick, folder), jax.devices()[0]

        def distribute(dataset: Any, workers: int) -> Pipeline:
            layout = InputLayout((device,), workers, worker % workers)
            distributed = distributed_dataset(dataset, layout, InputOptions())
            return Pipeline(lambda: distributed, None, leaves=jax.tree.leaves)

        self.pipelines = worker_pipelines(rx, example_features(data), data, distribute)


def example_features(data: Data) -> dict[str, Any]:
    return {
        FEATURES: rx.io.FixedLenFeature([data.d.floats], np.float32),
        LABEL: rx.io.FixedLenFeature([], np.int64),
        PAYLOAD: rx.io.FixedLenFeature([], rx.string),
    }


def shuffled(rows: Rows, seed: int | None = None) -> Any:
    dataset = rx.data.Dataset.from_tensor_slices(rows.columns)
    return dataset.shuffle(rows.count, seed=seed).repeat()


def records_read(data: Data, **options: Any) -> Any:
    """Returns an `rx.data.TFRecordDataset` with options that users have no need of."""

    def scan(path: str) -> Iterator[Any]:
        return map(RecordRows, scan_tfrecords(path, **options))

    names = names_node(data.d.paths(data.folder))
    return rx.data.Dataset(Files(names, scan, "TFRecordDataset"))


def parts(strategy: Any, value: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in strategy.experimental_local_results(value)]


def pipelines(data: Data, strategy: Any) -> Pipelines:
    """Returns all pipelines by their names."""
    features = example_features(data)
    scale, offset = scale_and_offset(data.c.shape)

    def normalise(images: np.ndarray, labels: np.ndarray) -> Any:
        return images * scale + offset, labels

    def normalise_there(images: jax.Array, labels: jax.Array) -> Any:
        return (images.astype(jnp.float32) / 255.0 - MEAN) / DEVIATION, labels

    def host(rows: Rows, dataset: Any) -> Pipeline:
        return Pipeline(lambda: dataset, rows.batches, endless=True)

    def devices(rows: Rows, dataset: Any) -> Pipeline:
        distributed = strategy.experimental_distribute_dataset(dataset)

        def leaves(batch: Any) -> list[np.ndarray]:
            return [np.concatenate(parts(strategy, leaf)) for leaf in batch]

        def finish(batch: Any) -> None:
            for leaf in batch:
                jax.block_until_ready(strategy.experimental_local_results(leaf))

        return Pipeline(
            lambda: distributed, rows.batches, endless=True, leaves=leaves, finish=finish
        )

    def of_files(batches: int, dataset: Any) -> Pipeline:
        return Pipeline(lambda: dataset, batches, leaves=jax.tree.leaves)

    def records() -> Any:
        return rx.data.TFRecordDataset(data.d.paths(data.folder))

    def parsed(some: Any) -> Any:
        return rx.io.parse_example(some, features)

    def parsed_plainly(some: Any) -> Any:
        return rx.io.parse_example(some, features, native=False)

    def parsed_single(one: Any) -> Any:
        return rx.io.parse_single_example(one, features)

    a, b, c, d, e = data.a, data.b, data.c, data.d, data.e
    return {
        "a": lambda: host(a, shuffled(a).batch(a.batch)),
        "b": lambda: host(b, shuffled(b).batch(b.batch)),
        "c": lambda: host(c, shuffled(c).batch(c.batch).map(normalise)),
        "c vectorized": lambda: host(c, shuffled(c).map(normalise, vectorized=True).batch(c.batch)),
        "c element": lambda: host(c, shuffled(c).map(normalise).batch(c.batch)),
        "a devices": lambda: devices(a, shuffled(a).batch(a.batch)),
        "b devices": lambda: devices(b, shuffled(b).batch(b.batch)),
        "c devices": lambda: devices(c, shuffled(c).batch(c.batch).map(normalise)),
        "c on device": lambda: devices(
            c, shuffled(c).batch(c.batch).map(normalise_there, on_device=True)
        ),
        "d raw unchecked": lambda: of_files(
            d.batches, records_read(data, verify=False).batch(d.batch)
        ),
        "d raw": lambda: of_files(d.batches, records().batch(d.batch)),
        "d parse plain": lambda: of_files(
            d.batches, records_read(data, native=False).batch(d.batch).map(parsed_plainly)
        ),
        "d parse": lambda: of_files(d.batches, records().batch(d.batch).map(parsed)),
        "d parse single": lambda: of_files(d.batches, records().map(parsed_single).batch(d.batch)),
        "e": lambda: of_files(
            e.batches, rx.data.TextLineDataset(e.paths(data.folder)).batch(e.batch)
        ),
    }
