"""Compares what was recorded of TensorFlow with what replicax has, name by name.

A name is the *same* if every call that TensorFlow's signature allows means the same here: names of
arguments, their order and their defaults. replicax may take more: further arguments that need not
be given, and fewer that must be. Anything else needs a reason, in `reasons.py`.
"""

from __future__ import annotations

import enum
import functools
import json
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import replicax as rx
from replicax._src.cli.migrate import _lookup
from replicax._src.cli.migrate._verdict import Verdict
from scripts.api_review import reasons, record, record_pages, surface
from scripts.api_review.surface import Described


class Kind(enum.Enum):
    """What became of a name."""

    SAME = "same"
    DIFFERENT = "different on purpose"
    ABSENT = "not available"


class Finding(NamedTuple):
    """What became of one name, or of one member of a class.

    Attributes:
      name: TensorFlow's, as `tf.distribute.Strategy.run`.
      kind: what became of it.
      new: replicax's name; empty if it is not there.
      remark: why it differs or is not there; empty if nobody has said why.
      more: arguments that only replicax takes.
    """

    name: str
    kind: Kind
    new: str = ""
    remark: str = ""
    more: tuple[str, ...] = ()


class Class(NamedTuple):
    """A class or function, and the members of a class."""

    finding: Finding
    members: tuple[Finding, ...] = ()


class _Argument(NamedTuple):
    stars: str
    name: str
    default: str | None


def recorded() -> dict[str, Described]:
    """What TensorFlow has."""
    return json.loads(record.RECORDED.read_text(encoding="utf-8"))["names"]


def recorded_version() -> str:
    """The version of TensorFlow that was looked at."""
    return json.loads(record.RECORDED.read_text(encoding="utf-8"))["version"]


def recorded_pages() -> dict[str, Described]:
    """What the pages of TensorFlow's reference have."""
    return json.loads(record_pages.RECORDED.read_text(encoding="utf-8"))["names"]


def mentioned() -> list[str]:
    """The names that those pages mention anywhere."""
    return json.loads(record_pages.RECORDED.read_text(encoding="utf-8"))["mentioned"]


def instead_of(name: str) -> str:
    """What to write for a name that is mentioned; empty if there is nothing for it."""
    if told := reasons.MENTIONED.get(name):
        return told
    if described(new_name(name)) is not None:
        return f"`{new_name(name)}`"
    if name.startswith("tf.keras"):
        return f"`{name.removeprefix('tf.')}`"
    match = _lookup.lookup(name)
    if match.entry.verdict is Verdict.UNSUPPORTED:
        return ""
    new = match.entry.new or match.entry.advice
    return f"`{new}{name[len(match.name) :]}`" if match.entry is not _lookup._UNKNOWN else ""


def compared(names: dict[str, Described]) -> Iterator[Class]:
    """Says of every recorded name what became of it."""
    for name, theirs in names.items():
        ours = described(new_name(name))
        if ours is None:
            yield Class(Finding(name, Kind.ABSENT, remark=why_absent(name)))
            continue
        finding = _compared(name, theirs.get("arguments"), ours.get("arguments"), f"{name}()")
        members = (
            _member(name, member, arguments, ours.get("members", {}))
            for member, arguments in theirs.get("members", {}).items()
        )
        yield Class(finding, tuple(members))


def _member(
    owner: str, member: str, theirs: list[str] | None, ours: dict[str, list[str] | None]
) -> Finding:
    name = f"{owner}.{member}"
    if member in ours and theirs is None and ours[member] is not None:
        return Finding(name, Kind.DIFFERENT, new_name(name), reasons.reason_of(name))
    if member in ours:
        return _compared(name, theirs, ours[member], name)
    return Finding(name, Kind.ABSENT, remark=why_absent(name))


