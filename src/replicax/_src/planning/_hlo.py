"""What a compiled program says of itself: its collectives, and the largest of its tensors.

XLA's text is read line by line: a computation is a list of instructions, of which each has a name,
a shape and an operation. Loops and calls name other computations.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

_WIDTH = {"pred": 1, "token": 0, "opaque": 0}
# `re` compiles patterns when they are first used, and keeps them: `import replicax` needs none.
_HEAD = r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{$"
_LINE = r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)$"
_OPERATION = r"(?P<shape>.*?)\s(?P<operation>[a-z][a-z0-9\-]*)\((?P<operands>.*)$"
_ARRAY = r"\b(pred|token|[a-z]+\d+[a-z0-9]*)\[([\d,]*)\]"
_CALLED = r"(?:calls|to_apply|body|condition|branch_computations)=\{?%?([\w.\-, %]+)\}?"
_NAME = r"%([\w.\-]+)"
_TRIPS = r'"known_trip_count":\{"n":"(\d+)"\}'
# In another memory than that of the device: a TPU's cores have some of their own, the host too.
_ELSEWHERE = r"^[a-z0-9]+\[[\d,]*\]\{[^{}]*S\([1-9]\d*\)"
_CHAIN = r'chain_id="(\d+)"'
_FRAME = r"stack_frame_id=(\d+)"
_SOURCE = r'source_file="([^"]*)" source_line=(\d+)'
_LISTED_GROUPS = r"replica_groups=\{(\{[\d,{}\s]*\})\}"
_IOTA_GROUPS = r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?"

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Instruction(NamedTuple):
    """One line of a program.

    Attributes:
      name: of its result.
      operation: what it does.
      bytes: the size of its result.
      shape: the same, as text.
      operands: the names of what it takes.
      text: all of it.
    """

    name: str
    operation: str
    bytes: int
    shape: str
    operands: list[str]
    text: str


@dataclasses.dataclass(frozen=True)
class Collective:
    """An exchange between devices.

    Attributes:
      kind: one of `KINDS`.
      bytes: of the whole array that is summed, gathered or taken apart.
      times: how often it happens in one call.
      groups: the numbers of the devices that exchange with each other; empty for all of them.
    """

    kind: str
    bytes: int
    times: int
    groups: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor that a program makes.

    Attributes:
      shape: with its dtype.
      bytes: on each device.
      operation: what makes it.
      line: of the user's program.
    """

    shape: str
    bytes: int
    operation: str
    line: str


class HloProgram:
    """The text of a compiled program, taken apart."""

    def __init__(self, text: str):
        self._frames = _Frames(text)
        self._computations: dict[str, list[Instruction]] = {}
        self._entry = ""
        current: list[Instruction] | None = None
        for line in text.splitlines():
            head = re.match(_HEAD, line)
            if head is not None:
                current = self._computations[head["name"]] = []
                self._entry = head["name"] if head["entry"] else self._entry
            elif line.startswith("}"):
                current = None
            elif current is not None and (found := re.match(_LINE, line)):
                instruction = _instruction(found["name"], found["rest"])
                if instruction is not None:
                    current.append(instruction)

    def collectives(self) -> list[Collective]:
        """Returns what the devices exchange in one call."""
        found: list[Collective] = []
        chains: set[str] = set()
        for instructions, times in self._walk(self._entry, 1):
            sizes = {each.name: each.bytes for each in instructions}
            for each in instructions:
                kind = each.operation.removesuffix("-start")
                chain = re.search(_CHAIN, each.text)
                if kind not in KINDS or (chain and chain[1] in chains):
                    continue
                if chain:  # on TPUs one that runs beside computations is written with each of them
                    chains.add(chain[1])
                groups = _groups(each.text)
                size = sum(sizes.get(name, 0) for name in each.operands)
                if kind == "all-gather":
                    size *= len(groups[0]) if groups else 1
                found.append(Collective(kind, size, times, groups))
        return found

    def _walk(self, name: str, times: int) -> Iterator[tuple[list[Instruction], int]]:
        """Yields the computations that run, with how often they do."""
        instructions = self._computations.get(name, [])
        yield instructions, times
        for each in instructions:
            if each.operation in ("reduce", "reduce-window", "scatter", "sort", *KINDS):
                continue  # what they apply is a sum or the like
            trips = re.search(_TRIPS, each.text)
            repeated = times * int(trips[1]) if each.operation == "while" and trips else times
            for inner in self._called_by(each):
                yield from self._walk(inner, repeated)

    def _called_by(self, instruction: Instruction) -> list[str]:
        """Returns the names of the computations that an instruction calls."""
        found = ",".join(re.findall(_CALLED, instruction.text))
        return [name for name in re.split(r"[,\s%]+", found) if name in self._computations]

    def largest(self, count: int) -> list[Tensor]:
        """Returns the largest tensors in a device's memory that are made on the way.

        Each of a line and shape is given once.
        """
        found: dict[tuple[str, str], Tensor] = {}
        for instructions in self._walk_unfused(self._entry):
            for each in instructions:
                if each.operation in _NOT_MADE or each.shape.startswith("("):
                    continue
                if re.match(_ELSEWHERE, each.text):
                    continue
                line = self._frames.line(each.text)
                operation = _operation_name(each)
                key = (each.shape, line or operation)
                found.setdefault(key, Tensor(each.shape, each.bytes, operation, line))
        return sorted(found.values(), key=lambda each: -each.bytes)[:count]

    def _walk_unfused(self, name: str) -> Iterator[list[Instruction]]:
        """Yields the same without what is inside of fusions: that has no memory of its own."""
        instructions = self._computations.get(name, [])
        yield instructions
        for each in instructions:
            if each.operation in ("while", "conditional", "call"):
                for inner in self._called_by(each):
                    yield from self._walk_unfused(inner)


