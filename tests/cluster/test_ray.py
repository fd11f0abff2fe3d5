"""Connecting to Ray: what is said where there is none. Workers on it: `cli/test_ray_node.py`."""

import socket
import sys
from types import ModuleType
from typing import Any

import pytest

from replicax._src.cluster import _ray
from tests.processes import free_addresses


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'not installed. Run: pip install "replicax\[ray\]"'):
        _ray.connect()


def test_ray_that_is_too_old(monkeypatch):
    old = ModuleType("ray")
    old.__version__ = "2.9.3"  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "ray", old)
    with pytest.raises(ImportError, match=r"2.50 or newer, and Ray 2.9.3 .*replicax\[ray\]"):
        _ray.connect()


@pytest.fixture(autouse=True)
def as_ray_sets_it(monkeypatch):
    monkeypatch.setenv("RAY_CLIENT_MODE", "0")  # which it does when it is imported


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_nobody_at_the_address(scheme: str, monkeypatch):
    address = f"{scheme}{free_addresses(1)[0]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConnectionError, match="no Ray cluster at address .*ray start --head"):
        _ray.connect()


def test_addresses_without_a_port():
    with pytest.raises(ValueError, match="Ray's address, 'head', has no port"):
        _ray.connect("head")


def test_a_cluster_that_asks_for_a_token(monkeypatch):
    def init(**options: object) -> None:
        raise ConnectionError("Failed to connect.")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        ray = ModuleType("ray")
        vars(ray).update(__version__="2.60.0", is_initialized=lambda: False, init=init)
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
        with pytest.raises(ConnectionError, match=r"set RAY_AUTH_MODE=token here.*tokens are off"):
            _ray.connect(address)
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        with pytest.raises(ConnectionError, match=r"else RAY_AUTH_MODE=disabled; tokens are on"):
            _ray.connect(address)
    with pytest.raises(ConnectionError, match=r"no Ray cluster on this host.*ray start --head"):
        _ray.connect("auto")


def test_actors_of_a_local_cluster_do_not_wait_for_other_processes(monkeypatch):
    given: list[dict[str, Any]] = []
    ray = ModuleType("ray")
    init = lambda **options: given.append(options)  # noqa: E731
    vars(ray).update(__version__="2.60.0", is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_worker_niceness", raising=False)
    _ray.connect("local")
    monkeypatch.setenv("RAY_worker_niceness", "5")
    _ray.connect("local")
    assert [each["_system_config"] for each in given] == [{"worker_niceness": 0}, None]
