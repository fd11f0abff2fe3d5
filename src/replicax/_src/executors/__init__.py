"""The eager world, in which replicas are threads that take turns."""

from replicax._src.executors._eager_world import EagerWorld as EagerWorld
