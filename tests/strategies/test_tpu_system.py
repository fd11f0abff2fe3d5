"""Initialising a TPU, or what stands in for one: how every program for TPUs begins."""

from typing import Any

import jax
import pytest

import replicax as rx
from tests.processes import free_addresses, result, run_workers

tpu = rx.tpu.experimental
TPUClusterResolver = rx.distribute.cluster_resolver.TPUClusterResolver


@pytest.mark.parametrize(
    ("computation_shape", "num_replicas", "num_cores"), [([1, 1, 1, 2], 4, 2), ([1, 2, 2, 2], 1, 8)]
)
def test_examples_of_the_specification(
    computation_shape: list[int], num_replicas: int, num_cores: int
):
    resolver = TPUClusterResolver(tpu="")
    rx.config.experimental_connect_to_cluster(resolver)
    topology = tpu.initialize_tpu_system(resolver)
    assignment = tpu.DeviceAssignment.build(
        topology, computation_shape=computation_shape, num_replicas=num_replicas
    )
    assert assignment.num_replicas == num_replicas
    assert assignment.num_cores_per_replica == num_cores
    assert [d for replica in assignment._devices() for d in replica] == jax.devices()
    tpu.shutdown_tpu_system(resolver)


@pytest.mark.parametrize("given", [None, "", "local", TPUClusterResolver("")])
def test_what_may_be_initialised_and_how_often(given: Any):
    first, second = tpu.initialize_tpu_system(given), tpu.initialize_tpu_system(given)
    assert first.serialized() == second.serialized()
    assert first.num_tpus_per_task == len(jax.devices())
    assert tpu.shutdown_tpu_system(given) is None


def test_other_resolvers_of_this_host():
    cluster_resolver = rx.distribute.cluster_resolver
    alone = rx.train.ClusterSpec({"worker": ["localhost:2222"]})
    for resolver in (
        cluster_resolver.TFConfigClusterResolver(),
        cluster_resolver.SimpleClusterResolver(alone, task_type="worker", task_id=0),
    ):
        assert tpu.initialize_tpu_system(resolver).num_tasks == 1


@pytest.mark.parametrize("function", [tpu.initialize_tpu_system, tpu.shutdown_tpu_system])
@pytest.mark.parametrize("given", [5, ["a"], TPUClusterResolver, rx.train.ClusterSpec({})])
def test_what_is_no_resolver(function: Any, given: Any):
    with pytest.raises(TypeError, match=rf"{function.__name__}: `cluster_resolver` must be"):
        function(given)


def test_another_tpu():
    with pytest.raises(rx.errors.ClusterConfigError, match="another machine"):
        tpu.initialize_tpu_system("my-tpu")


def _on_two_hosts() -> None:
    resolver = TPUClusterResolver(tpu="")
    rx.config.experimental_connect_to_cluster(resolver)
    topology = tpu.initialize_tpu_system(resolver)
    assignment = tpu.DeviceAssignment.build(topology, [1, 1, 1, 2], num_replicas=4)
    result("tasks", [topology.num_tasks, topology.num_tpus_per_task])
    result("again", repr(tpu.initialize_tpu_system(resolver)) == repr(topology))
    result("here", tpu.initialize_tpu_system("local").num_tasks)
    result("owners", [[d.process_index for d in replica] for replica in assignment._devices()])
    result("replicas", [assignment.lookup_replicas(task, 0) for task in range(2)])
    result("device", assignment.tpu_device(2, 1))


def test_hosts_of_a_pod_meet_and_have_one_topology():
    addresses = ",".join(free_addresses(2))
    workers = run_workers(
        "tests.strategies.test_tpu_system:_on_two_hosts",
        2,
        devices=4,
        environment=lambda rank: {
            "TF_CONFIG": None,
            "TPU_WORKER_HOSTNAMES": addresses,
            "TPU_WORKER_ID": str(rank),
        },
    )
    for worker in workers:
        assert worker.results == {
            "tasks": [2, 4],
            "again": True,
            "here": 1,
            "owners": [[0, 0], [0, 0], [1, 1], [1, 1]],
            "replicas": [[0, 1], [2, 3]],
            "device": "/task:1/device:TPU:1",
        }
