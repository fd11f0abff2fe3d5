"""Reading files: TFRecords, lines of text, records of fixed length, Parquet."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from replicax._arrays import STRING
from replicax.data._blocks import Block, Columns, Held, RecordRows
from replicax.data._elements import Structure, as_leaf
from replicax.data._node import Node, Pulled, Reader, observed_spec
from replicax.data._run import Run
from replicax.data._sources import TensorSlices
from replicax.functions import TensorSpec
from replicax.records import scan_fixed, scan_lines, scan_tfrecords


@dataclasses.dataclass(frozen=True, eq=False)
class Files(Node):
    """The records of files, one file after the other."""

    names: Node  # a data set of file names
    scan: Callable[[str], Iterator[Block]]
    kind: str
    yields_records: bool = True

    @property
    def label(self) -> str:  # type: ignore[override]
        return self.kind

    def open(self, run: Run) -> Reader:
        return Pulled(self._blocks(self.names.open(run)))

    def _blocks(self, names: Reader) -> Generator[Block]:
        try:
            while len(block := names.take(1)):
                yield from self.scan(file_name(block.rows()[0]))
        finally:
            names.close()

    def _spec(self) -> Any:
        return TensorSpec.on_host((), STRING) if self.yields_records else observed_spec(self)

    def details(self) -> str:
        count = self.names.cardinality
        return f"{count} file(s)" if count >= 0 else "files"


def file_name(name: Any) -> str:
    if not isinstance(name, bytes | str):
        raise TypeError(f"A file name must be text; got {name!r}.")
    return os.fsdecode(name)


def names_node(filenames: Any) -> Node:
    """The data set of file names from what a user passes: one name, several, or a data set."""
    node = getattr(filenames, "_data_set_node", None)
    if node is not None:
        return node
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
    """Rows of Parquet files as dicts; needs the package pyarrow."""
    try:
        import pyarrow.parquet as reader  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "ParquetDataset needs the package pyarrow, which is not installed. Run: pip install "
            "'replicax[parquet]'."
        ) from None

    def scan(path: str) -> Iterator[Block]:
        with reader.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=columns)
                yield _parquet_block(table)

    return Files(names, scan, "ParquetDataset", yields_records=False)


def _parquet_block(table: Any) -> Block:
    arrays: dict[str, np.ndarray] = {}
    for name, column in zip(table.column_names, table.columns):
        combined = column.combine_chunks()
        kind = combined.type
        if hasattr(kind, "list_size"):  # rows of one length
            flat = combined.flatten().to_numpy(zero_copy_only=False)
            arrays[name] = flat.reshape(len(combined), kind.list_size)
            continue
        values = combined.to_numpy(zero_copy_only=False)
        if values.dtype == object and len(values) and isinstance(values[0], np.ndarray):
            values = _rows_of_one_length(values, name)
        arrays[name] = as_leaf(values)
    return Columns(list(arrays.values()), Structure(arrays))


def _rows_of_one_length(values: np.ndarray, name: str) -> np.ndarray:
    lengths = {len(value) for value in values}
    if len(lengths) > 1:
        raise ValueError(
            f"The column {name!r} of a Parquet file holds lists of different lengths "
            f"({min(lengths)} to {max(lengths)}), which are no array. Leave it out with `columns`."
        )
    return np.stack(list(values))


def is_file_reader(node: Node) -> bool:
    return isinstance(node, Files)
