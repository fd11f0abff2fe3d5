"""Writes docs/names.md: for every name of TensorFlow that programs use, what to write.

Run `python -m scripts.api_review.names_page` in the root of the project; a test compares the two.
The names are those of replicax itself, of the table of `replicax migrate` and of the older ones.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import replicax as rx
from replicax._src._old_names import OLD_NAMES
from replicax._src.cli.migrate import _lookup
from replicax._src.cli.migrate._verdict import Verdict
from scripts.api_review.public_names import all_public_names

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "names.md"
# Wider than what is compared argument by argument: whole namespaces, names only.
TENSORFLOW = ROOT / "tests" / "cli" / "recorded" / "tensorflow_names.json"

HEAD = """# TensorFlow, name by name

<!-- Written by `python -m scripts.api_review.names_page`. Change the tables that it reads. -->

This page says what to write for each name of TensorFlow. It is generated from replicax's own
names, the table with which [`replicax migrate`](migrate.md) ports a program, and the table of
[older names](old-names.md). [Coverage](coverage.md) compares arguments and members; [From
TensorFlow](from-tensorflow.md) explains the differences.

## The same names

Write `rx.` for `tf.`:

| Namespace | Names |
|---|---|
"""

OTHER = """
## Other names

`jnp` is `jax.numpy`. `tf.dtypes.x` and `tf.math.x` are what `tf.x` is.

| TensorFlow | Here |
|---|---|
"""

BY_HAND = """
## Something else in its place

| TensorFlow | Here |
|---|---|
"""

METHODS = """
## Methods

Methods that are not listed have the same name.

| TensorFlow | Here |
|---|---|
"""

ABSENT = """
## Nothing in its place

| TensorFlow | Why, or what else to do |
|---|---|
"""

ONLY_HERE = """
## Only here

Names that TensorFlow does not have:

| Namespace | Names |
|---|---|
"""


def page() -> str:
    """The whole page."""
    same, only_here = _shared_and_own()
    entries = [
        (name, entry._replace(new=entry.new.replace("absl_", "absl.")))
        for name, entry in _lookup.entries().items()
        if not _is_another_form(name)
    ]
    renamed = [(name, entry.new) for name, entry in entries if entry.verdict is Verdict.CHANGES]
    by_hand = [
        (name, entry.new or entry.advice)
        for name, entry in entries
        if entry.verdict is Verdict.THOUGHT
    ]
    absent = [
        (name, entry.advice) for name, entry in entries if entry.verdict is Verdict.UNSUPPORTED
    ]
    return "".join(
        [
            HEAD,
            *_namespaces(same),
            OTHER,
            *_rows(renamed, code=True),
            BY_HAND,
            *_rows(by_hand),
            METHODS,
            *_rows(_methods()),
            ABSENT,
            *_rows(absent),
            ONLY_HERE,
            *_namespaces(only_here),
        ]
    )


def _shared_and_own() -> tuple[list[str], list[str]]:
    """The public names that TensorFlow has as well, and the others."""
    names = json.loads(TENSORFLOW.read_text(encoding="utf-8"))["names"]
    theirs = {f"{place}.{name}" for place, text in names.items() for name in text.split()}
    old = {row.old for rows in OLD_NAMES.values() for row in rows}
    mine = [name for name in sorted(set(all_public_names(rx, "rx"))) if name not in old]
    by_hand = {name for name, entry in _lookup.entries().items() if entry.verdict.by_hand}
    mine = [
        name for name in mine if name.replace("rx.", "tf.", 1) not in by_hand
    ]  # it only says so
    shared = [name for name in mine if name.replace("rx.", "tf.", 1) in theirs]
    # Estimators are gone from TensorFlow; the errors and types moved.
    moved = {entry.new for entry in _lookup.entries().values()}
    known = ("rx.compat.v1.estimator.",)
    own = [
        name
        for name in mine
        if name not in shared and name not in moved and not name.startswith(known)
    ]
    return shared, own


def _is_another_form(name: str) -> bool:
    """Whether a name is said with another one: `tf.math.exp` with `tf.exp`, `MSE` with `mse`."""
    place, _, last = name.rpartition(".")
    other = f"tf.{last}" if place in ("tf.math", "tf.dtypes") else f"{place}.{last.lower()}"
    entries = _lookup.entries()
    return other != name and other in entries and entries[other].new == entries[name].new != ""


def _methods() -> list[tuple[str, str]]:
    """What is said of single methods, and not of all of a class."""
    return [
        (name, entry.new or entry.advice or "leave it out")
        for name, entry in _lookup.methods().items()
        if entry.verdict is not Verdict.SAME and not name.endswith("*")
    ]


def _namespaces(names: Iterable[str]) -> Iterable[str]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        place, _, last = name.rpartition(".")
        found[place].append(last)
    for place, last in sorted(found.items()):
        yield f"| `{place}` | {', '.join(f'`{each}`' for each in last)} |\n"


def _rows(pairs: Iterable[tuple[str, str]], code: bool = False) -> Iterable[str]:
    for name, new in sorted(pairs, key=lambda pair: pair[0].lower()):
        is_name = code or _is_code(new)
        yield f"| `{name}` | {f'`{new}`' if is_name else new} |\n"


def _is_code(text: str) -> bool:
    """Whether a remark is nothing but a name or a call."""
    return re.fullmatch(r"[\w.]+(\(.*\))?", text) is not None and ("." in text or "(" in text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
