"""Connecting to Ray: what is said where there is none. Workers on it: `cli/test_ray_node.py`."""

import sys
from types import ModuleType

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
