"""How the tables of `replicax migrate` are written, as texts, and how these are read."""

import re
from collections.abc import Iterator, Mapping


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yields what is on both sides of the arrows in `old -> new; old -> new`.

    A row may stand for several: in `tf.NAME -> jnp.NAME | add sum`, `NAME` is each of these words.

    >>> list(pairs("a.NAME -> b.NAME | x y; c(z);"))
    [('a.x', 'b.x'), ('a.y', 'b.y'), ('c(z)', '')]
    """
    for row in " ".join(text.split()).strip("; ").split(";"):
        row, _, words = row.strip().partition(" | ")
        old, _, new = row.partition(" ->")
        for word in words.split() or [""]:
            yield old.replace("NAME", word), new.strip().replace("NAME", word)


def said(text: str) -> dict[str, str]:
    """Returns what is said of names: `name name: advice` in lines, which go on when indented.

    >>> said("a.b c: leave\\n    it: out")
    {'a.b': 'leave it: out', 'c': 'leave it: out'}
    """
    found: dict[str, str] = {}
    for row in re.split(r"\n(?=\S)", text.strip()):
        names, _, advice = " ".join(row.split()).partition(": ")
        found |= dict.fromkeys(names.split(), advice)
    return found


def kinds(members: Mapping[str, str]) -> dict[str, str]:
    """Returns the kind of each member; the members of a kind are given as words."""
    return {name: kind for kind, names in members.items() for name in names.split()}
