"""Data sets of other libraries, and plain iterables, as nodes."""

from replicax.data.foreign._foreign import foreign_node as foreign_node
