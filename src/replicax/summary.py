"""`rx.summary`: what a program wants to show in TensorBoard, under the names of `tf.summary`."""

from replicax.watching import SummaryWriter as SummaryWriter
from replicax.watching import create_file_writer as create_file_writer
from replicax.watching import create_noop_writer as create_noop_writer
from replicax.watching import flush as flush
from replicax.watching import histogram as histogram
from replicax.watching import image as image
from replicax.watching import record_if as record_if
from replicax.watching import scalar as scalar
from replicax.watching import should_record_summaries as should_record_summaries
from replicax.watching import text as text
