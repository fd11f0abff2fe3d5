"""`rx.io`: TFRecord files and the examples in them, written and parsed without TensorFlow."""

from replicax.records import FixedLenFeature as FixedLenFeature
from replicax.records import FixedLenSequenceFeature as FixedLenSequenceFeature
from replicax.records import SparseTensor as SparseTensor
from replicax.records import TFRecordOptions as TFRecordOptions
from replicax.records import TFRecordWriter as TFRecordWriter
from replicax.records import VarLenFeature as VarLenFeature
from replicax.records import parse_example as parse_example
from replicax.records import parse_single_example as parse_single_example
from replicax.records import to_dense as to_dense
