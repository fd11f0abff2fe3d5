"""Grain's side of `input.py`, in a child process: its `MapDataset`, written as its guides do."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _child import answers_only
from _input_data import Data, Rows, data_of, scale_and_offset
from _input_stream import Pipeline, serve

MOST = 12  # batches in a turn


class Source:
    """Rows with random access."""

    def __init__(self, rows: Rows):
        self.columns = rows.columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        return tuple(column[row] for column in self.columns)


def pipelines(grain: Any, data: Data) -> dict[str, Callable[[], Pipeline]]:
    scale, offset = scale_and_offset(data.c.shape)
    # Its threads read hundreds of batches ahead, which a turn would find ready and not pay for.
    direct = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)

    def batches(rows: Rows) -> Any:
        return grain.MapDataset.source(Source(rows)).shuffle(seed=0).repeat().batch(rows.batch)

    def normalise(batch: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return batch[0] * scale + offset, batch[1]

    def pipeline(rows: Rows, dataset: Any) -> Pipeline:
        return Pipeline(lambda: dataset.to_iter_dataset(direct), rows.batches, True, most=MOST)

    return {
        "a": lambda: pipeline(data.a, batches(data.a)),
        "b": lambda: pipeline(data.b, batches(data.b)),
        "c": lambda: pipeline(data.c, batches(data.c).map(normalise)),
    }


def main() -> None:
    size, folder = sys.argv[1:]
    answer = answers_only()
    import grain

    answer(version=grain.__version__)
    serve(pipelines(grain, data_of(size, folder)), answer)


if __name__ == "__main__":
    main()
