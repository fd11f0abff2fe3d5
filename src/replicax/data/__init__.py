"""`rx.data`: input pipelines, under the names of `tf.data`."""

from replicax.data import experimental as experimental
from replicax.data._dataset import Dataset as Dataset
from replicax.data._file_datasets import ArrayRecordDataset as ArrayRecordDataset
from replicax.data._file_datasets import FixedLengthRecordDataset as FixedLengthRecordDataset
from replicax.data._file_datasets import ParquetDataset as ParquetDataset
from replicax.data._file_datasets import TextLineDataset as TextLineDataset
from replicax.data._file_datasets import TFRecordDataset as TFRecordDataset
from replicax.data._iterator import DatasetIterator as Iterator
from replicax.data._node import INFINITE as INFINITE_CARDINALITY
from replicax.data._node import UNKNOWN as UNKNOWN_CARDINALITY
from replicax.data._options import AUTOTUNE as AUTOTUNE
from replicax.data._options import Options as Options

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ArrayRecordDataset",
    "Dataset",
    "FixedLengthRecordDataset",
    "Iterator",
    "Options",
    "ParquetDataset",
    "TFRecordDataset",
    "TextLineDataset",
    "experimental",
]
