"""`rx.summary`: what a program wants to show in TensorBoard, under the names of `tf.summary`."""

from replicax._src._public import name_publicly as _name_publicly
from replicax._src.watching import SummaryWriter as SummaryWriter
from replicax._src.watching import create_file_writer as create_file_writer
from replicax._src.watching import create_noop_writer as create_noop_writer
from replicax._src.watching import flush as flush
from replicax._src.watching import histogram as histogram
from replicax._src.watching import image as image
from replicax._src.watching import record_if as record_if
from replicax._src.watching import scalar as scalar
from replicax._src.watching import should_record_summaries as should_record_summaries
from replicax._src.watching import text as text

_name_publicly(__name__)
