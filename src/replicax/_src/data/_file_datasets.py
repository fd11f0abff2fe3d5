"""Data sets of files, as users make them: TFRecords, text, fixed length, Parquet, ArrayRecord."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import TypeVar

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._errors import DataLossError
from replicax._src._tensor_spec import TensorSpec
from replicax._src.data._arguments import as_count
from replicax._src.data._arrow import scan_parquet
from replicax._src.data._blocks import Block, Held, RecordRows
from replicax._src.data._dataset import Dataset
from replicax._src.data._elements import DatasetBase
from replicax._src.data._indexed import FetchedColumns, Indexed, by_rows
from replicax._src.data._run import Run
from replicax._src.data._sources import FileNames, Files, file_name, names_node
from replicax._src.records import scan_fixed, scan_lines, scan_tfrecords


class TFRecordDataset(Dataset):
    """The records of TFRecord files, as bytes. Checksums are verified.

    Args:
      filenames: a name, a list of names, or a data set of names.
      compression_type: None or "", "GZIP", or "ZLIB".
      buffer_size: kept for ported code, as `num_parallel_reads`: files are read in large blocks,
        one after the other.
    """

    def __init__(
        self,
        filenames: FileNames | DatasetBase,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ):
        def scan(path: str) -> Iterator[Block]:
            return (RecordRows(records) for records in scan_tfrecords(path, compression_type))

        super().__init__(Files(names_node(filenames), scan, "TFRecordDataset"))


class TextLineDataset(Dataset):
    """The lines of text files, as bytes without their line ends.

    Args: as of `TFRecordDataset`.
    """

    def __init__(
        self,
        filenames: FileNames | DatasetBase,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ):
        def scan(path: str) -> Iterator[Block]:
            return (Held(lines) for lines in scan_lines(path, compression_type))

        super().__init__(Files(names_node(filenames), scan, "TextLineDataset"))


class FixedLengthRecordDataset(Dataset):
    """Records of `record_bytes` bytes each, between a header and a footer.

    Other arguments: as of `TFRecordDataset`.
    """

    def __init__(
        self,
        filenames: FileNames | DatasetBase,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ):
        record = as_count(record_bytes, "FixedLengthRecordDataset(record_bytes=...)", 1)
        header = as_count(header_bytes or 0, "FixedLengthRecordDataset(header_bytes=...)", 0)
        footer = as_count(footer_bytes or 0, "FixedLengthRecordDataset(footer_bytes=...)", 0)

        def scan(path: str) -> Iterator[Block]:
            found = scan_fixed(path, record, header, footer, compression_type)
            return (RecordRows(records) for records in found)

        super().__init__(Files(names_node(filenames), scan, "FixedLengthRecordDataset"))


class ParquetDataset(Dataset):
    """The rows of Parquet files, as dicts. Needs `pip install 'replicax[parquet]'`.

    Args:
      filenames: a name, a list of names, or a data set of names.
      columns: which columns to read; all by default.
    """

    def __init__(self, filenames: FileNames | DatasetBase, columns: list[str] | None = None):
        try:
            import pyarrow.parquet  # noqa: F401  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ImportError(
                "ParquetDataset needs the package pyarrow, which is not installed. Run: pip "
                "install 'replicax[parquet]'."
            ) from None

        def scan(path: str) -> Iterator[Block]:
            return scan_parquet(path, columns)

        super().__init__(Files(names_node(filenames), scan, "ParquetDataset", False))


class ArrayRecordDataset(Dataset):
    """The records of ArrayRecord files, as bytes, read by index: shuffling costs nothing.

    Needs `pip install 'replicax[arrayrecord]'`.

    Args:
      filenames: a name, or a list of names.
    """

    def __init__(self, filenames: FileNames | DatasetBase):
        names = names_node(filenames).open(Run()).take(1 << 30).rows()
        super().__init__(array_records([file_name(name) for name in names]))


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
