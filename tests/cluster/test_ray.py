"""Connecting to Ray: what is said where there is none. Workers on it: `cli/test_ray_node.py`."""

import contextlib
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
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


SETTINGS = bytes(3) + b"\4" + bytes(5)  # what a server of HTTP/2 says first


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """An address, where somebody answers, or takes a connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while answer is not None:
                    connection, _ = listening.accept()
                    connection.recv(100)
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def fake(monkeypatch: pytest.MonkeyPatch, init: Any) -> None:
    """Ray, of which only `init` is there."""
    ray = ModuleType("ray")
    vars(ray).update(__version__="2.60.0", is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", ray)
    constants = ModuleType("ray._private.ray_constants")
    vars(constants)["ENABLE_RAY_CLUSTER"] = True
    monkeypatch.setitem(sys.modules, "ray._private", ModuleType("ray._private"))
    monkeypatch.setitem(sys.modules, "ray._private.ray_constants", constants)


def failing(error: Exception) -> Any:
    def init(**options: object) -> None:
        raise error

    return init


def test_what_answers_is_not_ray(monkeypatch: pytest.MonkeyPatch):
    fake(monkeypatch, None)
    with (
        answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(ConnectionError, match="What answers at address .* is not Ray"),
    ):
        _ray.connect(address)
    monkeypatch.setattr(_ray, "_REACHED_WITHIN", 0.1)
    with (
        answering(None) as address,
        pytest.raises(ConnectionError, match=r"Nothing at address .* answered within 0.1 s"),
    ):
        _ray.connect(address)


def test_a_cluster_that_asks_for_a_token(monkeypatch: pytest.MonkeyPatch):
    fake(monkeypatch, failing(ConnectionError("Failed to connect.")))
    with answering(SETTINGS) as address:
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
        with pytest.raises(ConnectionError, match=r"set RAY_AUTH_MODE=token here.*tokens are off"):
            _ray.connect(address)
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        with pytest.raises(ConnectionError, match=r"else RAY_AUTH_MODE=disabled; tokens are on"):
            _ray.connect(address)
    with pytest.raises(ConnectionError, match=r"'auto' does not answer.*tokens are on"):
        _ray.connect("auto")
    fake(monkeypatch, failing(ConnectionError("Could not find any running Ray instance.")))
    with pytest.raises(ConnectionError, match=r"no Ray cluster on this host.*ray start --head"):
        _ray.connect("auto")


def test_a_host_that_is_no_node_and_another_version(monkeypatch: pytest.MonkeyPatch):
    text = "No node info found matching attributes: '' when trying to resolve node to connect to."
    with answering(SETTINGS) as address:
        fake(monkeypatch, failing(RuntimeError(text)))
        with pytest.raises(ConnectionError, match="not a node of the Ray cluster.*ray start"):
            _ray.connect(address)
        fake(monkeypatch, failing(RuntimeError("Version mismatch: The cluster was started with")))
        with pytest.raises(RuntimeError, match="Version mismatch"):
            _ray.connect(address)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, in a folder whose name has a space."""
    folder = tmp_path / "a home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("MODE", "TOKEN", "TOKEN_PATH"):
        monkeypatch.delenv(f"RAY_AUTH_{name}", raising=False)
    return folder


def test_a_local_cluster(monkeypatch: pytest.MonkeyPatch, home: Path):
    """Its actors do not wait for other processes, and nobody else can use it."""
    given: list[dict[str, Any]] = []

    def init(**options: Any) -> None:
        constants = sys.modules["ray._private.ray_constants"]
        given.append({**options, "reachable": vars(constants)["ENABLE_RAY_CLUSTER"]})

    fake(monkeypatch, init)
    monkeypatch.delenv("RAY_worker_niceness", raising=False)
    _ray.connect("local")
    monkeypatch.setenv("RAY_worker_niceness", "5")
    _ray.connect("local")
    assert [each["_system_config"] for each in given] == [{"worker_niceness": 0}, None]
    assert [each["reachable"] for each in given] == [False, False]
    assert vars(sys.modules["ray._private.ray_constants"])["ENABLE_RAY_CLUSTER"] is True
    (token,) = (home / ".ray").iterdir()
    assert token.name == "auth_token" and len(token.read_text()) == 64
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def test_programs_that_start_at_once_have_one_token(monkeypatch: pytest.MonkeyPatch, home: Path):
    path = home / ".ray" / "auth_token"
    link = os.link

    def another_is_quicker(source: str, target: Path) -> None:
        path.write_text("theirs")
        link(source, target)

    monkeypatch.setattr(os, "link", another_is_quicker)
    _ray._make_token()
    assert path.read_text() == "theirs" and "RAY_AUTH_TOKEN" not in os.environ


def test_a_home_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch, home: Path):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")  # so that it is undone
    (home / ".ray").write_text("a file")
    _ray._make_token()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


@pytest.mark.parametrize("needed", [2, 4])
def test_ray_that_starts_too_slowly(monkeypatch: pytest.MonkeyPatch, home: Path, needed: int):
    """Its processes are ended, and it is started again, but not for ever."""
    starts: list[Any] = []
    ended: list[Any] = []

    class Node:
        def __init__(self) -> None:
            starts.append(self)
            if len(starts) < needed:
                raise Exception("The current node timed out during startup. This could happen")

        def kill_all_processes(self, check_alive: bool, allow_graceful: bool) -> None:
            ended.append(self)

    def init(**options: Any) -> None:
        Node()

    fake(monkeypatch, init)
    with pytest.warns(UserWarning, match="did not start in time"):
        if needed == 2:
            _ray.connect("local")
        else:
            with pytest.raises(TimeoutError, match="in 3 attempts.*ray start --head"):
                _ray.connect("local")
    assert ended == starts[: needed - 1] and len(starts) == min(needed, 3)
