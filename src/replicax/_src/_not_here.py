"""What is said when a name is asked for that is TensorFlow's, and not ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def names_of_others(module: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module: an error that says where to look."""

    def missing(name: str) -> NoReturn:
        text = f"module {module!r} has no attribute {name!r}"
        if not name.startswith("_"):
            place = f"tf{module.removeprefix('replicax')}.{name}"
            text += (
                f". What to write for {place} is in docs/names.md, and `replicax migrate` says it "
                "of each line of a program"
            )
        raise AttributeError(text, name=name)

    return missing
