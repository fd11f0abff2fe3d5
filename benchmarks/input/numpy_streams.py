"""The limit: batches by NumPy and the standard library, and nothing around them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.input.data import Columns, Data, Rows, scale_and_offset
from benchmarks.input.streams import Pipeline, Streams


def taken(rows: Rows) -> Iterator[Columns]:
    """Yields forever: a permutation of the rows, and one `np.take` of each column for a batch."""
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(rows.count)
        for start in range(0, rows.count, rows.batch):
            chosen = order[start : start + rows.batch]
            yield tuple(np.take(column, chosen, axis=0) for column in rows.columns)


def normalised(rows: Rows) -> Iterator[Columns]:
    scale, offset = scale_and_offset(rows.shape)
    for images, labels in taken(rows):
        yield images * scale + offset, labels


def lines(paths: list[str], batch: int) -> Iterator[tuple[np.ndarray]]:
    """Yields an epoch: whole files, cut into lines."""
    rest: list[bytes] = []
    for path in paths:
        found = rest + Path(path).read_bytes().splitlines()
        whole = len(found) - len(found) % batch
        for start in range(0, whole, batch):
            yield (np.array(found[start : start + batch], object),)
        rest = found[whole:]
    if rest:
        yield (np.array(rest, object),)


class NumpyStreams(Streams):
    """For batches on devices too, the limit is that of batches on the host."""

    alone = False

    def __init__(self, data: Data):
        def a() -> Pipeline:
            return Pipeline(lambda: taken(data.a), data.a.batches, endless=True)

        def b() -> Pipeline:
            return Pipeline(lambda: taken(data.b), data.b.batches, endless=True)

        def c() -> Pipeline:
            return Pipeline(lambda: normalised(data.c), data.c.batches, endless=True)

        def e() -> Pipeline:
            paths = data.e.paths(data.folder)
            return Pipeline(lambda: lines(paths, data.e.batch), data.e.batches)

        devices = {"a devices": a, "b devices": b, "c devices": c, "c on device": c}
        self.pipelines = {"a": a, "b": b, "c": c, "c vectorized": c, "c element": c, "e": e}
        self.pipelines |= devices
