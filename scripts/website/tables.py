"""Names in the cells of tables, which may be wider than a phone."""

from __future__ import annotations

import re

_CELL = re.compile(r"<td\b.*?</td>", re.S)
_CODE = re.compile(r"<code\b.*?</code>", re.S)
_TAG = re.compile(r"(<[^>]*>)")
_MAY_BREAK = re.compile(r"(?<=[._/(=])(?=\w)|(?<=[a-z])(?=[A-Z])")


def breakable(page: str) -> str:
    """Lets names in tables break at dots, underscores and capitals, and nowhere else.

    Args:
      page: the HTML of a page.

    Returns:
      The same page. What is copied from it stays the same too: `<wbr>` is no character.
    """
    return _CELL.sub(lambda cell: _CODE.sub(lambda code: _broken(code[0]), cell[0]), page)


def _broken(code: str) -> str:
    parts = _TAG.split(code)
    parts[::2] = [_MAY_BREAK.sub("<wbr>", text) for text in parts[::2]]
    return "".join(parts)