def _compared(name: str, theirs: list[str] | None, ours: list[str] | None, reason: str) -> Finding:
    new = new_name(name)
    if theirs is None:
        return Finding(name, Kind.SAME, new)
    if ours is None:
        return Finding(name, Kind.DIFFERENT, new, reasons.reason_of(reason))
    if differences(theirs, ours):
        return Finding(name, Kind.DIFFERENT, new, reasons.reason_of(reason))
    return Finding(name, Kind.SAME, new, more=tuple(additions(theirs, ours)))


def new_name(name: str) -> str:
    """Where replicax has what TensorFlow calls by this name, if it has it."""
    for old, new in reasons.MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name[len(old) :]
    return name.replace("tf.", "rx.", 1)


@functools.cache
def described(name: str) -> Described | None:
    """Describes a name of replicax; None if there is no such name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rx.compat.OldNameWarning)
            return surface.describe(surface.find(rx, name.removeprefix("rx.")))
    except AttributeError:
        return None


def why_absent(name: str) -> str:
    """Why a name or a member is not there, and what there is instead; empty if nobody said."""
    if reason := reasons.reason_of(name):
        return reason
    owner, _, member = name.rpartition(".")
    if owner in recorded():
        kind = owner.rpartition(".")[2]
        found = _lookup.lookup_method(kind, member)
        if found is None or not found.advice or _lookup.is_remark_on_all(kind, member):
            return ""
        return f"`{found.advice}`"
    found = _lookup.lookup(name).entry
    return found.advice if found.verdict is Verdict.UNSUPPORTED else ""


# --- arguments ------------------------------------------------------------------------------------


def differences(theirs: list[str], ours: list[str]) -> list[str]:
    """Lists what a call that is right for their signature would get wrong with ours."""
    wanted, had = _parsed(theirs), _parsed(ours)
    by_name = {each.name: each for each in had}
    found: list[str] = []
    positional = [each for each in _positional(had)]
    for place, each in enumerate(_positional(wanted)):
        if place >= len(positional) or positional[place].name != each.name:
            found.append(f"argument {place + 1} is not {each.name}")
        elif not _fits(each.default, positional[place].default):
            found.append(f"{each.name} is not {each.default} by default")
    for each in wanted[len(_positional(wanted)) :]:
        ours_of_it = by_name.get(each.name)
        if not each.name:  # the bare star before those that must be named
            continue
        if each.stars and not any(other.stars == each.stars for other in had):
            found.append(f"there is no {each.stars}{each.name}")
        elif not each.stars and (ours_of_it is None or not _fits(each.default, ours_of_it.default)):
            found.append(f"{each.name} is missing, or has another default")
    names = {each.name for each in wanted}
    found += [
        f"{each.name} must be given"
        for each in had
        if each.name not in names and each.default is None and not each.stars
    ]
    return found


def additions(theirs: list[str], ours: list[str]) -> list[str]:
    """The arguments that only we take."""
    names = {each.name for each in _parsed(theirs)}
    return [each.name for each in _parsed(ours) if each.name not in names and not each.stars]


def _parsed(arguments: list[str]) -> list[_Argument]:
    parsed = []
    for text in arguments:
        name, equals, default = text.partition("=")
        bare = name.lstrip("*")
        stars = name[: len(name) - len(bare)]
        parsed.append(_Argument(stars or ("" if bare else "*"), bare, default if equals else None))
    return parsed


def _positional(arguments: list[_Argument]) -> list[_Argument]:
    """Those before the first star."""
    starred = [place for place, each in enumerate(arguments) if each.stars]
    return arguments[: starred[0]] if starred else arguments


def _fits(theirs: str | None, ours: str | None) -> bool:
    """Whether a default means what theirs does; we may have one where they have none."""
    if theirs is None or ours is None:
        return theirs is None
    return _bare(theirs) == _bare(ours)


def _bare(default: str) -> str:
    """A default as one writes it, and a member of an enum without its class, which may be moved."""
    text = default.strip("()") if default.strip("()") else default
    is_member = "." in text and not text[0].isdigit() and text[0] not in "'\"-"
    return text.rpartition(".")[2] if is_member else text
