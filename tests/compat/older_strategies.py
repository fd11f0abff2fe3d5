"""The strategies of `rx.compat.v1.distribute` that tests run over."""

from collections.abc import Callable
from typing import Any

import replicax as rx
from tests.under_test import Executor, cpus

distribute = rx.compat.v1.distribute

OLDER: dict[str, Callable[[], Any]] = {
    "one_device": lambda: distribute.OneDeviceStrategy("CPU:1"),
    "mirrored_1": lambda: distribute.MirroredStrategy(cpus(1)),
    "mirrored_2": lambda: distribute.MirroredStrategy(cpus(2)),
    "mirrored_3": lambda: distribute.MirroredStrategy(cpus(3)),
    "central_storage_2": lambda: distribute.experimental.CentralStorageStrategy(
        cpus(2), parameter_device="CPU:0"
    ),
    "multi_worker_alone": lambda: distribute.experimental.MultiWorkerMirroredStrategy(),
    "tpu": lambda: distribute.experimental.TPUStrategy(),
}


def call(executor: Executor, fn: Callable[[], Any]) -> Any:
    """Calls a function that runs replicas: as it is, or as an `rx.function`."""
    return rx.function(fn)() if executor.name == "compiled" else fn()
