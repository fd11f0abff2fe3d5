"""Reading files: TFRecords, lines of text, records of fixed length, Parquet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, final

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._errors import DataLossError, add_note
from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import override
from replicax._src.data._arrow import arrow_block
from replicax._src.data._blocks import Block, Held, RecordRows
from replicax._src.data._elements import DatasetBase
from replicax._src.data._node import Node, Pulled, Reader, observed_spec
from replicax._src.data._run import Run
from replicax._src.data._sources import TensorSlices
from replicax._src.records import FileName, scan_fixed, scan_lines, scan_tfrecords

FileNames = FileName | Iterable[FileName]


@final
class Files(Node):
    """The records of files, one file after the other."""

    names: Node  # a data set of file names
    scan: Callable[[str], Iterator[Block]]
    kind: str
    yields_records: bool = True

    @property
    @override
    def label(self) -> str:  # type: ignore[override]
        return self.kind

    @override
    def open(self, run: Run) -> Reader:
        return Pulled(self._blocks(self.names.open(run)))

    def _blocks(self, names: Reader) -> Generator[Block]:
        try:
            while len(block := names.take(1)):
                yield from self.scan(file_name(block.rows()[0]))
        finally:
            names.close()

    @override
    def _spec(self) -> Any:
        return TensorSpec.on_host((), STRING) if self.yields_records else observed_spec(self)

    @override
    def details(self) -> str:
        count = self.names.cardinality
        return f"{count} file(s)" if count >= 0 else "files"


def file_name(name: object) -> str:
    if not isinstance(name, bytes | str):
        raise TypeError(f"A file name must be text; got {name!r}.")
    return os.fsdecode(name)


def names_node(filenames: FileNames | DatasetBase) -> Node:
    """Returns a data set of file names, of what a user passes: one, several, or a data set."""
    if isinstance(filenames, DatasetBase):
        return filenames._data_set_node
    if isinstance(filenames, str | bytes | os.PathLike):
        filenames = [filenames]
    try:
        names = [os.fspath(name) for name in np.asarray(filenames, object).ravel().tolist()]
    except TypeError:
        raise TypeError(
            "The file names of a data set are one text, a list of texts, or a data set of texts; "
            f"got {filenames!r}."
        ) from None
    if not names:
        raise ValueError("A data set of files needs at least one file name; the list is empty.")
    return TensorSlices.of(np.array([os.fsencode(name) for name in names], object))


def tfrecords(names: Node, compression_type: str | None) -> Files:
    def scan(path: str) -> Iterator[Block]:
        for records in scan_tfrecords(path, compression_type):
            yield RecordRows(records)

    return Files(names, scan, "TFRecordDataset")


def text_lines(names: Node, compression_type: str | None) -> Files:
    def scan(path: str) -> Iterator[Block]:
        for lines in scan_lines(path, compression_type):
            yield Held(lines)

    return Files(names, scan, "TextLineDataset")


def fixed_length_records(
    names: Node, record: int, header: int, footer: int, compression_type: str | None
) -> Files:
    def scan(path: str) -> Iterator[Block]:
        for records in scan_fixed(path, record, header, footer, compression_type):
            yield RecordRows(records)

    return Files(names, scan, "FixedLengthRecordDataset")


def parquet(names: Node, columns: list[str] | None) -> Files:
    """Returns the rows of Parquet files as dicts; needs the package pyarrow."""
    try:
        import pyarrow.parquet as reader  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "ParquetDataset needs the package pyarrow, which is not installed. Run: pip install "
            "'replicax[parquet]'."
        ) from None

    def scan(path: str) -> Iterator[Block]:
        with _naming_damage(path):
            file = reader.ParquetFile(path)
        with file:
            _check_columns(columns, file.schema_arrow.names, path)
            for group in range(file.num_row_groups):
                with _naming_damage(path):
                    table = file.read_row_group(group, columns=columns)
                try:
                    block = arrow_block(table)
                except Exception as error:
                    add_note(error, f"Read from {path!r}; `columns` says which columns to read.")
                    raise
                yield block

    return Files(names, scan, "ParquetDataset", yields_records=False)


@contextlib.contextmanager
def _naming_damage(path: str) -> Iterator[None]:
    """Adds the file to what the package says is wrong with it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (ValueError, OSError) as error:
        raise DataLossError(
            f"The Parquet file {path!r} is damaged, or is none: {error}", path
        ) from error


def _check_columns(columns: list[str] | None, known: list[str], path: str) -> None:
    if columns is None:
        return
    missing = [name for name in columns if name.partition(".")[0] not in known]
    if missing or not columns:
        what = f"has no column {missing[0]!r}" if missing else "was to be read without a column"
        raise ValueError(f"The Parquet file {path!r} {what}. It has: {', '.join(known)}.")
