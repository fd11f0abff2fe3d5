"""Watching a program at work: progress on the terminal, summaries for TensorBoard, profiles.

All of it happens once in a job: on the first worker, and of eager replicas on the first.
`_held_values.py` is what they share: values are kept as they are, and waited for when shown.
"""

from replicax._src.watching._profile import Profile as Profile
from replicax._src.watching._profile import profile as profile
from replicax._src.watching._progress import Progress as Progress
from replicax._src.watching._progress import progress as progress
from replicax._src.watching._summaries import flush as flush
from replicax._src.watching._summaries import histogram as histogram
from replicax._src.watching._summaries import image as image
from replicax._src.watching._summaries import scalar as scalar
from replicax._src.watching._summaries import text as text
from replicax._src.watching._summary_writer import SummaryWriter as SummaryWriter
from replicax._src.watching._summary_writer import create_file_writer as create_file_writer
from replicax._src.watching._summary_writer import create_noop_writer as create_noop_writer
from replicax._src.watching._summary_writer import record_if as record_if
from replicax._src.watching._summary_writer import (
    should_record_summaries as should_record_summaries,
)
