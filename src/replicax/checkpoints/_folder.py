"""A checkpoint is a folder that appears whole or not at all, and knows what must be in it.

It is filled under another name, synced, described in `manifest.json` with the size and checksum of
every file, and renamed. What a killed program leaves is never taken for a checkpoint: it has the
wrong name, and nobody holds its lock any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import NamedTuple

from replicax.checkpoints._problems import CheckpointNotFoundError, DamagedCheckpointError

MANIFEST = "manifest.json"
_FORMAT = "replicax checkpoint"
_VERSION = 1
PARTIAL = ".partial"
_REPLACED = ".replaced"
_LOCK = "lock"
_KEPT = "kept"
_READ_SIZE = 8 << 20


class Manifest(NamedTuple):
    """What a checkpoint says about itself."""

    sequence: int  # of two checkpoints in a folder, the later one has the larger number
    time: float
    workers: int
    files: dict[str, tuple[int, int]]  # size and checksum, by path


# --- writing --------------------------------------------------------------------------------------


class PartialFolder:
    """A checkpoint in the making, which no other process takes for an abandoned one."""

    def __init__(self, path: str):
        """Makes an empty folder beside `path`, which is the checkpoint's own."""
        self.target = path
        self.path = path + PARTIAL
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)
        os.mkdir(self.path)
        self._lock = open(os.path.join(self.path, _LOCK), "w")
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def commit(self, files: dict[str, tuple[int, int]], workers: int) -> None:
        """Makes it the checkpoint: everything is on the disk when it has its name."""
        self._require_all_there(files)
        parent = os.path.dirname(self.target)
        manifest = {
            "format": _FORMAT,
            "version": _VERSION,
            "sequence": 1 + max((found.sequence for _, found in checkpoints_in(parent)), default=0),
            "time": time.time(),
            "workers": workers,
            "files": files,
        }
        body = json.dumps(manifest).encode()
        write_file(os.path.join(self.path, MANIFEST), body + b"\n%08x\n" % _checksum(body))
        sync_folder(self.path)
        if os.path.lexists(self.target):  # saved once more under the same number
            replaced = self.target + _REPLACED
            _remove(replaced)
            os.rename(self.target, replaced)
            os.rename(self.path, self.target)
            sync_folder(parent)
            _remove(replaced)
        else:
            os.rename(self.path, self.target)
            sync_folder(parent)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.target, _LOCK))
        self._lock.close()

    def _require_all_there(self, files: dict[str, tuple[int, int]]) -> None:
        for name, (size, _) in files.items():
            try:
                found = os.stat(os.path.join(self.path, name)).st_size
            except FileNotFoundError:
                found = None
            if found != size:
                raise FileNotFoundError(
                    f"{name} was written by a worker and is not in {self.path}. All workers must "
                    "save to one directory that they share"
                )

    def discard(self) -> None:
        """Removes it, if it has not become a checkpoint."""
        self._lock.close()
        shutil.rmtree(self.path, ignore_errors=True)


