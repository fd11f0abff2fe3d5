"""The names of what is in a checkpoint, and of what lies beside one for a while."""

from __future__ import annotations

import re

MANIFEST = "manifest.json"
OBJECTS = "objects.json"
ARRAYS = "arrays"
COPIES = "copies-{:05d}"
SERVERS = "servers-{:05d}"
KEPT = "kept"

# Beside a checkpoint, after its name. Only what has one of these endings is ever swept.
PARTIAL = ".replicax.partial"  # in the making
REPLACED = ".replicax.replaced"  # out of the way, until the new one has its name
REMOVED = ".replicax.removed"  # no longer a checkpoint, whatever is left of it
LOCK = ".replicax.lock"  # held by who saves there
LAST_KEPT = ".replicax.last_kept"  # beside all of them: when the manager last kept one for good
LEFTOVERS = (PARTIAL, REPLACED, REMOVED, LOCK)

_FILES = re.compile(
    rf"{re.escape(MANIFEST)}|{re.escape(OBJECTS)}|{KEPT}"
    rf"|({ARRAYS}|(copies|servers)-\d{{5,}})(/_METADATA|/manifest\.ocdbt|/d|/d/[0-9a-f]+)?"
)


def is_of_a_checkpoint(name: str) -> bool:
    """Returns whether a checkpoint has a file or folder of this name, relative to its own."""
    return _FILES.fullmatch(name) is not None


def is_numbered(name: str, prefix: str) -> bool:
    """Returns whether a name is one that a manager gives: "ckpt-12", and not "ckpt-best-12".

    With an empty prefix, that of any manager, or of `Checkpoint.save`.
    """
    return re.fullmatch(rf"{re.escape(prefix) or '.+'}-\d+", name) is not None
