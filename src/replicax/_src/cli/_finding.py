"""What an examination of the doctor brings: facts, lines to read, and what is wrong."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Problem(NamedTuple):
    """Something that is wrong, and how to mend it."""

    text: str
    fix: str


@dataclasses.dataclass
class Finding:
    """What was found in one part."""

    lines: list[str] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """For `--json`, and for the parts that come later."""


class Part(NamedTuple):
    """One part of the examination; `examine` gets what the parts before it have found."""

    name: str
    examine: Callable[[Mapping[str, Finding]], Finding]
    seconds: float
    if_it_hangs: str
