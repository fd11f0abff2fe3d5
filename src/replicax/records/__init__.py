"""Files of records: TFRecord, text and fixed-length files, and the examples in them. No TensorFlow.

Nothing here knows of data sets, devices or JAX. A file name goes in and blocks of bytes come out
(`_tfrecord.py`, `_lines.py`, `_fixed.py`); `parse_example` (`_example.py`) makes arrays of them.
"""

from replicax.records._example import parse_example as parse_example
from replicax.records._example import parse_single_example as parse_single_example
from replicax.records._features import FixedLenFeature as FixedLenFeature
from replicax.records._features import FixedLenSequenceFeature as FixedLenSequenceFeature
from replicax.records._features import VarLenFeature as VarLenFeature
from replicax.records._fixed import scan_fixed as scan_fixed
from replicax.records._lines import scan_lines as scan_lines
from replicax.records._messages import BytesList as BytesList
from replicax.records._messages import Example as Example
from replicax.records._messages import Feature as Feature
from replicax.records._messages import Features as Features
from replicax.records._messages import FloatList as FloatList
from replicax.records._messages import Int64List as Int64List
from replicax.records._record_array import RecordArray as RecordArray
from replicax.records._records import Records as Records
from replicax.records._source import check_compression_type as check_compression_type
from replicax.records._sparse import SparseTensor as SparseTensor
from replicax.records._sparse import to_dense as to_dense
from replicax.records._tfrecord import scan_tfrecords as scan_tfrecords
from replicax.records._unparsed import Unparsed as Unparsed
from replicax.records._writer import TFRecordOptions as TFRecordOptions
from replicax.records._writer import TFRecordWriter as TFRecordWriter
