"""The strategies of `rx.compat.v1.distribute`: the current ones, with methods of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replicax._src import strategies
from replicax._src._typing import Device, override
from replicax._src.cluster.resolvers import ClusterResolver
from replicax._src.collectives import (
    CommunicationImplementation,
    CommunicationOptions,
    CrossDeviceOps,
)
from replicax._src.compat import _session_config
from replicax._src.compat._session_config import SessionConfig
from replicax._src.compat._strategy import Strategy
from replicax._src.devices import DeviceAssignment


class MirroredStrategy(Strategy, strategies.MirroredStrategy):
    """`rx.distribute.MirroredStrategy` with the methods of TensorFlow 1.

    Args:
      devices: device names, one for each replica; by default all GPUs, else all CPU devices.
      cross_device_ops: how values are combined across devices; `NcclAllReduce()` by default.
    """

    def __init__(
        self,
        devices: Sequence[str | Device] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
    ):
        super().__init__(devices, cross_device_ops)

    @override
    def _adapt(self, config: SessionConfig) -> None:
        _session_config.isolate(config)


class OneDeviceStrategy(Strategy, strategies.OneDeviceStrategy):
    """`rx.distribute.OneDeviceStrategy` with the methods of TensorFlow 1.

    Args:
      device: a device name such as `"GPU:0"`.
    """


class CentralStorageStrategy(Strategy, strategies.CentralStorageStrategy):
    """`rx.distribute.experimental.CentralStorageStrategy` with the methods of TensorFlow 1.

    Args:
      compute_devices: devices for the replicas; by default as for `MirroredStrategy`.
      parameter_device: where variables live; by default the only compute device, else the CPU.
    """

    @override
    def _adapt(self, config: SessionConfig) -> None:
        _session_config.isolate(config)


class MultiWorkerMirroredStrategy(Strategy, strategies.MultiWorkerMirroredStrategy):
    """`rx.distribute.MultiWorkerMirroredStrategy` with the methods and arguments of TensorFlow 1.

    Args:
      communication: a `CommunicationImplementation`, or its name; XLA chooses by itself.
      cluster_resolver: describes the cluster; None: from the environment.
    """

    def __init__(
        self,
        communication: CommunicationImplementation | str = CommunicationImplementation.AUTO,
        cluster_resolver: ClusterResolver | None = None,
    ):
        chosen: Any = communication  # it takes names, too
        options = CommunicationOptions(implementation=chosen)
        self._communication = options.implementation
        super().__init__(cluster_resolver, options)

    @override
    def _adapt(self, config: SessionConfig) -> None:
        _session_config.use_collectives(config, self._communication, self.cluster_resolver)


class TPUStrategy(Strategy, strategies.TPUStrategy):
    """`rx.distribute.TPUStrategy` with the methods and arguments of TensorFlow 1.

    Args:
      tpu_cluster_resolver: a `TPUClusterResolver`; None for the devices of this host.
      steps_per_run: kept for ported code; `rx.function(step).steps(...)` makes many steps at once.
      device_assignment: an `rx.tpu.experimental.DeviceAssignment`.
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        steps_per_run: int | None = None,
        device_assignment: DeviceAssignment | None = None,
    ):
        self._steps_per_run = 1 if steps_per_run is None else steps_per_run
        super().__init__(tpu_cluster_resolver, device_assignment)

    @property
    def steps_per_run(self) -> int:
        """What was given; 1 by default."""
        return self._steps_per_run

    @override
    def _adapt(self, config: SessionConfig) -> None:
        _session_config.isolate(config)
        _session_config.name_hosts(config, self.cluster_resolver.cluster_spec())
