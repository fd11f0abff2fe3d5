"""The files of a recording: the last steps of one worker, in segments that begin with a checkpoint.

All is readable by its owner alone. A line is a JSON object; what is large lies in files beside.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, final

import numpy as np

from replicax._src._errors import DataLossError, FailedPreconditionError
from replicax._src._local_path import naming
from replicax._src._whole_file import whole_file
from replicax._src.checkpoints import PathLock, sweep
from replicax._src.recording._inputs import Kept, bits_of, dtype_of, in_line, is_small, plain_bytes

SEGMENTS = 3  # that are kept: what a late trap tells may have been before the last checkpoint
_SEGMENT = re.compile(r"segment-(\d{8})\.jsonl")
ARRAY = re.compile(r"step-(\d+)-\d+-\d+\.npy")
_UNSAVED = re.compile(r"unsaved-\d+")
DESCRIPTION = "recording.json"
_BEGINNING = b'{\n "run": "'  # of a description


def make_private_folder(path: str) -> None:
    """Makes a folder for its owner alone; one that is there must be one already."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise PermissionError(
            f"{path} can be read by others, and recordings hold data of yours. Name a folder that "
            f"is not there yet, or close it to others: chmod 700 {path}"
        )


def write_private(path: str, data: bytes) -> None:
    """Writes a file for its owner alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with naming(path), open(descriptor, "wb") as file:
        file.write(data)


def write_description(folder: str, described: dict[str, Any]) -> None:
    """Writes what a recording is of; the file is there whole or not at all."""
    path = os.path.join(folder, DESCRIPTION)
    with whole_file(path, f"{path}.partial", mode=0o600, durable=False) as file:
        file.write(json.dumps(described, indent=1).encode())


def _require_ours(folder: str) -> None:
    """`FileExistsError` if there are files of such names that no recorder has written."""
    names = sorted(os.listdir(folder))
    ours = [name for name in names if _SEGMENT.fullmatch(name) or ARRAY.fullmatch(name)]
    if DESCRIPTION in names:
        with open_regular(os.path.join(folder, DESCRIPTION)) as file:
            if file.read(len(_BEGINNING)) == _BEGINNING:
                return
        ours.append(DESCRIPTION)
    if ours:
        raise FileExistsError(
            f"{folder} has files that a recorder would replace and has not written: "
            f"{', '.join(map(repr, ours[:4]))}. Name another folder for the recording."
        )


@final
class Ring:
    """Writes the steps of one worker."""

    def __init__(self, folder: str, limit: int):
        """
        Args:
          folder: of the worker; made if it is not there.
          limit: bytes of arrays that are kept in all.
        """
        make_private_folder(folder)
        _require_ours(folder)
        try:
            lock = PathLock(folder)
        except BlockingIOError as error:
            raise FailedPreconditionError(
                f"Another recorder writes to {folder}: {error}, as in rx.debug.Recorder(manager, "
                "train_step, directory)."
            ) from None
        self._release = weakref.finalize(self, lock.release)
        self.folder = folder
        self._limit = limit
        self._bytes = 0
        self._segment: int = max(segments_in(folder), default=0)
        self._file: int | None = None
        self._first_steps: dict[int, int] = {}  # of each segment of this process
        self._kept: set[str] = set()  # checkpoints of segments that have not begun
        self.is_full = False
        self.is_broken = False  # then nothing more is written
        self.names: Sequence[str] = ()  # of the figures, as the segment has them
        # What an earlier program kept, until there is a checkpoint of this one.
        self._earlier = set(filter(ARRAY.fullmatch, os.listdir(folder)))

    def begin_segment(self, after: int, checkpoint: str, **more: object) -> None:
        """Begins a segment with the steps after those that a checkpoint has."""
        if self.is_broken:
            return
        if self._file is not None:
            os.close(self._file)
        self._segment += 1
        path = os.path.join(self.folder, f"segment-{self._segment:08}.jsonl")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        self._first_steps[self._segment] = after + 1
        self.names = ()
        beside = os.path.relpath(checkpoint, self.folder)  # where both are moved together
        self.write({"after": after, "checkpoint": checkpoint, "beside": beside, **more})
        old = segments_in(self.folder)[:-SEGMENTS]
        for number in old:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.folder, f"segment-{number:08}.jsonl"))
        if os.path.basename(self.folder) == "worker-0":  # what all workers have together
            self._clear_checkpoints()
        kept = [step for number, step in self._first_steps.items() if number not in old]
        if len(self._first_steps) > 1:
            for name in self._earlier:
                os.remove(os.path.join(self.folder, name))
            self._earlier.clear()
        self._clear_arrays(min(kept))
        self.is_full = self._bytes > self._limit

    def forget(self, checkpoint: str) -> None:
        """Removes segments of earlier programs after a checkpoint that is to be replaced."""
        for number in segments_in(self.folder):
            if head_of(self.folder, number)[1] == checkpoint:
                os.remove(os.path.join(self.folder, f"segment-{number:08}.jsonl"))

    def place_for(self, name: str) -> str:
        """Returns where something is written that a segment to come begins with."""
        self._kept.add(name)
        return os.path.join(os.path.dirname(self.folder), name)

    def _clear_checkpoints(self) -> None:
        """Removes what was written here for segments that are gone."""
        begun: set[str] = set()
        for segment in segments_in(self.folder):
            paths = (head_of(self.folder, segment)[1], unsaved_of(self.folder, segment))
            begun.update(os.path.basename(path) for path in paths if path is not None)
        self._kept |= begun  # the program's thread adds to it, before there is a folder
        for prefix in ("start", "unsaved"):
            sweep(os.path.dirname(self.folder), prefix, self._kept)
        self._kept -= begun

    def _clear_arrays(self, first_step: int) -> None:
        """Removes this program's arrays of steps before one."""
        self._bytes = 0
        for name in os.listdir(self.folder):
            match = ARRAY.fullmatch(name)
            path = os.path.join(self.folder, name)
            if match and name not in self._earlier and int(match[1]) < first_step:
                os.remove(path)
            elif match:
                self._bytes += os.lstat(path).st_size

    def write(self, line: dict[str, Any]) -> None:
        """Writes one line."""
        if self.is_broken:
            return
        assert self._file is not None
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if os.write(self._file, data) < len(data):
            raise OSError(errno.ENOSPC, "there is no space left for a whole line", self.folder)

    def kept(self, step: int, index: int, array: Kept, rows: bool) -> list[Any]:
        """Keeps an argument; returns what its line says of it.

        Args:
          step: the number of the step.
          index: of the argument.
          array: what it is.
          rows: whether what has a dimension may be kept.
        """
        if not rows and any(np.ndim(part) for part in array.parts):
            return ["left out", "rows are not kept"]
        if is_small(array.parts):
            return ["array", array.kind, [in_line(part) for part in array.parts]]
        if self.is_full or self.is_broken:
            return ["left out", f"more than {self._limit} bytes would be kept"]
        files: list[Any] = []
        for number, part in enumerate(array.parts):
            name = f"step-{step}-{index}-{number}.npy"
            self._earlier.discard(name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with open(os.open(os.path.join(self.folder, name), flags, 0o600), "wb") as file:
                np.save(file, plain_bytes(part), allow_pickle=False)
                self._bytes += file.tell()
            files.append([dtype_of(part), list(bits_of(part).shape), name])
        self.is_full = self._bytes > self._limit
        return ["files", array.kind, files]

    def close(self) -> None:
        """Closes the file, and lets others record there."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._release()


def open_regular(path: str) -> BinaryIO:
    """Opens a file for reading, which may be somebody else's: never a link, pipe or device.

    Raises:
      DataLossError: it is one.
      FileNotFoundError: there is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise DataLossError(f"{path} is no regular file.") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataLossError(f"{path} is no regular file.")
    return open(descriptor, "rb")


def segments_in(folder: str) -> list[int]:
    """Returns the numbers of the segments in a folder, the oldest first."""
    matches = map(_SEGMENT.fullmatch, os.listdir(folder))
    return sorted(int(match[1]) for match in matches if match)


def lines_of(folder: str, segment: int) -> Iterator[dict[str, Any]]:
    """Yields the lines of a segment; a last one that is not whole is left out."""
    path = os.path.join(folder, f"segment-{segment:08}.jsonl")
    with open_regular(path) as file:
        for text in file:
            if not text.endswith(b"\n"):
                continue
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                line = None
            if not isinstance(line, dict):
                raise DataLossError(f"The recording {path} is damaged: {text[:80]!r}.")
            yield line


def unsaved_of(folder: str, segment: int) -> str | None:
    """Returns the path of what a segment begins with, of variables that no checkpoint has."""
    try:
        name = next(lines_of(folder, segment), {}).get("unsaved")
    except DataLossError:
        return None
    if not isinstance(name, str) or not _UNSAVED.fullmatch(name):
        return None
    return os.path.join(os.path.dirname(folder), name)


def head_of(folder: str, segment: int) -> tuple[int | None, str | None]:
    """Returns the last step that the checkpoint of a segment has, and its path; None if unknown."""
    try:
        head = next(lines_of(folder, segment), {})
    except DataLossError:
        head = {}
    after, path, beside = map(head.get, ("after", "checkpoint", "beside"))
    if isinstance(path, str) and isinstance(beside, str) and not os.path.isdir(path):
        path = os.path.normpath(os.path.join(folder, beside))
    return after if type(after) is int else None, path if isinstance(path, str) else None
