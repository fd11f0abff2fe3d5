"""Notebooks: their code as one program, and the program as a notebook again."""

import json
import re
from typing import TypedDict, final

from replicax._src.cli.migrate._source import Unreadable

# Lines of the program that are not Python, or not the user's.
_CELL = "#: cell "
_MAGIC = "pass  #: magic "  # a statement: it may be all that an `if` has

_LINE = r".*(?:(?<=\\)\n.*)*"  # goes on after a backslash
_IS_MAGIC = re.compile(
    rf"^([^\S\n]*)((?:%%?[a-zA-Z]|!(?!=)|\?|[\w, ]+=[^\S\n]*[!%][^\W\d]){_LINE})$", re.M
)
_WAS_MAGIC = re.compile(rf"^([^\S\n]*){_MAGIC}(.*)$", re.M)
# Magics whose cells are Python all the same.
_OF_PYTHON = re.compile(r"%%(capture|prun|time|timeit)\b")


class _Cell(TypedDict):
    """A cell, as the format has it, as far as it matters here."""

    cell_type: str
    source: str | list[str]


@final
class Notebook:
    """A notebook whose code cells, one below the other, are a program."""

    def __init__(self, content: bytes) -> None:
        """Reads a notebook.

        Raises:
          Unreadable: It is none.
        """
        try:
            self._text = content.decode("utf-8")
            self._content = json.loads(self._text)
            self._cells: list[_Cell] = [
                cell
                for cell in self._content["cells"]
                if cell["cell_type"] == "code" and _is_python(_source(cell))
            ]
        except (KeyError, TypeError, ValueError):
            raise Unreadable("is not a notebook", 0) from None

    @property
    def program(self) -> str:
        """The code, with a comment above each cell and magics in comments."""
        sources = [_IS_MAGIC.sub(_commented, _source(cell)) for cell in self._cells]
        return "".join(f"{_CELL}{n}\n{source}\n" for n, source in enumerate(sources, 1))

    def with_program(self, program: str) -> bytes:
        """Returns the notebook with the code of a program that was made from its own."""
        _, *parts = re.split(rf"^{_CELL}\d+\n", program, flags=re.M)
        for cell, part in zip(self._cells, parts, strict=True):
            text = _WAS_MAGIC.sub(_uncommented, part).removesuffix("\n")
            if text != _source(cell):
                is_text = isinstance(cell["source"], str)
                cell["source"] = text if is_text else text.splitlines(keepends=True)
        indent = re.search(r'\n( +)"', self._text)
        new = json.dumps(
            self._content, ensure_ascii=False, indent=len(indent[1]) if indent else None
        )
        return (new + "\n" * self._text.endswith("\n")).encode()


def _commented(magic: re.Match[str]) -> str:
    return f"{magic[1]}{_MAGIC}{json.dumps(magic[2])}"


def _uncommented(magic: re.Match[str]) -> str:
    return magic[1] + json.loads(magic[2])


def _source(cell: _Cell) -> str:
    return "".join(cell["source"])


def _is_python(source: str) -> bool:
    return not source.startswith("%%") or _OF_PYTHON.match(source) is not None
