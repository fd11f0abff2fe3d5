"""Small tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

_CELL = "text-align:left;padding:2px 10px;border:1px solid #8884"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a table with a title; everything is escaped."""

    def cells(tag: str, values: Sequence[Any]) -> str:
        return "".join(
            f'<{tag} style="{_CELL}">{html.escape(str(value))}</{tag}>' for value in values
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f"<div><b>{html.escape(title)}</b>"
        f'<table style="border-collapse:collapse;font-family:monospace;font-size:90%">'
        f"<thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def short(value: Any, limit: int = 60) -> str:
    """Returns one line for a value."""
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
