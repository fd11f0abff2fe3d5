"""PyTorch's side of `input.py`, in a child process: `DataLoader` in this one process.

Its worker processes would need more processor time, not less.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _child import answers_only
from _input_data import Data, Rows, data_of, scale_and_offset
from _input_stream import Pipeline, serve

MOST = 24  # batches in a turn


def pipelines(torch: Any, data: Data) -> dict[str, Callable[[], Pipeline]]:
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

        return Pipeline(lambda: make(rows), rows.batches, endless=True, leaves=leaves, most=MOST)

    return {
        "a": lambda: pipeline(data.a, batches),
        "b": lambda: pipeline(data.b, batches),
        "c": lambda: pipeline(data.c, normalised),
    }


def main() -> None:
    size, folder = sys.argv[1:]
    answer = answers_only()
    import torch
    import torch.utils.data

    torch.set_num_threads(1)  # or threads that wait count as work
    answer(version=torch.__version__)
    serve(pipelines(torch, data_of(size, folder)), answer)


if __name__ == "__main__":
    main()
