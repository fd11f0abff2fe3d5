"""`rx.types`: classes to check types with."""

from replicax.types import experimental as experimental
