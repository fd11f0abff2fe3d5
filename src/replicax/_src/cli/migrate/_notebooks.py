"""Notebooks: their code as programs, and the programs as a notebook again."""

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, final

from replicax._src.cli.migrate._source import Unreadable

# Lines of the program that are not Python, or not the user's.
_CELL = "#: cell "
_MAGIC = "pass  #: magic "  # a statement: it may be all that an `if` has
_INDENTED = "if True:  #: indented\n"  # IPython runs cells that are

_LINE = r".*(?:(?<=\\)\n.*)*"  # goes on after a backslash
_IS_MAGIC = re.compile(
    rf"^([^\S\n]*)((?:%%?[a-zA-Z]|!(?!=)|\?|[\w,][\w, ]*=[^\S\n]*[!%][^\W\d]){_LINE}"
    r"|%{0,2}[\w.*]+\?\??[^\S\n]*)$",  # asks for help
    re.M,
)
_WAS_MAGIC = re.compile(rf"^([^\S\n]*){_MAGIC}(.*)$", re.M)
# Magics whose cells are Python all the same.
_OF_PYTHON = re.compile(r"%%(capture|prun|time|timeit)\b")
# A magic that writes the rest of its cell to a file.
_OF_FILE = re.compile(r"%%(?:write)?file[^\S\n]+(?:-a[^\S\n]+)?(\S+\.py)[^\S\n]*\n")


@final
class _Cell(NamedTuple):
    """A cell of code."""

    source: str
    start: int
    """Where its source begins in the text of the notebook."""
    end: int
    is_list: bool
    """Whether the source is written as a list of lines."""


@final
class Notebook:
    """A notebook whose code cells, one below the other, are a program.

    Cells that write files of Python are programs of their own. Of the notebook's text only the
    source of cells changes: everything else stays as it is written.
    """

    def __init__(self, content: bytes) -> None:
        """Reads a notebook.

        Raises:
          Unreadable: It is none.
        """
        self._mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
        try:
            self._text = content.decode("utf-8-sig")
            cells = list(_code_cells(self._text))
            self._cells = [each for each in cells if _is_python(each.source)]
            self._files = {
                f"{found[1]}, cell {number}": (found[0], each)
                for number, each in enumerate(cells, 1)
                if (found := _OF_FILE.match(each.source))
            }
            "".join(each.source for each in cells).encode()  # half of a surrogate pair is no text
        except (KeyError, TypeError, ValueError):
            raise Unreadable("is not a notebook", 0) from None

    @property
    def program(self) -> str:
        """The code, with a comment above each cell and magics in comments."""
        sources = [
            (_INDENTED if _is_indented(cell.source) else "")
            + _IS_MAGIC.sub(_commented, cell.source)
            for cell in self._cells
        ]
        return "".join(f"{self._heading}{n}\n{source}\n" for n, source in enumerate(sources, 1))

    @property
    def _heading(self) -> str:
        """Begins a comment that no cell has."""
        heading = _CELL
        while any(heading in cell.source for cell in self._cells):
            heading = f"#{heading}"
        return heading

    @property
    def files(self) -> dict[str, str]:
        """The programs that its cells write to files: "model.py, cell 3"."""
        return {
            name: cell.source.removeprefix(magic) for name, (magic, cell) in self._files.items()
        }

    def with_programs(self, program: str, files: Mapping[str, str]) -> bytes:
        """Returns the notebook with the code of programs that were made from its own.

        Args:
          program: what became of `program`.
          files: what became of `files`; those that are not in it stay.
        """
        _, *parts = re.split(rf"^{self._heading}\d+\n", program, flags=re.M)
        new = {
            cell: _WAS_MAGIC.sub(_uncommented, part).replace(_INDENTED, "").removesuffix("\n")
            for cell, part in zip(self._cells, parts, strict=True)
        }
        for name, text in files.items():
            magic, cell = self._files[name]
            new[cell] = magic + text
        written, at = "", 0
        for cell, source in sorted(new.items(), key=lambda item: item[0].start):
            if source != cell.source:
                written += self._text[at : cell.start] + self._written(source, cell)
                at = cell.end
        return self._mark + (written + self._text[at:]).encode()

    def _written(self, source: str, cell: _Cell) -> str:
        """A source as the notebook has it: a text, or a list, in lines of its own or in one."""
        has_only_ascii = self._text.isascii()
        lines = source.splitlines(keepends=True) if cell.is_list else [source]
        written = [json.dumps(line, ensure_ascii=has_only_ascii) for line in lines]
        if not cell.is_list:
            return written[0]
        old = self._text[cell.start : cell.end]
        around = re.fullmatch(r'\[(\s*)".*"(\s*)\]', old, re.S)
        first, last = around.groups() if around else ("", "")
        return f"[{first}{(',' + (first or ' ')).join(written)}{last}]"


def _code_cells(text: str) -> Iterator[_Cell]:
    """Yields the code cells of the text of a notebook."""
    (start, _) = dict(_members(text, 0))["cells"]
    for _, (at, end) in _members(text, start):
        cell = json.loads(text[at:end])
        if cell["cell_type"] == "code":
            start, end = dict(_members(text, at))["source"]
            yield _Cell("".join(cell["source"]), start, end, isinstance(cell["source"], list))


def _members(text: str, at: int) -> Iterator[tuple[str | int, tuple[int, int]]]:
    """Yields the keys of an object of JSON, or the positions of a list, and where the values are.

    Raises:
      ValueError: It is none.
    """
    at = _beyond(text, at, r"")
    is_object = text[at : at + 1] == "{"
    at = _beyond(text, at, r"[\[{]")
    position = 0
    while text[at : at + 1] not in ("]", "}"):
        key: str | int = position
        if position:
            at = _beyond(text, at, ",")
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _beyond(text, at, ":")
        _, end = _DECODER.raw_decode(text, at)
        yield key, (at, end)
        at = _beyond(text, end, r"")
        position += 1


_DECODER = json.JSONDecoder()


def _beyond(text: str, at: int, sign: str) -> int:
    """Returns the place behind a sign, and behind the space around it.

    Raises:
      ValueError: It is not there.
    """
    found = re.compile(rf"\s*{sign}\s*").match(text, at)
    if found is None:
        raise ValueError(f"{sign} is missing at {at}")
    return found.end()


def _commented(magic: re.Match[str]) -> str:
    return f"{magic[1]}{_MAGIC}{json.dumps(magic[2])}"


def _uncommented(magic: re.Match[str]) -> str:
    return magic[1] + json.loads(magic[2])


def _is_indented(source: str) -> bool:
    """Returns whether the first line of code is: all lines are moved to the left then."""
    lines = (line for line in source.splitlines() if line.strip() and line.strip()[0] != "#")
    return next(lines, "").startswith((" ", "\t"))


def _is_python(source: str) -> bool:
    return not source.startswith("%%") or _OF_PYTHON.match(source) is not None
