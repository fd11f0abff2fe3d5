"""The public names of replicax: what its namespaces list."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def public_names(namespace: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yields the names that a namespace lists: those in `__all__`, or written `x as x`."""
    listed = getattr(namespace, "__all__", None)
    if listed is None:
        assert namespace.__file__
        tree = ast.parse(Path(namespace.__file__).read_text(encoding="utf-8"))
        listed = [
            alias.asname
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if alias.asname and alias.asname == alias.name.split(".")[-1]
        ]
    for name in listed:
        if not name.startswith("_"):
            yield name, getattr(namespace, name)


def all_public_names(namespace: types.ModuleType, prefix: str) -> Iterator[str]:
    """Yields the names of a namespace and of those in it, as users write them."""
    for name, value in public_names(namespace):
        path = f"{prefix}.{name}"
        if isinstance(value, types.ModuleType):
            yield from all_public_names(value, path)
        else:
            yield path
