"""`rx.compat`: the names of older programs."""

from replicax._src._old_names import OldNameWarning as OldNameWarning
from replicax.compat import v1 as v1
