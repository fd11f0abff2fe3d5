"""Classes of other libraries are known by their names: nothing is imported."""

from __future__ import annotations


def is_a(source: object, module: str, name: str) -> bool:
    """Whether `source` is of a class of this name that a module of another package defines."""
    return any(
        kind.__name__ == name and f"{kind.__module__}.".startswith(module)
        for kind in type(source).__mro__
    )
