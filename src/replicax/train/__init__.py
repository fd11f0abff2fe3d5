"""`rx.train`: the messages that records are made of, under TensorFlow's names."""

from replicax.records import BytesList as BytesList
from replicax.records import Example as Example
from replicax.records import Feature as Feature
from replicax.records import Features as Features
from replicax.records import FloatList as FloatList
from replicax.records import Int64List as Int64List
