"""The names of what is in a checkpoint, and of what lies beside one for a while."""

from __future__ import annotations

import re

MANIFEST = "manifest.json"
OBJECTS = "objects.json"
ARRAYS = "arrays"
COPIES = "copies-{:05d}"
KEPT = "kept"

# Beside a checkpoint, after its name. Only what has one of these endings is ever swept.
PARTIAL = ".replicax.partial"  # in the making
REPLACED = ".replicax.replaced"  # out of the way, until the new one has its name
REMOVED = ".replicax.removed"  # no longer a checkpoint, whatever is left of it
LOCK = ".replicax.lock"  # held by who saves there
LEFTOVERS = (PARTIAL, REPLACED, REMOVED, LOCK)

_MAIN_PARTS = {MANIFEST, OBJECTS, ARRAYS}
_COPIES = re.compile(r"copies-\d{5,}")


def strangers(names: list[str]) -> list[str]:
    """Those of the names in a folder that no checkpoint has."""
    known = {*_MAIN_PARTS, KEPT}
    return sorted(name for name in names if name not in known and not _COPIES.fullmatch(name))


def is_like_a_checkpoint(names: list[str]) -> bool:
    """Whether a folder with these names in it is a checkpoint, if perhaps a damaged one."""
    return len(_MAIN_PARTS.intersection(names)) >= 2 and not strangers(names)


def is_numbered(name: str, prefix: str) -> bool:
    """Whether a name is one that a manager gives: "ckpt-12", and not "ckpt-best-12"."""
    return re.fullmatch(rf"{re.escape(prefix)}-\d+", name) is not None
