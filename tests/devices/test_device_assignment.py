"""Device assignments: TensorFlow's numbers on TPU slices, devices in their order elsewhere."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import replicax as rx
from replicax._src.devices import DeviceAssignment, DeviceOrderMode, Topology, topology_of
from replicax._src.devices._core_order import ring

RECORDED = json.loads((Path(__file__).parent / "recorded" / "device_assignments.json").read_text())
TOPOLOGIES = {
    name: Topology(bytes.fromhex(each["serialized"]))
    for name, each in RECORDED["topologies"].items()
}
V3_8 = TOPOLOGIES["v3-8"]


# --- as TensorFlow has them -----------------------------------------------------------------------


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_assignments_are_those_of_tensorflow(name: str):
    topology = TOPOLOGIES[name]
    cases = [case for case in RECORDED["assignments"] if case["topology"] == name]
    assert cases
    for case in cases:
        shape, stride, replicas, mode = case["arguments"]
        try:
            built = DeviceAssignment.build(topology, shape, stride, replicas, DeviceOrderMode[mode])
        except ValueError:
            assert case["cores"] is None, case["arguments"]
            continue
        cores = built.core_assignment
        written = [" ".join("".join(map(str, at)) for at in replica) for replica in cores]
        assert written == case["cores"], case["arguments"]
        last = built.num_replicas - 1, built.num_cores_per_replica - 1
        task = topology.task_ordinal_at_coordinates(built.coordinates(*last))
        assert case["last"] == [
            built.tpu_ordinal(*last),
            built.host_device(*last),
            built.tpu_device(*last, job="worker"),
            built.lookup_replicas(task, last[1]),
        ], case["arguments"]


@given(st.lists(st.sampled_from([1, 2, 4, 6, 8]), min_size=3, max_size=3))
def test_a_ring_goes_from_neighbour_to_neighbour(sizes: list[int]):
    trip = ring(sizes)
    assert sorted(trip) == list(np.ndindex(*sizes))
    is_line = sum(size > 1 for size in sizes) < 2
    for here, there in zip(trip, trip[1:] if is_line else trip[1:] + trip[:1], strict=not is_line):
        assert sum(abs(a - b) for a, b in zip(here, there, strict=True)) == 1


@given(
    st.sampled_from(sorted(TOPOLOGIES)),
    st.lists(st.sampled_from([1, 2, 3, 4]), min_size=4, max_size=4),
    st.lists(st.sampled_from([1, 1, 2]), min_size=4, max_size=4),
    st.integers(1, 70),
)
def test_no_device_is_used_twice(name: str, shape: list[int], stride: list[int], replicas: int):
    try:
        built = DeviceAssignment.build(TOPOLOGIES[name], shape, stride, replicas)
    except ValueError:
        return
    assert built.core_assignment.shape == (replicas, np.prod(shape), 4)
    places = built.core_assignment.reshape(-1, 4).tolist()
    assert len({tuple(place) for place in places}) == len(places)


def test_a_serialized_topology_does_as_well():
    built = DeviceAssignment.build(V3_8.serialized(), [1, 1, 1, 2], num_replicas=4)
    assert built.topology.mesh_shape.tolist() == [2, 2, 1, 2]
    assert built.num_replicas == 4


def test_one_replica_of_one_core_is_the_default():
    built = DeviceAssignment.build(V3_8)
    assert (built.num_replicas, built.num_cores_per_replica) == (1, 1)
    assert built.coordinates(0, 0) == (0, 0, 0, 0)
    assert built.topology is V3_8


# --- devices without geometry ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "replicas"),
    [
        (None, 8),
        ([1, 1, 1, 1], 8),
        ([1, 1, 1, 2], 4),
        ([1, 2, 1, 1], 4),
        ([2, 2, 1, 1], 2),
        ([1, 2, 2, 2], 1),
        ([2, 2, 1, 2], 1),
        ([8, 1, 1, 1], 1),
        ([1, 1, 4, 2], 1),
        ([1, 1, 3, 1], 2),
        ([1, 1, 1, 2], 3),
    ],
)
@pytest.mark.parametrize("mode", DeviceOrderMode)
def test_any_block_of_the_right_size_fits(shape: Any, replicas: int, mode: DeviceOrderMode):
    topology = topology_of(jax.devices())
    built = DeviceAssignment.build(topology, shape, num_replicas=replicas, device_order_mode=mode)
    cores = 1 if shape is None else int(np.prod(shape))
    assert (built.num_replicas, built.num_cores_per_replica) == (replicas, cores)
    assert built.topology is topology
    in_order = iter(jax.devices())
    assert built._devices() == tuple(
        tuple(next(in_order) for _ in range(cores)) for _ in range(replicas)
    )
    assert [built.tpu_ordinal(0, core) for core in range(cores)] == list(range(cores))


def test_a_stride_has_nothing_to_space():
    topology = topology_of(jax.devices())
    built = DeviceAssignment.build(topology, [1, 1, 1, 2], [4, 1, 1, 1], 4)
    assert [[d.id for d in replica] for replica in built._devices()] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]


def test_more_devices_than_there_are():
    topology = topology_of(jax.devices()[:6])
    with pytest.raises(ValueError, match=r"8 devices, but the topology has 6. Pass num_replicas=3"):
        DeviceAssignment.build(topology, [1, 1, 1, 2], num_replicas=4)
    with pytest.raises(ValueError, match=r"has 6. Pass a smaller `computation_shape`"):
        DeviceAssignment.build(topology, [1, 2, 2, 2])


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topology": [2, 2, 1, 2]}, "must be a rx.tpu.experimental.Topology"),
        ({"computation_shape": [1, 1, 2]}, r"`computation_shape` must be 4 .* got \[1, 1, 2\]"),
        ({"computation_shape": [1, 1, 0, 2]}, "`computation_shape` must be 4 positive"),
        ({"computation_shape": [1, 1, 1, 1.5]}, "`computation_shape` must be integers"),
        ({"computation_stride": [1, 1]}, "`computation_stride` must be 4 positive"),
        ({"computation_stride": [1, 1, 1, -1]}, "`computation_stride` must be 4 positive"),
        ({"computation_shape": [1, 1, 2, 2]}, r"takes \[1, 1, 2, 2\] of the mesh"),
        ({"computation_shape": [2**30, 1, 1, 1], "computation_stride": [4, 1, 1, 1]}, "fits along"),
        ({"computation_shape": [1, 1, 1, 2], "num_replicas": 5}, "Pass num_replicas=4 or less"),
        ({"num_replicas": 0}, "at least 1; got 0"),
        (
            {"num_replicas": 2, "device_order_mode": DeviceOrderMode.RING},
            "Use DeviceOrderMode.AUTO",
        ),
        ({"device_order_mode": 7}, "AUTO, RING or MESH"),
    ],
)
def test_what_cannot_be_assigned(arguments: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        DeviceAssignment.build(**{"topology": V3_8, **arguments})


def test_a_part_of_a_replica_is_no_number():
    with pytest.raises(TypeError, match="`num_replicas` must be an integer; got 1.5"):
        DeviceAssignment.build(V3_8, num_replicas=1.5)  # type: ignore[arg-type]


def test_a_slice_with_holes_has_no_strides_and_fewer_devices():
    degraded = TOPOLOGIES["v3-32 less host 2"]
    with pytest.raises(ValueError, match="Leave `computation_stride` out"):
        DeviceAssignment.build(degraded, computation_stride=[2, 1, 1, 1])
    with pytest.raises(ValueError, match="the topology has 24. Pass num_replicas=24"):
        DeviceAssignment.build(degraded, num_replicas=32)


@pytest.mark.parametrize(
    ("cores", "words"),
    [
        ([[0, 0, 0, 0]], r"got \(1, 4\)"),
        ([[[0, 0, 0]]], r"got \(1, 1, 3\)"),
        ([[[0, 0, 0, 2]]], "core 0 of replica 0: The coordinates .* outside"),
        ([[[0, 0, 0, 0]], [[0, 0, 0, 0]]], "twice: as core 0 of replica 0 and as core 0 of re"),
    ],
)
def test_assignments_by_hand_are_checked(cores: Any, words: str):
    with pytest.raises(ValueError, match=words):
        DeviceAssignment(V3_8, cores)


def test_assignments_by_hand():
    topology = topology_of(jax.devices())
    last, first = topology.device_coordinates[0, [7, 0]].tolist()
    built = DeviceAssignment(topology, [[last, first]])
    assert built._devices() == ((jax.devices()[7], jax.devices()[0]),)
    assert built.lookup_replicas(0, 1) == [0]
    assert built.tpu_device(logical_core=0) == "/task:0/device:TPU:7"
    assert built.host_device(job="tpu") == "/job:tpu/task:0/device:CPU:0"
    with pytest.raises(ValueError, match="No replica has its logical core 0 on task 1"):
        built.lookup_replicas(1, 0)
    with pytest.raises(IndexError, match="no logical core 2 of replica 0"):
        built.coordinates(0, 2)


def test_assignments_say_what_they_are():
    build = rx.tpu.experimental.DeviceAssignment.build
    assert repr(build(V3_8, [1, 1, 1, 2], num_replicas=4)) == (
        "<DeviceAssignment: 4 replicas of 2 logical devices>"
    )
    assert repr(build(V3_8)) == "<DeviceAssignment: 1 replica of 1 logical device>"
