"""Topologies: TensorFlow's of TPU slices, and those of the devices that JAX has."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from replicax._src.devices import topology_of
from replicax._src.devices._topology import virtual_mesh_shape

Topology = rx.tpu.experimental.Topology
RECORDED = json.loads((Path(__file__).parent / "recorded" / "device_assignments.json").read_text())
TOPOLOGIES = RECORDED["topologies"]


def tpu(x: int, y: int, z: int, core: int, process: int = 0) -> Any:
    return SimpleNamespace(
        platform="tpu", coords=[x, y, z], core_on_chip=core, process_index=process
    )


# --- as TensorFlow has them -----------------------------------------------------------------------


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topologies_are_those_of_tensorflow(name: str):
    expected = TOPOLOGIES[name]
    made = Topology(
        mesh_shape=expected["mesh_shape"], device_coordinates=expected["device_coordinates"]
    )
    assert made.serialized().hex() == expected["serialized"]
    read = Topology(serialized=bytes.fromhex(expected["serialized"]))
    assert read.serialized().hex() == expected["serialized"]
    for topology in (made, read):
        assert topology.mesh_shape.tolist() == expected["mesh_shape"]
        assert topology.mesh_shape.dtype == topology.device_coordinates.dtype == np.int32
        assert topology.mesh_rank == 4
        assert topology.device_coordinates.tolist() == expected["device_coordinates"]
        assert topology.missing_devices.tolist() == expected["missing_devices"]
        assert topology.num_tasks == len(expected["device_coordinates"])
        assert topology.num_tpus_per_task == len(expected["device_coordinates"][0])
        corner = topology.mesh_shape - 1
        assert expected["corner"] == [
            topology.task_ordinal_at_coordinates(corner),
            topology.tpu_device_ordinal_at_coordinates(corner),
            topology.cpu_device_name_at_coordinates(corner),
            topology.tpu_device_name_at_coordinates(corner, job="worker"),
        ]


def test_what_other_programs_add_to_a_message_is_passed_over():
    message = bytes.fromhex(TOPOLOGIES["v3-8"]["serialized"])
    hardware = bytes([5 << 3 | 2, 2, 8, 1])
    fixed = bytes([6 << 3 | 1, *range(8), 7 << 3 | 5, *range(4)])
    assert Topology(hardware + message + fixed).mesh_shape.tolist() == [2, 2, 1, 2]


def test_lists_may_be_written_number_by_number():
    message = b"".join([b"\x08\x01" * 4, b"\x10\x01\x18\x01", b"\x20\x00" * 4])
    assert Topology(message).device_coordinates.tolist() == [[[0, 0, 0, 0]]]


@given(st.binary(max_size=40))
def test_any_bytes_are_a_topology_or_a_clear_error(content: bytes):
    try:
        assert Topology(serialized=content).mesh_rank == 4
    except ValueError as error:
        text = str(error)
        assert "serialized" in text or "`mesh_shape`" in text or "`device_coordinates`" in text


@given(st.lists(st.integers(1, 3), min_size=4, max_size=4), st.randoms(use_true_random=False))
def test_every_device_is_found_where_it_is(mesh: list[int], random: Any):
    places = [list(place) for place in np.ndindex(*mesh)]
    random.shuffle(places)
    kept = places[: random.randrange(len(places)) + 1]
    topology = Topology(mesh_shape=mesh, device_coordinates=[kept])
    for ordinal, place in enumerate(kept):
        assert topology.task_ordinal_at_coordinates(place) == 0
        assert topology.tpu_device_ordinal_at_coordinates(place) == ordinal
    assert sorted(topology.missing_devices.tolist()) == sorted(places[len(kept) :])
    again = Topology(serialized=topology.serialized())
    assert np.array_equal(again.device_coordinates, topology.device_coordinates)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs `serialized`, or both"),
        ({"mesh_shape": [1, 1, 1, 1]}, "needs `serialized`, or both"),
        ({"mesh_shape": [1, 1, 1], "device_coordinates": [[[0, 0, 0]]]}, "must be 4 positive"),
        ({"mesh_shape": [1, 0, 1, 1], "device_coordinates": [[[0] * 4]]}, r"got \[1, 0, 1, 1\]"),
        ({"mesh_shape": [1, 1, 1, 1.5], "device_coordinates": [[[0] * 4]]}, "must be integers"),
        ({"mesh_shape": "abcd", "device_coordinates": [[[0] * 4]]}, "must be integers"),
        ({"mesh_shape": [1] * 4, "device_coordinates": [[0] * 4]}, r"got \(1, 4\)"),
        ({"mesh_shape": [1] * 4, "device_coordinates": [[[0] * 4], []]}, "equal lengths"),
        ({"mesh_shape": [1] * 4, "device_coordinates": [[[0, 0, 0, 1]]]}, "outside of the mesh"),
        ({"mesh_shape": [1] * 4, "device_coordinates": [[[0, -1, 0, 0]]]}, "outside of the mesh"),
        (
            {"mesh_shape": [1, 1, 1, 2], "device_coordinates": [[[0] * 4, [0] * 4]]},
            "device 0 of task 0, and device 1 of task 0",
        ),
        ({"serialized": b"\x0a\x04\x01\x01"}, "bytes that are no such message"),
        ({"serialized": b"\x0a\x04\x01\x01\x01\x01\x10\x01\x18\x02"}, "but 0 coordinates"),
        ({"serialized": b"\x0b"}, "bytes that are no such message"),
        ({"serialized": b"\x0a\x04\x7f\x7f\x7f\x7f"}, "no TPU has so many"),
    ],
)
def test_what_is_no_topology_is_refused(arguments: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        Topology(**arguments)


def test_text_is_no_serialized_topology():
    with pytest.raises(TypeError, match="must be bytes"):
        Topology(serialized="abc")  # type: ignore[arg-type]


def test_places_without_a_device():
    topology = Topology(mesh_shape=[1, 1, 1, 2], device_coordinates=[[[0, 0, 0, 1]]])
    assert topology.missing_devices.tolist() == [[0, 0, 0, 0]]
    assert topology.task_ordinal_at_coordinates([0, 0, 0, 0]) == -1  # as in TensorFlow
    assert topology.tpu_device_ordinal_at_coordinates([0, 0, 0, 0]) == -1
    with pytest.raises(ValueError, match="no device at coordinates"):
        topology.tpu_device_name_at_coordinates([0, 0, 0, 0])
    with pytest.raises(IndexError, match="outside of the mesh"):
        topology.task_ordinal_at_coordinates([0, 0, 0, 2])
    with pytest.raises(ValueError, match="x, y, z and core"):
        topology.task_ordinal_at_coordinates([0, 0, 0])


# --- of JAX's devices -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "shape"),
    [
        (1, [1, 1, 1, 1]),
        (2, [1, 1, 1, 2]),
        (3, [1, 1, 1, 3]),
        (4, [1, 1, 2, 2]),
        (6, [1, 1, 3, 2]),
        (8, [1, 2, 2, 2]),
        (12, [1, 2, 3, 2]),
        (16, [2, 2, 2, 2]),
        (30, [1, 3, 5, 2]),
        (64, [2, 4, 4, 2]),
    ],
)
def test_shape_of_a_virtual_mesh(count: int, shape: list[int]):
    assert virtual_mesh_shape(count) == shape


@given(st.integers(1, 3000))
def test_a_virtual_mesh_has_a_place_for_each_device(count: int):
    shape = virtual_mesh_shape(count)
    assert len(shape) == 4 and np.prod(shape) == count


@pytest.mark.parametrize("count", [1, 2, 5, 6, 8])
def test_devices_without_geometry_are_numbered_through(count: int):
    devices = jax.devices()[:count]
    topology = topology_of(devices)
    assert topology._is_virtual and not topology.missing_devices.size
    assert (topology.num_tasks, topology.num_tpus_per_task) == (1, count)
    places = topology.device_coordinates[0]
    assert [topology._device_at(place) for place in places] == devices
    # Cores first, then x, y and z.
    order = [(z, y, x, core) for x, y, z, core in places.tolist()]
    assert order == sorted(order)


def test_tpus_are_where_they_say():
    # The second host of a slice of 4x2 chips: its coordinates begin at x = 2.
    devices = [tpu(x, y, 0, core) for y in range(2) for x in (2, 3) for core in range(2)]
    topology = topology_of(devices)
    assert not topology._is_virtual
    assert topology.mesh_shape.tolist() == [2, 2, 1, 2]
    assert topology.device_coordinates[0, :3].tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    assert topology._device_at([1, 1, 0, 1]) is devices[-1]


def test_hosts_are_tasks():
    devices = [tpu(x, y, z, 0, process=z) for z in (1, 0) for y in range(2) for x in range(2)]
    topology = topology_of(devices)
    assert topology.mesh_shape.tolist() == [2, 2, 2, 1]
    assert (topology.num_tasks, topology.num_tpus_per_task) == (2, 4)
    assert topology.task_ordinal_at_coordinates([0, 0, 1, 0]) == 1
    assert topology._device_at([1, 0, 1, 0]) is devices[1]


def test_tpus_without_common_coordinates_are_numbered_through():
    two_slices = [tpu(x, 0, 0, 0, process) for process in range(2) for x in range(4)]
    topology = topology_of(two_slices)
    assert topology._is_virtual
    assert topology.mesh_shape.tolist() == [1, 2, 2, 2]
    assert topology.num_tasks == 2


def test_processes_with_different_numbers_of_devices_are_refused():
    devices = [tpu(0, 0, 0, 0), tpu(1, 0, 0, 0), tpu(2, 0, 0, 0, process=1)]
    with pytest.raises(rx.errors.DeviceError, match="process 0: 2, process 1: 1"):
        topology_of(devices)
    with pytest.raises(rx.errors.DeviceError, match="got none"):
        topology_of([])


def test_topologies_by_hand_are_of_the_devices_at_hand():
    read = Topology(serialized=topology_of(jax.devices()).serialized())
    assert [read._device_at(place) for place in read.device_coordinates[0]] == jax.devices()
    large = Topology(serialized=bytes.fromhex(TOPOLOGIES["v3-32"]["serialized"]))
    with pytest.raises(rx.errors.DeviceError, match="1 process.* with 8 device"):
        large._device_at([3, 3, 0, 1])


def test_topologies_say_what_they_are():
    assert repr(topology_of(jax.devices())) == (
        "<Topology: 8 devices in a virtual mesh of shape [1, 2, 2, 2], 1 task>"
    )
    assert repr(topology_of([tpu(0, 0, 0, 0)])) == (
        "<Topology: 1 device in a mesh of shape [1, 1, 1, 1], 1 task>"
    )
