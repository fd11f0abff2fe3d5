"""Shows the examples in docstrings as code in the API reference; mkdocs.yml names this file.

To Markdown, `>>>` begins a quotation, and the lines of an example would run together.
"""

import re
from typing import Any

from griffe import Extension, Object  # pyright: ignore[reportMissingImports]

# From a line with a prompt up to the next empty line, or the end.
EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?!\s*$).*)*", re.M)


def fenced(docstring: str) -> str:
    """The docstring with a fence around each of its examples."""

    def fence(match: re.Match[str]) -> str:
        indent = match["indent"]
        return f"{indent}```pycon\n{match[0]}\n{indent}```"

    return EXAMPLE.sub(fence, docstring)


class DoctestsAsCode(Extension):
    """Changes what is read from the source, before it is rendered."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