_NOT_MADE = frozenset("parameter tuple get-tuple-element bitcast constant while after-all".split())


def _operation_name(instruction: Instruction) -> str:
    found = re.search(r'op_name="([^"]*)"', instruction.text)
    return found[1].rsplit("/", 1)[-1] if found else instruction.operation


class _Frames:
    """The tables at the head of a program, which say where an operation comes from."""

    _PATTERN = r"^(\d+) (.*)$"

    def __init__(self, text: str):
        self._tables: dict[str, dict[int, str]] = {}
        current: dict[int, str] | None = None
        for line in text.splitlines():
            if line.startswith(("%", "ENTRY")):
                break
            if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                current = self._tables[line] = {}
            elif current is not None and (found := re.match(self._PATTERN, line)):
                current[int(found[1])] = found[2]

    def line(self, text: str) -> str:
        """Returns the user's line that an instruction is from, innermost first; "" if unknown."""
        plain = re.search(_SOURCE, text)
        frame = re.search(_FRAME, text)
        if frame is None:
            return f"{plain[1]}:{plain[2]}" if plain and not _is_library(plain[1]) else ""
        number, frames = int(frame[1]), self._table("StackFrames")
        while number in frames:
            fields = dict(re.findall(r"(\w+)=(\d+)", frames[number]))
            location = self._table("FileLocations").get(int(fields.get("file_location_id", 0)), "")
            place = dict(re.findall(r"(\w+)=(\d+)", location))
            file = self._table("FileNames").get(int(place.get("file_name_id", 0)), "").strip('"')
            if file and not _is_library(file):
                return f"{file}:{place.get('line')}"
            # XLA writes the number of the frame around this one plus one; 1 is for none.
            around = int(fields.get("parent_frame_id", 1)) - 1
            number = around if around < number else 0
        return ""

    def _table(self, name: str) -> dict[int, str]:
        return self._tables.get(name, {})


def _is_library(path: str) -> bool:
    return path.startswith("<") or any(
        part in path for part in ("/site-packages/", "/jax/_src/", "/replicax/_src/", "/importlib/")
    )


def _instruction(name: str, rest: str) -> Instruction | None:
    found = re.match(_OPERATION, _without_layouts(rest))
    if found is None:
        return None
    operands = found["operands"].split("), ")[0]
    shape = found["shape"].strip()
    arrays = re.findall(_ARRAY, shape)
    size = sum(_bytes(dtype, dims) for dtype, dims in arrays)
    if found["operation"].endswith("-start") and len(arrays) > 1:
        size = max(_bytes(dtype, dims) for dtype, dims in arrays)
    return Instruction(name, found["operation"], size, shape, re.findall(_NAME, operands), rest)


def _without_layouts(text: str) -> str:
    """`f32[8,128]{1,0:T(8,128)}` without what is in braces after a shape."""
    return re.sub(r"(\[[\d,]*\])\{[^{}]*\}", r"\1", text)


def _bytes(dtype: str, dims: str) -> int:
    count = math.prod(int(each) for each in dims.split(",") if each)
    if dtype in _WIDTH:
        return count * _WIDTH[dtype]
    bits = re.search(r"\d+", dtype)
    return math.ceil(count * int(bits[0]) / 8) if bits else 0


def _groups(text: str) -> tuple[tuple[int, ...], ...]:
    iota = re.search(_IOTA_GROUPS, text)
    if iota is not None:
        dims = [int(each) for each in iota[3].split(",")]
        numbers = np.arange(math.prod(dims)).reshape(dims)
        if iota[4]:
            numbers = numbers.transpose([int(each) for each in iota[4].split(",")])
        rows: Sequence[Sequence[int]] = numbers.reshape(int(iota[1]), int(iota[2])).tolist()
        return tuple(tuple(row) for row in rows)
    listed = re.search(_LISTED_GROUPS, text)
    if listed is None:
        return ()
    inner = re.findall(r"\{([\d,\s]*)\}", listed[1])
    return tuple(tuple(int(n) for n in row.split(",") if n.strip()) for row in inner if row)
