"""What launchers say to each other. Whatever comes from a network is checked here, before use.

A member says `Arrival` (here I am, and have the key), `Ready` (my workers are gone; new addresses)
and `Exit` (a worker has ended). The leader says `Welcome` or `Refused`, `Start`, `Signal`, `Say`
and `End`.
"""

import dataclasses
import signal
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform, final

from replicax._src._errors import ClusterConfigError
from replicax._src.cluster import split_address
from replicax._src.cluster.control import Message

LEADER = "the leader"
"""How a proof names the launcher that decides, whichever node it is."""

Kind = TypeVar("Kind", bound="NodeMessage")

_LONGEST_LINE = 300
_LONGEST_TEXT = 1 << 20
_MOST = 1 << 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
# What a leader may set in the environment of a member's workers: with any variable at all, such as
# PYTHONPATH, it could have them run anything.
_PREFIX = "REPLICAX_"


class BadMessage(ValueError):
    """What came is not what launchers say to each other."""


# Each of these returns the value, as it should be, or raises BadMessage.


def _number(least: int, most: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if type(value) is not int or not least <= value <= most:  # True is no number here
            raise BadMessage(f"{value!r:.60} is not a whole number from {least} to {most}")
        return value

    return check


def _text(longest: int) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or len(value) > longest:
            raise BadMessage(f"{value!r:.60} is not a text of at most {longest} characters")
        try:
            value.encode()
        except UnicodeEncodeError:  # JSON can have halves of characters
            raise BadMessage(f"{value!r:.60} is not a text") from None
        return value

    return check


def _line(value: object) -> str:
    line = _text(_LONGEST_LINE)(value)
    if not line.isprintable():
        raise BadMessage(f"{line!r:.60} is not a line")
    return line


def _list(of: Callable[[object], Any]) -> Callable[[object], list[Any]]:
    def check(value: object) -> list[Any]:
        if not isinstance(value, list):
            raise BadMessage(f"{value!r:.60} is not a list")
        return [of(each) for each in value]

    return check


def _address(value: object) -> str:
    address = _line(value)
    try:
        split_address(address)
    except ClusterConfigError:
        raise BadMessage(f"{value!r:.60} is not an address") from None
    return address


def _seat(value: object) -> tuple[int, int]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise BadMessage(f"{value!r:.60} is not a place and a rank")
    return _number(0, _MOST)(value[0]), _number(0, _MOST)(value[1])


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadMessage(f"{value!r:.60} is not an environment")
    return {_line(name): _line(each) for name, each in value.items() if name.startswith(_PREFIX)}


def _signal(value: object) -> int:
    number = _number(1, 64)(value)
    if number not in _SIGNALS:
        raise BadMessage(f"{value} is not a signal that launchers send")
    return number


def _field(check: Callable[[object], Any]) -> Any:
    return dataclasses.field(metadata={"check": check})


@dataclass_transform(frozen_default=True, field_specifiers=(_field,))
@dataclasses.dataclass(frozen=True)
class NodeMessage:
    """One kind of message: `class Ready(NodeMessage, op="ready")` is a frozen dataclass."""

    op: ClassVar[str]

    def __init_subclass__(cls, op: str) -> None:
        cls.op = op
        dataclasses.dataclass(frozen=True)(cls)

    @property
    def message(self) -> Message:
        """The message for the wire."""
        return {"op": self.op, **dataclasses.asdict(self)}

    @classmethod
    def of(cls: type[Kind], message: Message) -> Kind:
        """Returns what a message from the wire says; BadMessage if it is not of this kind."""
        if message.get("op") != cls.op:
            raise BadMessage(f"{message.get('op')!r:.60} came in place of {cls.op!r}")
        try:
            return cls(
                **{
                    field.name: field.metadata["check"](message[field.name])
                    for field in dataclasses.fields(cls)
                }
            )
        except KeyError as error:
            raise BadMessage(f"{cls.op!r} without {error}") from None


@final
class Arrival(NodeMessage, op="node"):
    """A launcher says which node it is, and with what options; "" is the proof of no key."""

    rank: int = _field(_number(0, _MOST))
    nodes: str = _field(_line)
    workers: str = _field(_line)
    host: str = _field(_line)
    addresses: list[str] = _field(_list(_address))
    challenge: str = _field(_line)
    proof: str = _field(_line)


@final
class Ready(NodeMessage, op="ready"):
    """Its workers are gone, and new ones can have these addresses."""

    generation: int = _field(_number(0, 1 << 62))
    addresses: list[str] = _field(_list(_address))


@final
class Exit(NodeMessage, op="exit"):
    """A worker of it has ended: the status is as `Popen.returncode`."""

    generation: int = _field(_number(0, 1 << 62))
    rank: int = _field(_number(0, _MOST))
    status: int = _field(_number(-255, 255))


@final
class Welcome(NodeMessage, op="welcome"):
    """The leader takes a launcher in, and proves that it has the key too; "" if it has none."""

    proof: str = _field(_line)


@final
class Refused(NodeMessage, op="refused"):
    """The leader does not take a launcher in, or has given it up."""

    text: str = _field(_text(_LONGEST_TEXT))


@final
class Start(NodeMessage, op="start"):
    """Start your workers of a generation; see `NodePlan`."""

    generation: int = _field(_number(0, 1 << 62))
    cluster: list[str] = _field(_list(_address))
    environment: dict[str, str] = _field(_environment)
    seats: list[tuple[int, int]] = _field(_list(_seat))


@final
class Signal(NodeMessage, op="signal"):
    """Send your workers a signal."""

    number: int = _field(_signal)


@final
class Say(NodeMessage, op="say"):
    """Add lines to your log."""

    text: str = _field(_text(_LONGEST_TEXT))


@final
class End(NodeMessage, op="end"):
    """The job is over, with this exit status."""

    status: int = _field(_number(0, 255))


_KINDS: dict[str, type[NodeMessage]] = {kind.op: kind for kind in NodeMessage.__subclasses__()}


def parsed(message: Message) -> NodeMessage:
    """Returns what a message says; BadMessage if no launcher says that."""
    kind = _KINDS.get(str(message.get("op")))
    if kind is None:
        raise BadMessage(f"{message.get('op')!r:.60} is nothing that launchers say")
    return kind.of(message)
