"""Grain's `MapDataset`, written as its guides do."""

from typing import Any

import grain
import numpy as np

from benchmarks.input.data import Rows, data_of, scale_and_offset
from benchmarks.input.streams import Pipeline, Streams

MOST = 12  # batches in a turn


class Source:
    """Rows with random access."""

    def __init__(self, rows: Rows):
        self.columns = rows.columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        return tuple(column[row] for column in self.columns)


class GrainStreams(Streams):
    """Rows in memory."""

    version = grain.__version__

    def __init__(self, quick: bool, folder: str):
        data = data_of(quick, folder)
        scale, offset = scale_and_offset(data.c.shape)
        # Its threads read hundreds of batches ahead, which a turn would find ready and not pay for.
        direct = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)

        def batches(rows: Rows) -> Any:
            return grain.MapDataset.source(Source(rows)).shuffle(seed=0).repeat().batch(rows.batch)

        def normalise(batch: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            return batch[0] * scale + offset, batch[1]

        def pipeline(rows: Rows, dataset: Any) -> Pipeline:
            return Pipeline(lambda: dataset.to_iter_dataset(direct), rows.batches, True, most=MOST)

        self.pipelines = {
            "a": lambda: pipeline(data.a, batches(data.a)),
            "b": lambda: pipeline(data.b, batches(data.b)),
            "c": lambda: pipeline(data.c, batches(data.c).map(normalise)),
        }
