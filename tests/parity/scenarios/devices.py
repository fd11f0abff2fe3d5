"""How strategies are made from devices."""

from __future__ import annotations

from typing import Any

from .._expected import raises
from .._library import Library, nothing
from .._registry import ours, scenario

SPELLINGS = {
    "short": ["CPU:0", "CPU:1"],
    "lower": ["cpu:0", "cpu:1"],
    "slash": ["/cpu:0", "/cpu:2"],
    "device": ["/device:CPU:0", "/device:CPU:3"],
    "full": [
        "/job:localhost/replica:0/task:0/device:CPU:1",
        "/job:localhost/replica:0/task:0/device:CPU:0",
    ],
    "mixed": ["CPU:0", "/device:cpu:1", "/cpu:2"],
    "tuple": ("CPU:2", "CPU:1"),
    "one": ["CPU:3"],
    "all": [f"CPU:{index}" for index in range(8)],
}


def _devices(lib: Library, strategy: Any) -> Any:
    return [lib.device_name(device) for device in strategy.extended.worker_devices]


@scenario(spelling=tuple(SPELLINGS))
def mirrored_over(lib: Library, spelling: str) -> Any:
    strategy = lib.mirrored(SPELLINGS[spelling])
    return {
        "replicas": strategy.num_replicas_in_sync,
        "devices": _devices(lib, strategy),
        "ids": lib.run(strategy, lib.replica_id),
    }


@scenario(argument=("none", "empty"))
def mirrored_over_all(lib: Library, argument: str) -> Any:
    strategy = lib.mirrored(None if argument == "none" else [])
    return {"replicas": strategy.num_replicas_in_sync, "devices": _devices(lib, strategy)}


WRONG_DEVICES = {
    "unknown": ["CPU:0", "CPU:99"],
    "duplicate": ["CPU:0", "CPU:0"],
    "duplicate_spelling": ["CPU:0", "/device:cpu:0"],
    "nonsense": ["CPU:0", "not a device"],
    "text": "CPU:0",
    "number": 3,
}


@scenario(devices=tuple(WRONG_DEVICES))
@ours("unknown devices are refused at once", raises("ValueError"), devices="unknown")
@ours("one text is not a list of devices", raises("TypeError"), devices="text")
def mirrored_over_wrong_devices(lib: Library, devices: str) -> Any:
    return lib.outcome(lambda: lib.mirrored(WRONG_DEVICES[devices]).num_replicas_in_sync)


@scenario(
    device=(
        "CPU:0",
        "CPU:2",
        "/device:CPU:1",
        "/cpu:3",
        "/job:localhost/replica:0/task:0/device:CPU:1",
    )
)
def one_device_over(lib: Library, device: str) -> Any:
    strategy = lib.distribute.OneDeviceStrategy(device)
    with strategy.scope():
        variable = lib.Variable(1.0)
    result = lib.run(strategy, lambda: lib.constant([1.0]) + variable)
    return {
        "replicas": strategy.num_replicas_in_sync,
        "devices": _devices(lib, strategy),
        "variable": lib.device(variable),
        "result": lib.device(result),
    }


@scenario(device=("CPU:99", "not a device"))
@ours("unknown devices are refused at once", raises("ValueError"), device="CPU:99")
def one_device_over_a_wrong_device(lib: Library, device: str) -> Any:
    return lib.outcome(lambda: lib.distribute.OneDeviceStrategy(device).num_replicas_in_sync)


@scenario(compute=(2, 3), parameter=("CPU:0", "CPU:3"))
def central_storage_over(lib: Library, compute: int, parameter: str) -> Any:
    strategy = lib.experimental.CentralStorageStrategy(
        [f"CPU:{index}" for index in range(compute)], parameter
    )
    with strategy.scope():
        variable = lib.variable(1.0, aggregation="SUM")
    lib.run(strategy, lambda: nothing(variable.assign_add(lib.replica_number())))
    return {
        "replicas": strategy.num_replicas_in_sync,
        "workers": _devices(lib, strategy),
        "parameters": [lib.device_name(device) for device in strategy.extended.parameter_devices],
        "variable": variable,
    }


@scenario("mirrored3", eager_only="compiled results are one array")
def results_live_on_their_devices(lib: Library, strategy: Any) -> Any:
    result = lib.run(strategy, lambda: lib.constant([1.0]) * lib.replica_number())
    return [lib.device(item) for item in result.values]


@scenario("mirrored2", eager_only="compiled results are one array")
def mirrored_values_live_on_their_devices(lib: Library, strategy: Any) -> Any:
    with strategy.scope():
        value = strategy.extended.broadcast_to(lib.constant(1.0), lib.variable(0.0))
    return [lib.device(item) for item in value.values]


@scenario("mirrored2", target=("CPU:3", "CPU:1"))
def reduce_to_lands_on_its_device(lib: Library, strategy: Any, target: str) -> Any:
    with strategy.scope():
        value = lib.per_replica(strategy, [1.0, 2.0])
        reduced = strategy.extended.reduce_to(lib.distribute.ReduceOp.SUM, value, target)
    return [lib.device(item) for item in strategy.experimental_local_results(reduced)]
