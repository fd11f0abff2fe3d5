"""Names in tables and headings, which may be wider than a phone."""

from __future__ import annotations

import re

_PLACE = re.compile(r"<(td|h[1-4])\b.*?</\1>", re.S)
_NAME = re.compile(r'<code\b.*?</code>|<span class="doc doc-object-name.*?</span>', re.S)
_TAG = re.compile(r"(<[^>]*>)")
_MAY_BREAK = re.compile(r"(?<=[._/(=])(?=[A-Za-z_])|(?<=[a-z])(?=[A-Z])")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def breakable(page: str) -> str:
    """Lets names break at dots, underscores and capitals, and nowhere else; options do not.

    Args:
      page: the HTML of a page.

    Returns:
      The same page. What is copied from it stays the same too: `<wbr>` is no character.
    """
    return _PLACE.sub(lambda place: _NAME.sub(lambda name: _broken(name[0]), place[0]), page)


def _broken(name: str) -> str:
    parts = _TAG.split(name)
    for index in range(0, len(parts), 2):
        text = _MAY_BREAK.sub("<wbr>", parts[index])
        parts[index] = _OPTION.sub(r'<span class="option">\g<0></span>', text)
    return "".join(parts)
