"""PyTorch's `DataLoader` in one process: worker processes need more processor time, not less."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.utils.data

from benchmarks.input.data import Rows, data_of, scale_and_offset
from benchmarks.input.streams import Pipeline, Streams

MOST = 24  # batches in a turn


class TorchStreams(Streams):
    """Rows in memory."""

    version = torch.__version__

    def __init__(self, quick: bool, folder: str):
        torch.set_num_threads(1)  # or threads that wait count as work
        data = data_of(quick, folder)
        scale, offset = (torch.from_numpy(each) for each in scale_and_offset(data.c.shape))

        def batches(rows: Rows) -> Iterator[Any]:
            columns = (torch.from_numpy(column) for column in rows.columns)
            dataset = torch.utils.data.TensorDataset(*columns)
            loader = torch.utils.data.DataLoader(dataset, rows.batch, shuffle=True)
            while True:
                yield from loader

        def normalised(rows: Rows) -> Iterator[Any]:
            for images, labels in batches(rows):
                yield images * scale + offset, labels

        def pipeline(rows: Rows, make: Callable[[Rows], Iterator[Any]]) -> Pipeline:
            def leaves(batch: Any) -> list[np.ndarray]:
                return [leaf.numpy() for leaf in batch]

            return Pipeline(lambda: make(rows), rows.batches, True, leaves=leaves, most=MOST)

        self.pipelines = {
            "a": lambda: pipeline(data.a, batches),
            "b": lambda: pipeline(data.b, batches),
            "c": lambda: pipeline(data.c, normalised),
        }