def write_file(path: str, data: bytes) -> None:
    """A file with this content, on the disk when the call returns."""
    with open(path, "wb", buffering=0) as file:
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """The names of the files in it are on the disk when the call returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_and_list(folder: str, part: str) -> dict[str, tuple[int, int]]:
    """Syncs the file or folder `part` of `folder`; returns size and checksum of each file in it."""
    found: dict[str, tuple[int, int]] = {}
    path = os.path.join(folder, part)
    if os.path.isfile(path):
        return {part: _size_and_checksum(path, sync=True)}
    for root, _, names in os.walk(path):
        for name in sorted(names):
            file = os.path.join(root, name)
            found[os.path.relpath(file, folder)] = _size_and_checksum(file, sync=True)
        sync_folder(root)
    return found


def _checksum(data: bytes | memoryview, start: int = 0) -> int:
    from crc32c import crc32c  # loaded with the first checkpoint

    return crc32c(data, start)


def _size_and_checksum(path: str, sync: bool = False) -> tuple[int, int]:
    checksum, size = 0, 0
    with open(path, "rb", buffering=0) as file:
        if sync:
            os.fsync(file.fileno())
        buffer = memoryview(bytearray(min(_READ_SIZE, max(1, os.fstat(file.fileno()).st_size))))
        while count := file.readinto(buffer):
            checksum = _checksum(buffer[:count], checksum)
            size += count
    return size, checksum


# --- reading --------------------------------------------------------------------------------------


def read_manifest(path: str) -> Manifest:
    """The manifest of a checkpoint, checked; `verify` looks at the rest."""
    try:
        with open(os.path.join(path, MANIFEST), "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointNotFoundError(_not_found(path)) from None
    try:
        body, checksum, _ = data.split(b"\n")
        if _checksum(body) != int(checksum, 16):
            raise ValueError
        content = json.loads(body)
    except ValueError:
        raise _damaged(path, f"the checksum of {MANIFEST} does not fit its content") from None
    if content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise CheckpointNotFoundError(
            f"{path} was written in version {content.get('version')!r} of the format of "
            f"checkpoints, and this replicax reads version {_VERSION}. Use the replicax that "
            "wrote it."
        )
    files = {name: (int(size), int(crc)) for name, (size, crc) in content["files"].items()}
    return Manifest(content["sequence"], content["time"], content["workers"], files)


def mark_of(path: str) -> str | None:
    """A text that is different for different checkpoints; None where there is none."""
    try:
        with open(os.path.join(path, MANIFEST), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def verify(path: str) -> Manifest:
    """The manifest of a checkpoint, of which every byte is as it was written."""
    manifest = read_manifest(path)
    for name, (size, checksum) in manifest.files.items():
        try:
            found, is_checksum = _size_and_checksum(os.path.join(path, name))
        except FileNotFoundError:
            raise _damaged(path, f"the file {name} is missing") from None
        if found != size:
            raise _damaged(path, f"the file {name} has {found} bytes and should have {size}")
        if is_checksum != checksum:
            raise _damaged(path, f"the checksum of the file {name} does not fit its content")
    return manifest


def _damaged(path: str, reason: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        f"The checkpoint {path} is damaged: {reason}. Restore an earlier one: "
        "rx.train.latest_checkpoint(directory) and CheckpointManager.restore_or_initialize() take "
        "the latest that is whole.",
        path=path,
    )


def _not_found(path: str) -> str:
    text = f"There is no checkpoint at {path}."
    if os.path.isdir(path):
        inside = [os.path.basename(each) for each, _ in checkpoints_in(path)]
        if inside:
            return (
                f"{text} It is a directory of checkpoints: {', '.join(inside)}. Pass the path of "
                f"one of them, or rx.train.latest_checkpoint({path!r})."
            )
    parent, name = os.path.split(os.path.abspath(path))
    beside = [os.path.basename(each) for each, _ in checkpoints_in(parent)]
    similar = [each for each in beside if each.startswith(f"{name}-")]
    if similar:
        return f"{text} The number is missing: {', '.join(similar)}."
    if beside:
        return f"{text} There are: {', '.join(beside)}."
    return f"{text} Pass what save() returned, or what rx.train.latest_checkpoint(directory) says."


def checkpoints_in(directory: str) -> list[tuple[str, Manifest]]:
    """The checkpoints of a directory, earliest first; those with an unreadable manifest are not."""
    found = []
    for path in folders_in(directory):
        if not os.path.exists(os.path.join(path, MANIFEST)):
            continue
        with contextlib.suppress(CheckpointNotFoundError, DamagedCheckpointError, OSError):
            found.append((path, read_manifest(path)))
    return sorted(found, key=lambda pair: pair[1].sequence)


def folders_in(directory: str) -> Iterator[str]:
    """The folders that may be checkpoints."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if not entry.name.endswith((PARTIAL, _REPLACED)) and entry.is_dir():
            yield os.path.join(directory, entry.name)


# --- cleaning up ----------------------------------------------------------------------------------


def remove_leftovers(directory: str, prefix: str) -> list[str]:
    """Removes what killed programs left, and what they did not get round to remove."""
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(directory)):
            if not entry.name.startswith(f"{prefix}-"):
                continue
            abandoned = entry.name.endswith(PARTIAL) and not _is_locked(entry.path)
            if abandoned or entry.name.endswith(_REPLACED):
                whole = entry.path.removesuffix(_REPLACED)
                if entry.name.endswith(_REPLACED) and not os.path.lexists(whole):
                    os.rename(entry.path, whole)  # killed between two renames
                else:
                    _remove(entry.path)
                    removed.append(entry.path)
    return removed


def _is_locked(path: str) -> bool:
    try:
        with open(os.path.join(path, _LOCK)) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        # Without its manifest first: what is half removed must not look whole.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(path, MANIFEST))
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def remove(path: str) -> None:
    """Removes a checkpoint."""
    _remove(path)


def keep(path: str) -> None:
    """Marks a checkpoint as one that is kept for good."""
    write_file(os.path.join(path, _KEPT), b"")


def is_kept(path: str) -> bool:
    """Whether a checkpoint is kept for good."""
    return os.path.exists(os.path.join(path, _KEPT))
