"""Data sets of other libraries, and plain iterables, as nodes."""

from replicax._src.data.foreign._foreign import Distributed as Distributed
from replicax._src.data.foreign._foreign import foreign_node as foreign_node
