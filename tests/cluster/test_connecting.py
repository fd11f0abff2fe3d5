"""Connecting to hosts: nothing to do for this one, a clear word for others."""

import socket
from typing import Any

import pytest

import replicax as rx

connect_to_cluster = rx.config.experimental_connect_to_cluster
connect_to_host = rx.config.experimental_connect_to_host
ClusterSpec = rx.train.ClusterSpec
resolvers = rx.distribute.cluster_resolver

SEVERAL = ClusterSpec({"worker": ["a.example:2222", "b.example:2222"]})


@pytest.mark.parametrize(
    "cluster",
    [
        resolvers.TPUClusterResolver(""),
        resolvers.SimpleClusterResolver(SEVERAL, task_type="worker", task_id=0),
        resolvers.SimpleClusterResolver(ClusterSpec({})),
        ClusterSpec({}),
        ClusterSpec({"worker": ["localhost:2222"]}),
        ClusterSpec({"worker": ["127.0.0.1:2222"]}),
        ClusterSpec({"chief": ["[::1]:2222"]}),
        ClusterSpec({"worker": [f"{socket.gethostname()}:2222"]}),
    ],
)
def test_there_is_nothing_to_do(cluster: Any):
    assert connect_to_cluster(cluster) is None
    assert connect_to_cluster(cluster, "localhost", 0, "grpc", True, None) is None


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (SEVERAL, "has 2 tasks"),
        (ClusterSpec({"worker": ["h.example:2222"]}), "a task on 'h.example', not this host"),
        (ClusterSpec({"worker": ["192.0.2.1:2222"]}), "a task on '192.0.2.1', not this host"),
        (ClusterSpec({"worker": ["localhost"]}), "has no port"),
    ],
)
def test_specs_of_other_hosts_say_what_to_do(cluster: Any, words: str):
    with pytest.raises(rx.errors.ClusterConfigError, match=words) as caught:
        connect_to_cluster(cluster)
    if "port" not in words:
        assert "Start the program on every host" in str(caught.value)
        assert "SimpleClusterResolver(cluster_spec, task_type=" in str(caught.value)


@pytest.mark.parametrize("cluster", [None, "grpc://a:1", {"worker": ["a:1"]}, ClusterSpec])
def test_what_is_no_cluster(cluster: Any):
    with pytest.raises(TypeError, match="must be a rx.train.ClusterSpec or a resolver"):
        connect_to_cluster(cluster)


def test_there_are_no_devices_to_filter():
    with pytest.raises(ValueError, match="Leave it out"):
        connect_to_cluster(ClusterSpec({}), cluster_device_filters=object())


def test_a_malformed_resolver_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(rx.errors.ClusterConfigError, match="TF_CONFIG"):
        connect_to_cluster(resolvers.TFConfigClusterResolver())


@pytest.mark.parametrize("host", ["localhost:2222", "grpc://127.0.0.1:2222", ["localhost:2222"]])
def test_this_host(host: Any):
    assert connect_to_host(host) is None
    assert connect_to_host(host, job_name="other") is None


def test_another_host():
    with pytest.raises(rx.errors.ClusterConfigError, match="Start the program on every host"):
        connect_to_host("h.example:2222")
    with pytest.raises(rx.errors.ClusterConfigError, match="has 2 tasks"):
        connect_to_host(["localhost:1", "localhost:2"])


@pytest.mark.parametrize("host", [None, "", []])
def test_no_host(host: Any):
    with pytest.raises(ValueError, match="`remote_host` must be an address"):
        connect_to_host(host)


def test_a_number_is_no_host():
    with pytest.raises(TypeError, match="`remote_host` must be an address"):
        connect_to_host(5)  # pyright: ignore[reportArgumentType]
