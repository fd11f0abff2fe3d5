"""Which address of this host other workers can reach."""

import socket
from pathlib import Path

import pytest

from replicax._src import _jax_internals
from replicax._src.cluster import _addresses
from replicax._src.cluster._addresses import is_own, own_address, reachable_host

NAMES = {
    "debian": ["127.0.1.1"],
    "both": ["127.0.1.1", "192.0.2.7"],
    "other": ["192.0.2.99"],
    "everywhere": ["0.0.0.0"],
    "v6 first": ["2001:db8::7", "192.0.2.7"],
    "v6": ["2001:db8::7"],
    "v6 loopback": ["::1"],
}


@pytest.fixture(autouse=True)
def host_at_192_0_2_7(monkeypatch: pytest.MonkeyPatch):
    """This host has loopbacks, 192.0.2.7 and 2001:db8::7, and knows the names above."""

    def getaddrinfo(host: str, *_: object, **__: object) -> list[object]:
        if host not in NAMES and not host[0].isdigit():
            raise socket.gaierror
        return [(2, 1, 6, "", (address, 0)) for address in NAMES.get(host, [host])]

    def own(address: str) -> bool:
        return address.startswith("127.") or address in ("::1", "192.0.2.7", "2001:db8::7")

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    monkeypatch.setattr("replicax._src.cluster._addresses.is_own", own)


@pytest.mark.parametrize(
    ("known_as", "calls_from", "expected"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "127.0.0.1", "192.0.2.7"),  # worker 0, which calls itself
        ("debian", "192.0.2.7", "192.0.2.7"),
        ("both", "127.0.0.1", "192.0.2.7"),
        ("other", "192.0.2.7", "192.0.2.7"),  # a forwarder's
        ("other", "127.0.0.1", None),
        ("unknown", "192.0.2.7", "192.0.2.7"),
        ("unknown", "127.0.0.1", None),
        ("everywhere", "127.0.0.1", None),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),  # all workers on one host
        ("debian", "127.0.0.1", "127.0.1.1"),
        ("v6 first", "192.0.2.7", "192.0.2.7"),  # all in the family of the server's address
        ("v6 first", "2001:db8::7", "2001:db8::7"),
        ("v6", "192.0.2.7", "192.0.2.7"),
        ("debian", "2001:db8::7", "2001:db8::7"),
        ("v6 loopback", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "::1", "::1"),
    ],
)
def test_own_address_is_one_that_others_reach(known_as: str, calls_from: str, expected: str | None):
    assert own_address(known_as, calls_from) == expected


def test_own_addresses_can_be_told_from_others():
    assert is_own("127.0.0.1")
    assert not is_own("0.0.0.0")
    assert not is_own("192.0.2.99")  # for documentation: nobody has it


@pytest.mark.parametrize("missing", ["make_cpu_client", "register_backend_factory", "_jax"])
def test_gloo_is_left_alone_where_jax_is_not_as_expected(
    monkeypatch: pytest.MonkeyPatch, missing: str
):
    registered = []
    monkeypatch.setattr(
        _jax_internals._xla_bridge,
        "register_backend_factory",
        lambda *_, **__: registered.append(True),
    )
    monkeypatch.delattr(_jax_internals._xla_bridge, missing)
    _jax_internals.listen_with_gloo_at("192.0.2.7")
    assert not registered


def test_gloo_that_takes_no_address_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    made = []
    bridge = _jax_internals._xla_bridge
    monkeypatch.setattr(bridge, "register_backend_factory", lambda _, make, **__: make())
    monkeypatch.setattr(bridge, "make_cpu_client", lambda **arguments: made.append(arguments))
    make = "jax._src.xla_bridge._jax.make_gloo_tcp_collectives"
    monkeypatch.setattr(make, lambda client: client)
    _jax_internals.listen_with_gloo_at("192.0.2.7")
    assert made == [{}]


@pytest.mark.parametrize(
    ("own_name", "host", "others", "expected"),
    [
        ("debian", "debian", ["other"], "192.0.2.7"),
        ("debian", "DEBIAN.lan.", ["other"], "DEBIAN.lan."),  # which has no address here
        ("debian", "debian", ["unknown"], "198.51.100.7"),  # as for any network
        ("debian", "debian", [], "198.51.100.7"),
        ("both", "both", ["other"], "192.0.2.7"),
        ("v6 loopback", "v6 loopback", ["v6"], "2001:db8::7"),
        ("host", "debian", ["other"], "debian"),  # another name may be that of a tunnel
        ("debian", "127.0.1.1", ["other"], "127.0.1.1"),
        ("debian", "other", ["debian"], "other"),
        ("localhost", "localhost", ["other"], "localhost"),
        ("v6", "v6", ["other"], "v6"),
    ],
)
def test_own_name_on_the_loopback_is_the_address_for_the_others(
    monkeypatch: pytest.MonkeyPatch, own_name: str, host: str, others: list[str], expected: str
):
    ways = {"192.0.2.99": "192.0.2.7", "2001:db8::7": "2001:db8::7", "192.0.2.1": "198.51.100.7"}
    monkeypatch.setattr("socket.gethostname", lambda: own_name)
    monkeypatch.setattr(_addresses, "_address_towards", ways.get)
    assert reachable_host(host, others) == expected


def test_a_host_without_a_way_to_any_network_has_the_address_of_a_device(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("socket.gethostname", lambda: "debian")
    monkeypatch.setattr(_addresses, "_address_towards", lambda _: None)
    devices = ["127.0.0.1", "10.0.0.7"]
    monkeypatch.setattr(_addresses, "_addresses_of_devices", lambda: iter(devices))
    assert reachable_host("debian") == "10.0.0.7"
    del devices[1]
    assert reachable_host("debian") == "debian"


def test_bridges_are_the_last_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    addresses = {b"docker0": "172.17.0.1", b"eth0": "10.0.0.7", b"lo": "127.0.0.1"}

    def ioctl(_: object, __: int, request: bytes) -> bytes:
        return bytes(20) + socket.inet_aton(addresses[request.rstrip(b"\0")])

    names = [(1, "lo"), (2, "docker0"), (3, "eth0")]
    monkeypatch.setattr("socket.if_nameindex", lambda: names)
    monkeypatch.setattr("fcntl.ioctl", ioctl)
    monkeypatch.setattr(_addresses, "_DEVICES", tmp_path)
    (tmp_path / "docker0" / "bridge").mkdir(parents=True)
    assert list(_addresses._addresses_of_devices()) == ["127.0.0.1", "10.0.0.7", "172.17.0.1"]


def test_the_loopback_is_the_address_of_a_device():
    assert "127.0.0.1" in _addresses._addresses_of_devices()
