"""`rx.data`: input pipelines, under the names of `tf.data`."""

from replicax._src.data import AUTOTUNE as AUTOTUNE
from replicax._src.data import INFINITE as INFINITE_CARDINALITY
from replicax._src.data import UNKNOWN as UNKNOWN_CARDINALITY
from replicax._src.data import ArrayRecordDataset as ArrayRecordDataset
from replicax._src.data import Dataset as Dataset
from replicax._src.data import DatasetIterator as Iterator
from replicax._src.data import FixedLengthRecordDataset as FixedLengthRecordDataset
from replicax._src.data import Options as Options
from replicax._src.data import ParquetDataset as ParquetDataset
from replicax._src.data import TextLineDataset as TextLineDataset
from replicax._src.data import TFRecordDataset as TFRecordDataset
from replicax.data import experimental as experimental

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
