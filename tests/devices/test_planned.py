"""Devices that are not here: their names, numbers and errors."""

import importlib.util

import pytest

import replicax as rx
from replicax._src.devices import plan_of, replaced_by, replica_mesh, resolve, short_name
from replicax._src.devices._planned import HARDWARE


def test_virtual_devices_of_one_host_and_of_several():
    one, two = rx.config.planned_devices("cpu:8"), rx.config.planned_devices("CPU:2x4")
    assert len(one) == len(two) == 8
    assert one.hosts == 1 and two.hosts == 2
    assert [two.host_of(device) for device in two] == [0] * 4 + [1] * 4
    assert rx.config.planned_devices("cpu:8") is one, "programs can be cached"


def test_names_lead_back_to_the_devices():
    devices = rx.config.planned_devices("cpu:2x4")
    strategy = rx.distribute.MirroredStrategy(devices)
    names = strategy.extended.worker_devices
    assert names[5] == "/job:cpu-2x4/replica:0/task:1/device:CPU:5"
    assert resolve(names[5]) is devices[5] and short_name(devices[5]) == "CPU:5"
    assert plan_of(resolve("CPU:0")) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v9:4x4", r"Known are v5e, v5p, v6e, a100.*'v5e:16x16'"),
        ("v5e", r"no hardware that can be planned for"),
        ("cpu:0", r"no devices"),
        ("cpu:2x2x2", r"'cpu:2x4' for 2 hosts"),
        ("h200:8", r"'h200:32x8' for 32 hosts"),
    ],
)
def test_names_that_do_not_exist_list_those_that_do(name: str, words: str):
    with pytest.raises(rx.errors.DeviceError, match=words):
        rx.config.planned_devices(name)


def test_the_arguments_are_checked():
    with pytest.raises(TypeError, match="'v5e:16x16'"):
        rx.config.planned_devices(8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="number of bytes"):
        rx.config.planned_devices("cpu:8", memory=0)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(rx.errors.DeviceError, match=r'pip install "replicax\[plan\]"'):
        rx.config.planned_devices("v6e:2x4")
    with pytest.raises(rx.errors.DeviceError, match=r'pip install "replicax\[cuda12\]"'):
        rx.config.planned_devices("h200:1x8")


def test_memory_may_be_other_than_published():
    assert rx.config.planned_devices("cpu:2", memory=10**9).hardware.memory == 10**9
    assert HARDWARE["v5e"].memory == 15.75 * 2**30


def test_a_script_gets_planned_devices_whatever_it_asks_for():
    planned = rx.config.planned_devices("cpu:4")
    with replaced_by(planned):
        everyone = rx.distribute.MirroredStrategy()
        some = rx.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
        pairs = rx.distribute.MirroredStrategy(logical_devices_per_replica=2)
        one = rx.distribute.OneDeviceStrategy("GPU:0")
        tpu = rx.distribute.TPUStrategy()
    assert everyone.num_replicas_in_sync == some.num_replicas_in_sync == 4
    assert tpu.num_replicas_in_sync == 4 and pairs.num_replicas_in_sync == 2
    assert resolve(one.extended.worker_devices[0]) is planned[0]
    assert rx.distribute.MirroredStrategy(["CPU:0"]).num_replicas_in_sync == 1


def test_the_mesh_of_several_hosts_packs_as_between_workers():
    one, two = (rx.config.planned_devices(name) for name in ("cpu:8", "cpu:2x4"))
    assert replica_mesh(tuple(two)).packing != replica_mesh(tuple(one)).packing
