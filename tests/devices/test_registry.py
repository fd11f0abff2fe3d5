"""Listing devices and making virtual ones, in a process where JAX has not started."""

from pathlib import Path

import jax
import pytest

import replicax as rx
from tests.scripts import run_python


def run(program: str, folder: Path) -> str:
    (folder / "program.py").write_text("import jax, replicax as rx\n" + program)
    return run_python(["program.py"], folder, warm=True)


def test_virtual_devices_are_made_before_jax_starts(tmp_path: Path):
    program = """
cpus = rx.config.list_physical_devices("CPU")
rx.config.set_logical_device_configuration(cpus[0], [rx.config.LogicalDeviceConfiguration()] * 3)
print(len(rx.config.list_logical_devices("CPU")), len(jax.devices("cpu")))
print(rx.distribute.MirroredStrategy().num_replicas_in_sync)
"""
    assert run(program, tmp_path).split() == ["3", "3", "3"]


def test_listing_physical_devices_does_not_start_jax(tmp_path: Path):
    program = """
from jax._src import xla_bridge
print(rx.config.list_physical_devices()[0])
print(xla_bridge.backends_are_initialized())
"""
    assert run(program, tmp_path).split("\n")[1] == "False"


def test_too_late():
    jax.devices()  # starts JAX, if no other test has
    cpu = rx.config.list_physical_devices("CPU")[0]
    wanted = [rx.config.LogicalDeviceConfiguration()] * 5
    with pytest.raises(RuntimeError, match="JAX_NUM_CPU_DEVICES=5"):
        rx.config.set_logical_device_configuration(cpu, wanted)
    # What is there already may be asked for again.
    rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 8)


def test_lists():
    jax.devices()
    assert len(rx.config.list_logical_devices("CPU")) == 8
    assert rx.config.list_logical_devices("cpu")[1].name == "/device:CPU:1"
    assert rx.config.list_physical_devices("CPU")[0].name == "/physical_device:CPU:0"
    assert {each.device_type for each in rx.config.list_physical_devices()} >= {"CPU"}
    with pytest.raises(ValueError, match="device_type"):
        rx.config.list_logical_devices("QPU")
