"""`rx.io`: TFRecord files and the examples in them, written and parsed without TensorFlow."""

from replicax._src.records import FixedLenFeature as FixedLenFeature
from replicax._src.records import FixedLenSequenceFeature as FixedLenSequenceFeature
from replicax._src.records import PaddedRows as PaddedRows
from replicax._src.records import RaggedFeature as RaggedFeature
from replicax._src.records import SparseTensor as SparseTensor
from replicax._src.records import TFRecordOptions as TFRecordOptions
from replicax._src.records import TFRecordWriter as TFRecordWriter
from replicax._src.records import VarLenFeature as VarLenFeature
from replicax._src.records import parse_example as parse_example
from replicax._src.records import parse_sequence_example as parse_sequence_example
from replicax._src.records import parse_single_example as parse_single_example
from replicax._src.records import parse_single_sequence_example as parse_single_sequence_example
from replicax._src.records import to_dense as to_dense
from replicax.io import gfile as gfile
