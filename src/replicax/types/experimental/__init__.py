"""`rx.types.experimental`: the two kinds of distributed values."""

from replicax.values import Mirrored as Mirrored
from replicax.values import PerReplica as PerReplica
