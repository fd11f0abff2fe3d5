"""`rx.types.experimental`: the two kinds of distributed values."""

from replicax._src.values import Mirrored as Mirrored
from replicax._src.values import PerReplica as PerReplica
