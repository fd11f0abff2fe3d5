"""The replica mesh over devices that are not here: its arrays have shapes and no values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from replicax._src._planned_arrays import PlannedArray, no_value
from replicax._src._typing import ArrayInput, Device, PyTree, override
from replicax._src.devices._mesh import ReplicaMesh
from replicax._src.devices._packing import BETWEEN_WORKERS, IN_ONE_PROCESS
from replicax._src.devices._planned import PlannedDevices


@final
class PlannedMesh(ReplicaMesh):
    """All replicas are of this process for Python, whatever host they are of."""

    def __init__(self, devices: tuple[Device, ...], plan: PlannedDevices):
        super().__init__(devices)
        self.plan = plan
        several = len({device.process_index for device in self.mesh.devices.flat}) > 1
        self.packing = BETWEEN_WORKERS if several or plan.hosts > 1 else IN_ONE_PROCESS

    @override
    def wait_for(self, inputs: PyTree) -> None:
        pass

    @override
    def call(
        self, program: Callable[..., Any], results: list[Any], *args: Any, what: str = ""
    ) -> None:
        def planned(shape: Any) -> Any:
            return PlannedArray.like(shape, self.replicated)

        shapes: Any = jax.eval_shape(program, *args)  # pyright: ignore[reportUnknownMemberType]
        results.append(jax.tree.map(planned, shapes))

    @override
    def _spread(self, value: ArrayInput, sharding: NamedSharding) -> Any:
        return PlannedArray.like(value, sharding)

    @override
    def _relaid(self, array: jax.Array, sharding: NamedSharding) -> Any:
        return PlannedArray.like(array, sharding)

    @override
    def assemble(self, components: Sequence[jax.Array]) -> Any:
        cuts = {self._cut(part, index) for index, part in enumerate(components)}
        cut = cuts.pop() if len(cuts) == 1 else None
        sharding = self.replicated if cut is None else NamedSharding(self.mesh, cut)
        return PlannedArray.like(components[0], sharding)

    @override
    def assemble_from_host(self, components: Sequence[np.ndarray]) -> Any:
        return PlannedArray.like(components[0], self.replicated)

    @override
    def component(self, array: jax.Array, index: int, logical: int | None = None) -> Any:
        spec = getattr(array.sharding, "spec", PartitionSpec())
        if self.logical_devices == 1 or logical is not None or not any(spec):
            device = self.logical_device(index, logical or 0)
            return PlannedArray.like(array, SingleDeviceSharding(device))
        return PlannedArray.like(array, NamedSharding(self._replicas[index], spec))

    @override
    def collected(self, array: jax.Array) -> Any:
        return self.component(array, 0, 0)

    @override
    def for_host(self, array: jax.Array) -> Any:
        raise no_value("the value of a variable")
