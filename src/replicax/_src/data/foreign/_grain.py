"""Data sets and loaders of Grain."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from replicax._src.data._indexed import Indexed, by_rows
from replicax._src.data._node import INFINITE
from replicax._src.data.foreign._streams import Stream, iterable


def grain_map(source: Any) -> Indexed:
    kind, size = "grain map data set", len(source)
    missing = (
        "A filter leaves gaps in a MapDataset; write dataset.to_iter_dataset(), which closes them."
    )
    return Indexed(
        by_rows(source, kind, missing),
        INFINITE if size >= sys.maxsize else size,
        kind,
        may_be_batches=True,
    )


def grain_stream(source: Iterable[Any]) -> Stream:
    return iterable(source, "grain iter data set")


def grain_loader(source: Iterable[Any]) -> Stream:
    return iterable(source, "grain DataLoader")
