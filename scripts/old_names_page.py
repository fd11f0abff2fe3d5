"""Writes docs/old-names.md from the table in src/replicax/_src/_old_names.py.

Run `python scripts/old_names_page.py` after a change of the table; a test compares the two.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path

import replicax as rx
from replicax._src._old_names import OLD_NAMES, OldName

_OLD = {row.old for rows in OLD_NAMES.values() for row in rows}
PAGE = Path(__file__).resolve().parent.parent / "docs" / "old-names.md"

HEAD = """# Older names

<!-- Written by scripts/old_names_page.py from src/replicax/_src/_old_names.py. Change those. -->

This page lists names of earlier versions of TensorFlow. They still work; the first
use of each warns, at the line that uses it, and says what to write instead:

```python
import warnings

import replicax as rx

strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    strategy.experimental_run_v2(lambda: rx.constant(1.0))
print(caught[0].message)
# Strategy.experimental_run_v2 is the older name of Strategy.run. Write: strategy.run(fn, args=(x,))
assert caught[0].category is rx.compat.OldNameWarning
```

When all names are changed, `pytest -W error::replicax.compat.OldNameWarning` reports new uses. To
hide the warnings, write `warnings.simplefilter("ignore", rx.compat.OldNameWarning)`.
"""

NAMESPACE = """
## The namespace `rx.compat.v1.distribute`

This namespace has the strategies for programs of TensorFlow 1. They are the current ones, with the
methods above, with a `reduce` whose `axis` is optional, and with the constructors of TensorFlow 1.
Everything else is the same as in `rx.distribute`. These names do not warn. See [the
reference](api/compat-v1.md).

| In `rx.compat.v1.distribute` | Today |
|---|---|
"""


def page() -> str:
    """The whole page."""
    tables = [
        f"\n## From {group}\n\n| Old | Today | Write instead |\n|---|---|---|\n"
        + "".join(_row(row) for row in rows)
        for group, rows in OLD_NAMES.items()
    ]
    moved = "".join(f"| `{old}` | `{new}` |\n" for old, new in _moved(rx.compat.v1.distribute))
    return HEAD + "".join(tables) + NAMESPACE + moved


def _row(row: OldName) -> str:
    instead = " ".join(part for part in (row.note, f"`{row.line}`" if row.line else "") if part)
    return f"| `{row.old}` | {f'`{row.new}`' if row.new else ''} | {instead} |\n"


def _moved(namespace: types.ModuleType, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The names of the older namespace that are there today, too."""
    for name, value in sorted(vars(namespace).items()):
        path = f"{prefix}{name}"
        if name.startswith("_") or name == "Any":
            continue
        if isinstance(value, types.ModuleType):
            yield from _moved(value, f"{path}.")
        elif current := _today(path):
            yield path, current


def _today(path: str) -> str | None:
    names = [f"rx.distribute.{each}" for each in (path, path.removeprefix("experimental."))]
    return next((name for name in names if _exists(name) and name not in _OLD), None)


def _exists(path: str) -> bool:
    value: object = rx
    for part in path.split(".")[1:]:
        value = getattr(value, part, None)
    return value is not None


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
