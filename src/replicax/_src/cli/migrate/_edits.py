"""Changes to a text, by place: everything that is not changed stays as it was, to the last space.

Places are those of libcst: lines from 1, columns from 0, in characters.
"""

import bisect
import re
from typing import NamedTuple, final

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")  # what Python takes for a line

Place = tuple[int, int]
Range = tuple[Place, Place]


def split_lines(text: str) -> list[str]:
    """Returns the lines of a text with their ends. `str.splitlines` also cuts at form feeds."""
    return _LINE.findall(text)


@final
class _Change(NamedTuple):
    start: Place
    order: int
    """Of changes at one place: what ends there, then what begins there, then what is replaced."""
    nesting: int
    end: Place
    parts: tuple["str | Range", ...]
    """Text, and parts of the old text, which may change inside."""


@final
class Edits:
    """Changes to a text, collected in any order and applied together."""

    def __init__(self, text: str) -> None:
        self._lines = split_lines(text)
        self._changes: list[_Change] = []
        self._before: dict[int, list[str]] = {}
        self._above: dict[int, list[str]] = {}
        self._below: dict[int, list[str]] = {}
        self._removed: set[int] = set()
        self._moved: dict[int, int] = {}
        self.dropped: list[tuple[int, str]] = []
        """Comments that were in what is replaced, with the line where that begins."""
        self._parts: list[tuple[int, int, str]] = []
        self._done = -1  # how many changes there were when the parts were made
        self.newline = next((match for line in self._lines if (match := _end_of(line))), "\n")

    def line(self, number: int) -> str:
        """Returns the text of a line, without its end; empty where there is none."""
        if not 1 <= number <= len(self._lines):
            return ""
        return self._lines[number - 1].rstrip("\r\n")

    def replace(self, start: Place, end: Place, *parts: str | Range) -> None:
        """Puts text in the place of what is between two places. Its comments are `dropped`.

        Args:
          start: where it begins.
          end: where it ends.
          *parts: text, and parts of what is replaced, which stay and may change inside.
        """
        old = [self._between(*part) if isinstance(part, tuple) else part for part in parts]
        comments = self._comments_between(start, end)
        kept = "".join(old)
        self.dropped += ((start[0], comment) for comment in comments if comment not in kept)
        self._changes.append(_Change(start, 2, 0, end, parts))

    def wrap(self, start: Place, end: Place, before: str, after: str) -> None:
        """Puts text around what is between two places, which may change inside."""
        width = (end[0] - start[0]) * 10_000 + end[1] - start[1]
        if after:  # what is inside ends first
            self._changes.append(_Change(end, 0, width, end, (after,)))
        if before:  # what is outside begins first
            self._changes.append(_Change(start, 1, -width, start, (before,)))

    @property
    def changes(self) -> int:
        """How many changes there are so far."""
        return len(self._changes)

    def _comments_between(self, start: Place, end: Place) -> list[str]:
        """Returns the comments between two places of one expression."""
        lines = split_lines(self._between(start, end))[:-1] if start[0] < end[0] else []
        return [line[line.index("#") :].rstrip() for line in lines if "#" in line]

    def move_left(self, line: int, start: int, end: int) -> None:
        """Takes out what is between two columns of a line: some of its indentation."""
        self.replace((line, start), (line, end), "")
        self._moved[line] = end - start

    def indentation(self, line: int) -> str:
        """Returns how far in a line will stand."""
        text = self.line(line)
        return text[: len(text) - len(text.lstrip()) - self._moved.get(line, 0)]

    def remove_lines(self, first: int, last: int) -> None:
        """Takes lines out, with their ends."""
        self.replace((first, 0), (last, len(self._lines[last - 1])), "")
        self._removed.add(first)

    def is_removed(self, number: int) -> bool:
        """Returns whether lines were taken out that begin with this one."""
        return number in self._removed

    def add_line_above(self, number: int, text: str) -> None:
        """Adds a line above one, unless it is to be added there already."""
        above = self._above.setdefault(number, [])
        if text not in above:
            above.append(text)

    def add_line_before(self, number: int, text: str) -> None:
        """Adds a line above one and above what else is added there."""
        self._before.setdefault(number, []).append(text)

    def add_line_below(self, number: int, text: str) -> None:
        """Adds a line below one; below line 0 is above all."""
        self._below.setdefault(number, []).append(text)

    def new_line(self, number: int) -> str | None:
        """Returns what becomes of a line; None if it stays as it is, and empty if it goes.

        Lines that are added before and below it are part of it, and those above it are not. A
        change over several lines belongs to all of them.
        """
        blocks = self._blocks()
        first, last, text = blocks[bisect.bisect(blocks, number, key=lambda block: block[0]) - 1]
        before, below = self._before.get(first, []), self._added_below(first, last)
        if text == "".join(self._lines[first - 1 : last]) and not before and not below:
            return None
        return "\n".join([*before, text.rstrip("\r\n"), *below])

    def changed_lines(self) -> list[tuple[int, int]]:
        """First and last line of each part that changes, lines that are added aside."""
        return [
            (first, last)
            for first, last, text in self._blocks()
            if text != "".join(self._lines[first - 1 : last])
        ]

    def result(self) -> str:
        """Returns the text with all changes."""
        parts = [f"{line}{self.newline}" for line in self._below.get(0, ())]
        for first, last, text in self._blocks():
            above = (*self._before.get(first, ()), *self._above.get(first, ()))
            parts += [f"{line}{self.newline}" for line in above]
            parts.append(text)
            below = self._added_below(first, last)
            if below and text and not _end_of(text):  # the last line of the file
                parts.append(self.newline)
            parts += [f"{line}{self.newline}" for line in below]
        return "".join(parts)

    def _added_below(self, first: int, last: int) -> list[str]:
        return [line for each in range(first, last + 1) for line in self._below.get(each, ())]

    def _blocks(self) -> list[tuple[int, int, str]]:
        """Returns the lines as they will be: first and last line of each part, and its new text."""
        if self._done != len(self._changes):
            self._parts, self._done = self._applied(), len(self._changes)
        return self._parts

    def _applied(self) -> list[tuple[int, int, str]]:
        changes = sorted(self._changes, key=lambda change: change[:3])
        blocks: list[tuple[int, int, str]] = []
        number, position = 1, 0
        while number <= len(self._lines):
            first, last = position, number
            while position < len(changes) and changes[position].start[0] <= last:
                last = max(last, changes[position].end[0])
                position += 1
            whole = ((number, 0), (last, len(self._lines[last - 1])))
            blocks.append((number, last, self._changed(whole, changes[first:position])))
            number = last + 1
        return blocks

    def _changed(self, part: Range, changes: list[_Change]) -> str:
        """Returns a part of the text with the changes that are in it."""
        at, end = part
        text: list[str] = []
        for change in changes:
            if at <= change.start and change.end <= end:  # not in the middle of what is replaced
                text.append(self._between(at, change.start))
                text += (
                    self._changed(each, changes) if isinstance(each, tuple) else each
                    for each in change.parts
                )
                at = change.end
        return "".join([*text, self._between(at, end)])

    def _between(self, start: Place, end: Place) -> str:
        if start[0] == end[0]:
            return self._lines[start[0] - 1][start[1] : end[1]]
        middle = self._lines[start[0] : end[0] - 1]
        return "".join(
            [self._lines[start[0] - 1][start[1] :], *middle, self._lines[end[0] - 1][: end[1]]]
        )


def _end_of(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]
