"""ArrayRecord files, which are read by index."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence, Sized
from typing import TypeVar

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._errors import DataLossError
from replicax._src._tensor_spec import TensorSpec
from replicax._src.data._indexed import FetchedColumns, Indexed, by_rows

T = TypeVar("T")


def array_records(paths: list[str]) -> Indexed:
    """Returns the records of ArrayRecord files; needs the package array_record."""
    try:
        from array_record.python import array_record_data_source  # pyright: ignore
    except ImportError:
        raise ImportError(
            "ArrayRecordDataset needs the package array-record, which is not installed. Run: pip "
            "install 'replicax[arrayrecord]'."
        ) from None
    open_files = array_record_data_source.ArrayRecordDataSource
    for path in paths:
        if "://" not in path and not os.path.exists(path):
            raise FileNotFoundError(f"There is no file {path!r} (in {os.getcwd()!r}).")
    try:
        source = open_files(paths)
    except RuntimeError as error:
        raise _damaged(error, next(path for path in paths if _fails(open_files, [path]))) from error
    fetch = by_rows(source, "ArrayRecordDataset")

    def fetch_checked(indices: range | np.ndarray) -> FetchedColumns:
        try:
            return fetch(indices)
        except RuntimeError as error:
            number = next((int(i) for i in indices if _fails(source.__getitem__, int(i))), None)
            raise _damaged(error, _file_of(number, paths, open_files)) from error

    signature = TensorSpec.on_host((), STRING)
    return Indexed(fetch_checked, len(source), "ArrayRecordDataset", True, signature)


def _fails(function: Callable[[T], object], argument: T) -> bool:
    try:
        function(argument)
    except RuntimeError:
        return True
    return False


def _file_of(
    number: int | None, paths: Sequence[str], open_files: Callable[[list[str]], Sized]
) -> str | None:
    """Returns the file that has the record of this number."""
    if number is None:
        return None
    ends = itertools.accumulate(len(open_files([path])) for path in paths)
    return next(path for path, end in zip(paths, ends) if number < end)


def _damaged(error: RuntimeError, path: str | None) -> DataLossError:
    """Returns the error for a damaged file: the package says what is wrong, not where."""
    place = re.search(r"at byte (\d+)", str(error))
    reason = str(error) or "it is cut off, or no ArrayRecord file"
    name = "An ArrayRecord file" if path is None else f"The ArrayRecord file {path!r}"
    return DataLossError(f"{name} is damaged: {reason}.", path, int(place[1]) if place else None)
