"""TensorFlow in one worker of a job: the oracle. Only recording loads it."""

from __future__ import annotations

import importlib
from typing import Any

from ._layout import Layout
from ._tensorflow import TensorFlowLibrary
from ._worker import InJob


class TensorFlowInJob(TensorFlowLibrary, InJob):
    """TensorFlow with the `MultiWorkerMirroredStrategy` that `TF_CONFIG` describes."""

    def __init__(self, layout: Layout, worker: int) -> None:
        super().__init__()
        self.layout, self.worker = layout, worker
        module: Any = importlib.import_module(
            "tensorflow.python.distribute.collective_all_reduce_strategy"
        )

        # A worker without accelerators has one replica. Here it has one for each virtual CPU, so
        # that workers of several replicas can be recorded too.
        def local_devices(_: Any, __: Any, worker_device: str) -> Any:
            return tuple(f"{worker_device}/device:CPU:{i}" for i in range(layout.devices)), "CPU"

        module.CollectiveAllReduceExtended._initialize_local_devices = local_devices
        self.job_strategy = self.distribute.MultiWorkerMirroredStrategy()
