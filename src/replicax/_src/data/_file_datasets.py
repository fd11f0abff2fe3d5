"""Data sets of files, as users make them: TFRecords, text, fixed length, Parquet, ArrayRecord."""

from __future__ import annotations

from collections.abc import Iterator

from replicax._src.data._arguments import as_count
from replicax._src.data._array_record import array_records
from replicax._src.data._arrow import scan_parquet
from replicax._src.data._blocks import Block, Held, RecordRows
from replicax._src.data._dataset import Dataset
from replicax._src.data._elements import DatasetBase
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
