"""Files of records: TFRecord, text and fixed-length files, and the examples in them. No TensorFlow.

Nothing here knows of data sets, devices or JAX. A file name goes in and blocks of bytes come out
(`_tfrecord.py`, `_plain.py`); `parse_example` (`_example.py`) makes arrays of them.
"""

from replicax._src.records._example import Unparsed as Unparsed
from replicax._src.records._example import parse_example as parse_example
from replicax._src.records._example import parse_single_example as parse_single_example
from replicax._src.records._features import FeatureConfig as FeatureConfig
from replicax._src.records._features import FixedLenFeature as FixedLenFeature
from replicax._src.records._features import FixedLenSequenceFeature as FixedLenSequenceFeature
from replicax._src.records._features import PaddedRows as PaddedRows
from replicax._src.records._features import RaggedFeature as RaggedFeature
from replicax._src.records._features import SparseTensor as SparseTensor
from replicax._src.records._features import VarLenFeature as VarLenFeature
from replicax._src.records._features import to_dense as to_dense
from replicax._src.records._messages import BytesList as BytesList
from replicax._src.records._messages import Example as Example
from replicax._src.records._messages import Feature as Feature
from replicax._src.records._messages import FeatureList as FeatureList
from replicax._src.records._messages import FeatureLists as FeatureLists
from replicax._src.records._messages import Features as Features
from replicax._src.records._messages import FloatList as FloatList
from replicax._src.records._messages import Int64List as Int64List
from replicax._src.records._messages import SequenceExample as SequenceExample
from replicax._src.records._plain import scan_fixed as scan_fixed
from replicax._src.records._plain import scan_lines as scan_lines
from replicax._src.records._records import RecordArray as RecordArray
from replicax._src.records._records import Records as Records
from replicax._src.records._sequence_example import (
    parse_sequence_example as parse_sequence_example,
)
from replicax._src.records._sequence_example import (
    parse_single_sequence_example as parse_single_sequence_example,
)
from replicax._src.records._source import FileName as FileName
from replicax._src.records._tfrecord import scan_tfrecords as scan_tfrecords
from replicax._src.records._writer import TFRecordOptions as TFRecordOptions
from replicax._src.records._writer import TFRecordWriter as TFRecordWriter
