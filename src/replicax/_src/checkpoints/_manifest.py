"""The manifest of a checkpoint: the size and checksum of every file, and a checksum of itself.

Checksums keep out accidents. What is read may still have been made by somebody else, so that
nothing of it is trusted before its type was looked at.
"""

from __future__ import annotations

import json
import math
import os
import stat
from typing import NamedTuple, final

from replicax._src._checksums import checksum_of
from replicax._src.checkpoints._names import MANIFEST
from replicax._src.checkpoints._problems import CheckpointNotFoundError, DamagedCheckpointError

_FORMAT = "replicax checkpoint"
_VERSION = 1
_MOST_BYTES = 64 << 20  # a manifest of half a million files
_LARGEST = 1 << 63


@final
class Manifest(NamedTuple):
    """What a checkpoint says about itself."""

    sequence: int  # of two checkpoints in a folder, the later one has the larger number
    time: float
    workers: int
    files: dict[str, tuple[int, int]]  # size and checksum, by path
    metrics: dict[str, float] = {}  # how good it is, if somebody has said so


def manifest_bytes(manifest: Manifest) -> bytes:
    """Returns the content of the file."""
    content = {"format": _FORMAT, "version": _VERSION, **manifest._asdict()}
    body = json.dumps(content).encode()
    return body + b"\n%08x\n" % checksum_of(body)


def read_manifest(path: str) -> Manifest | None:
    """Returns the manifest of the checkpoint at `path`, checked; None if there is none."""
    data = manifest_content(path)
    if data is None:
        return None
    try:
        body, checksum, _ = data.split(b"\n")
        if checksum_of(body) != int(checksum, 16):
            raise ValueError
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise damaged(path, f"the checksum of {MANIFEST} does not fit its content") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise damaged(path, f"{MANIFEST} is not of a checkpoint")
    version = content.get("version")
    if _is_count(version) and version != _VERSION:
        raise CheckpointNotFoundError(
            f"{path} was written in version {version} of the format of checkpoints, and this "
            f"replicax reads version {_VERSION}. Use the replicax that wrote it."
        )
    wrong = [name for name, is_right in _FIELDS.items() if not is_right(content.get(name))]
    if wrong:
        raise damaged(path, f"{MANIFEST} has no sound {wrong[0]!r}")
    files = {name: (size, crc) for name, (size, crc) in content["files"].items()}
    metrics = content.get("metrics", {})  # it has not always been there
    if not _is_metrics(metrics):
        raise damaged(path, f"{MANIFEST} has no sound 'metrics'")
    return Manifest(content["sequence"], content["time"], content["workers"], files, metrics)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_time(value: object) -> bool:
    return _is_count(value) or type(value) is float and math.isfinite(value)


def _is_list_of_files(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(entry, list) and len(entry) == 2 and all(map(_is_count, entry))
        for entry in value.values()
    )


def _is_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(type(each) in (int, float) for each in value.values())


_FIELDS = {
    "version": _is_count,
    "sequence": _is_count,
    "time": _is_time,
    "workers": _is_count,
    "files": _is_list_of_files,
}


def manifest_content(path: str) -> bytes | None:
    """Returns the bytes of the manifest of the checkpoint at `path`; None if there is none."""
    try:
        descriptor = open_regular(path, MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(descriptor, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise damaged(path, f"{MANIFEST} has more than {_MOST_BYTES} bytes")
    return data


def open_regular(path: str, name: str) -> int:
    """Opens a file of a checkpoint for reading: never a link, pipe or device."""
    file = os.path.join(path, name)
    if not stat.S_ISREG(os.lstat(file).st_mode):
        raise damaged(path, f"{name} is not a regular file")
    return os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def damaged(path: str, reason: str) -> DamagedCheckpointError:
    """Returns an error to raise: what is wrong with the checkpoint, and what to do."""
    return DamagedCheckpointError(
        f"The checkpoint {path} is damaged: {reason}. Restore an earlier one: "
        "rx.train.latest_checkpoint(directory) and CheckpointManager.restore_or_initialize() take "
        "the latest that is whole.",
        path=path,
    )
