"""What other rooms may ask of a strategy, which users are not to see."""

from __future__ import annotations

from replicax._src.data.distributed import InputLayout
from replicax._src.devices import ReplicaMesh, replica_mesh
from replicax._src.strategies._strategy import Strategy


def input_layout_of(strategy: Strategy) -> InputLayout:
    """Returns who reads data sets: which workers there are, with which replicas."""
    return strategy.extended._input_layout


def replica_mesh_of(strategy: Strategy) -> ReplicaMesh:
    """Returns the mesh of the strategy's replicas."""
    return replica_mesh(strategy.extended._replica_devices)
