"""A checkpoint is a folder that appears whole or not at all, and knows what must be in it.

It is filled under another name, synced, described in `manifest.json` with the size and checksum of
every file, and renamed. What a killed program leaves is never taken for a checkpoint: it has the
wrong name, and nobody holds the lock any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from typing import final

from replicax._src._checksums import checksum_of
from replicax._src._local_path import made_absolute
from replicax._src.checkpoints import _manifest
from replicax._src.checkpoints._leftovers import require_replaceable, settle
from replicax._src.checkpoints._lock import PathLock
from replicax._src.checkpoints._manifest import Manifest, damaged, open_regular
from replicax._src.checkpoints._names import KEPT, LEFTOVERS, MANIFEST, PARTIAL, REPLACED
from replicax._src.checkpoints._problems import CheckpointNotFoundError, DamagedCheckpointError

_READ_SIZE = 8 << 20


# --- writing --------------------------------------------------------------------------------------


@final
class PartialFolder:
    """A checkpoint in the making, which no other process takes for an abandoned one."""

    def __init__(self, path: str):
        """Makes an empty folder beside `path`, which is the checkpoint's own."""
        self.target = path
        self.path = path + PARTIAL
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._lock = PathLock(path)
        try:
            settle(path)
            require_replaceable(path)
            os.mkdir(self.path)
        except BaseException:
            self._lock.release()
            raise

    def commit(
        self, files: dict[str, tuple[int, int]], workers: int, metrics: dict[str, float]
    ) -> None:
        """Makes it the checkpoint: everything is on the disk when it has its name."""
        self._require_all_there(files)
        parent = os.path.dirname(self.target)
        last = max((manifest.sequence for _, manifest in checkpoints_in(parent)), default=0)
        manifest = Manifest(last + 1, time.time(), workers, files, metrics)
        write_file(os.path.join(self.path, MANIFEST), _manifest.manifest_bytes(manifest))
        sync_folder(self.path)
        require_replaceable(self.target)
        with contextlib.suppress(FileNotFoundError):  # as a rule there is none of this number
            os.rename(self.target, self.target + REPLACED)
        os.rename(self.path, self.target)
        sync_folder(parent)
        with contextlib.suppress(OSError):  # that an old one is left is no failure of the new
            settle(self.target)
        self._lock.release()

    def _require_all_there(self, files: dict[str, tuple[int, int]]) -> None:
        for name, (size, _) in files.items():
            try:
                found = os.stat(os.path.join(self.path, name)).st_size
            except FileNotFoundError:
                found = None
            if found != size:
                raise FileNotFoundError(
                    f"{name} was written by another process and is not in {self.path}. All workers "
                    "must save to one directory that they share"
                )

    def discard(self) -> None:
        """Removes it, if it has not become a checkpoint; what it was to replace is there again."""
        if not self._lock.is_held:
            return
        with contextlib.suppress(OSError):
            settle(self.target)
        self._lock.release()


def write_file(path: str, data: bytes) -> None:
    """Writes a file with this content, which is on the disk when the call returns."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Writes the names of the files in a folder to the disk."""
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
        return {part: _size_and_checksum(folder, part, sync=True)}
    for root, _, names in os.walk(path):
        for name in sorted(names):
            file = os.path.relpath(os.path.join(root, name), folder)
            found[file] = _size_and_checksum(folder, file, sync=True)
        sync_folder(root)
    return found


def _size_and_checksum(folder: str, name: str, sync: bool = False) -> tuple[int, int]:
    checksum, size = 0, 0
    with open(open_regular(folder, name), "rb", buffering=0) as file:
        if sync:
            os.fsync(file.fileno())
        buffer = memoryview(bytearray(min(_READ_SIZE, max(1, os.fstat(file.fileno()).st_size))))
        while count := file.readinto(buffer):
            checksum = checksum_of(buffer[:count], checksum)
            size += count
    return size, checksum


# --- reading --------------------------------------------------------------------------------------


def read_manifest(path: str) -> Manifest:
    """Returns the manifest of a checkpoint, checked; `verify` looks at the rest."""
    manifest = _manifest.read_manifest(path)
    if manifest is None:
        raise CheckpointNotFoundError(_not_found(path))
    return manifest


def mark_of(path: str) -> str | None:
    """Returns a text that is different for different checkpoints; None where there is none."""
    try:
        content = _manifest.manifest_content(path)
    except (DamagedCheckpointError, OSError):
        return None
    return None if content is None else hashlib.sha256(content).hexdigest()


def verify(path: str) -> Manifest:
    """Returns the manifest of a checkpoint, of which every byte is as it was written."""
    manifest = read_manifest(path)
    sizes = _sizes(path)
    for name, (size, checksum) in manifest.files.items():
        if name not in sizes:
            raise damaged(path, f"the file {name} is missing")
        if sizes[name] != size:
            raise damaged(path, f"the file {name} has {sizes[name]} bytes and should have {size}")
        if _size_and_checksum(path, name) != (size, checksum):
            raise damaged(path, f"the checksum of the file {name} does not fit its content")
    return manifest


def _sizes(path: str) -> dict[str, int]:
    """Returns the size of each file in a folder; refuses links, pipes and devices."""
    found: dict[str, int] = {}
    for root, folders, names in os.walk(path):
        for name in (*folders, *names):
            file = os.path.join(root, name)
            status = os.lstat(file)
            if stat.S_ISREG(status.st_mode):
                found[os.path.relpath(file, path)] = status.st_size
            elif not stat.S_ISDIR(status.st_mode):
                raise damaged(path, f"{os.path.relpath(file, path)} is not a regular file")
    return found


def _not_found(path: str) -> str:
    text = f"There is no checkpoint at {path}."
    if os.path.isdir(path):
        inside = [os.path.basename(each) for each, _ in checkpoints_in(path)]
        if inside:
            return (
                f"{text} It is a directory of checkpoints: {', '.join(inside)}. Pass the path of "
                f"one of them, or rx.train.latest_checkpoint({path!r})."
            )
    parent, name = os.path.split(made_absolute(path))
    beside = [os.path.basename(each) for each, _ in checkpoints_in(parent)]
    similar = [each for each in beside if each.startswith(f"{name}-")]
    if similar:
        return f"{text} The number is missing: {', '.join(similar)}."
    if beside:
        return f"{text} There are: {', '.join(beside)}."
    return f"{text} Pass what save() returned, or what rx.train.latest_checkpoint(directory) says."


def checkpoints_in(directory: str) -> list[tuple[str, Manifest]]:
    """Returns the checkpoints of a directory with readable manifests, earliest first."""
    found = []
    for path in folders_in(directory):
        with contextlib.suppress(CheckpointNotFoundError, DamagedCheckpointError, OSError):
            manifest = _manifest.read_manifest(path)
            if manifest is not None:
                found.append((path, manifest))
    return sorted(found, key=lambda pair: pair[1].sequence)


def folders_in(directory: str) -> Iterator[str]:
    """Yields the folders that may be checkpoints."""
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = os.path.join(directory, name)
        if not name.endswith(LEFTOVERS) and os.path.isdir(path):
            yield path


# --- keeping --------------------------------------------------------------------------------------


def keep(path: str) -> None:
    """Marks a checkpoint as one that is kept for good."""
    write_file(os.path.join(path, KEPT), b"")


def is_kept(path: str) -> bool:
    """Returns whether a checkpoint is kept for good."""
    return os.path.exists(os.path.join(path, KEPT))
