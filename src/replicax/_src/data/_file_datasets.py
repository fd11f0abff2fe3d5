"""Data sets of files, as users make them: TFRecords, text, fixed length, Parquet, ArrayRecord."""

from __future__ import annotations

from replicax._src.data import _files
from replicax._src.data._arguments import as_count
from replicax._src.data._array_record import array_records
from replicax._src.data._dataset import Dataset
from replicax._src.data._elements import DatasetBase
from replicax._src.data._files import FileNames
from replicax._src.data._run import Run


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
        super().__init__(_files.tfrecords(_files.names_node(filenames), compression_type))


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
        super().__init__(_files.text_lines(_files.names_node(filenames), compression_type))


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
        names = _files.names_node(filenames)
        super().__init__(
            _files.fixed_length_records(names, record, header, footer, compression_type)
        )


class ParquetDataset(Dataset):
    """The rows of Parquet files, as dicts. Needs `pip install 'replicax[parquet]'`.

    Args:
      filenames: a name, a list of names, or a data set of names.
      columns: which columns to read; all by default.
    """

    def __init__(self, filenames: FileNames | DatasetBase, columns: list[str] | None = None):
        super().__init__(_files.parquet(_files.names_node(filenames), columns))


class ArrayRecordDataset(Dataset):
    """The records of ArrayRecord files, as bytes, read by index: shuffling costs nothing.

    Needs `pip install 'replicax[arrayrecord]'`.

    Args:
      filenames: a name, or a list of names.
    """

    def __init__(self, filenames: FileNames | DatasetBase):
        names = _files.names_node(filenames).open(Run()).take(1 << 30).rows()
        super().__init__(array_records([_files.file_name(name) for name in names]))
