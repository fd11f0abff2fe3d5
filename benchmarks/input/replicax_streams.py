"""Batches of `rx.data`, on the host and on the devices of a strategy."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx
from benchmarks.input.chains import Chains
from benchmarks.input.data import DEVIATION, MEAN, Data, Rows, data_of, scale_and_offset
from benchmarks.input.streams import Pipeline, Streams
from benchmarks.training.jax_steps import use_cpu_devices
from replicax._src.data._blocks import RecordRows
from replicax._src.data._sources import Files, names_node
from replicax._src.data.distributed import InputLayout, InputOptions, distributed_dataset
from replicax._src.records import scan_tfrecords


def records_read(data: Data, **options: Any) -> Any:
    """Returns an `rx.data.TFRecordDataset` with options that users have no need of."""

    def scan(path: str) -> Iterator[Any]:
        return map(RecordRows, scan_tfrecords(path, **options))

    names = names_node(data.d.paths(data.folder))
    return rx.data.Dataset(Files(names, scan, "TFRecordDataset")).batch(data.d.batch)


class ReplicaxStreams(Streams):
    """In the process that measures, with pipelines that only we have."""

    alone = False

    def __init__(self, data: Data, strategy: Any):
        chains, c, d = Chains(rx, data), data.c, data.d
        scale, offset = scale_and_offset(c.shape)

        def normalise(images: np.ndarray, labels: np.ndarray) -> Any:
            return images * scale + offset, labels

        def normalise_there(images: jax.Array, labels: jax.Array) -> Any:
            return (images.astype(jnp.float32) / 255.0 - MEAN) / DEVIATION, labels

        def parsed_plainly(some: Any) -> Any:
            return rx.io.parse_example(some, chains.features, native=False)

        def host(rows: Rows, dataset: Any) -> Pipeline:
            return Pipeline(lambda: dataset, rows.batches, endless=True)

        def devices(rows: Rows, dataset: Any) -> Pipeline:
            distributed = strategy.experimental_distribute_dataset(dataset)
            local = strategy.experimental_local_results

            def leaves(batch: Any) -> list[np.ndarray]:
                return [np.concatenate([*map(np.asarray, local(leaf))]) for leaf in batch]

            def finish(batch: Any) -> None:
                for leaf in batch:
                    jax.block_until_ready(local(leaf))

            return Pipeline(lambda: distributed, rows.batches, True, leaves, finish=finish)

        def files(batches: int, dataset: Any) -> Pipeline:
            return Pipeline(lambda: dataset, batches, leaves=jax.tree.leaves)

        def vectorized() -> Any:
            return chains.shuffled(c).map(normalise, vectorized=True).batch(c.batch)

        def on_device() -> Any:
            return chains.shuffled(c).batch(c.batch).map(normalise_there, on_device=True)

        self.pipelines = {
            **chains.streams(normalise, host, devices, files),
            "c vectorized": lambda: host(c, vectorized()),
            "c on device": lambda: devices(c, on_device()),
            "d raw unchecked": lambda: files(d.batches, records_read(data, verify=False)),
            "d parse plain": lambda: files(
                d.batches, records_read(data, native=False).map(parsed_plainly)
            ),
        }


class ReplicaxWorker(Streams):
    """One worker of two, without the other."""

    version = jax.__version__

    def __init__(self, quick: bool, folder: str, worker: int):
        use_cpu_devices(1)
        device = jax.devices()[0]

        def distribute(dataset: Any, workers: int) -> Pipeline:
            layout = InputLayout((device,), workers, worker % workers)
            distributed = distributed_dataset(dataset, layout, InputOptions())
            return Pipeline(lambda: distributed, None, leaves=jax.tree.leaves)

        self.pipelines = Chains(rx, data_of(quick, folder)).workers(distribute)
