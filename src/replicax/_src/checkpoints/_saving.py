"""One save: a part that stops the program, until nothing can change what will be written, and the
writing itself.

The first worker writes what all have in common. If that is not all, every worker takes part: each
writes the copies of variables whose copies differ, and all learn whether it went well. What is on
parameter servers, these write.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import traceback
import zlib
from collections.abc import Callable
from typing import Any, final

import numpy as np

from replicax._src._errors import UnavailableError
from replicax._src._local_path import made_absolute
from replicax._src.checkpoints import _folder, _job
from replicax._src.checkpoints._arrays import write_arrays
from replicax._src.checkpoints._elsewhere import WrittenElsewhere
from replicax._src.checkpoints._graph import GraphNode, Kind
from replicax._src.checkpoints._leaf import (
    differing_copies,
    has_parts_elsewhere,
    host_copies,
    host_copy,
    number_to_json,
    spec_of,
    state_to_json,
)
from replicax._src.checkpoints._names import ARRAYS, COPIES, OBJECTS, PARTIAL
from replicax._src.checkpoints._problems import SaveFailedError
from replicax._src.checkpoints._together import save_needs_all

_PATIENCE_SECONDS = 7 * 24 * 3600.0


@final
class Save:
    """A checkpoint on its way to the disk. Making one takes the values; `finish` writes them."""

    def __init__(self, nodes: list[GraphNode], path: str, metrics: dict[str, float] | None = None):
        """
        Args:
          nodes: what to save.
          path: of the checkpoint.
          metrics: how good it is, to be saved with it.
        """
        self._metrics = metrics or {}
        job = _job.current_job()
        self.path = made_absolute(path)
        self._partial: _folder.PartialFolder | None = None
        self._elsewhere: WrittenElsewhere | None = None
        self.is_writer = job.worker == 0
        if not self.is_writer:
            # Nothing is written there; but ported programs remove it after each save.
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
        needs_all = job.workers > 1 and save_needs_all(nodes)
        self.is_others = not needs_all and not self.is_writer  # there is nothing to do here
        if self.is_others:
            return
        self.phase = job.phase
        self._job = job if needs_all else _job.ALONE
        self._topic = _job.topic(self._job)
        error: BaseException | None = None
        mine: dict[str, Any] = {}
        try:
            with self.phase("saving", True):
                if self._job.worker == 0:
                    self._partial = _folder.PartialFolder(self.path)
                self._take(nodes)
                mine = {"path": self.path, "states": self._states, "objects": self._summary()}
        except Exception as failure:
            error = failure
        except BaseException:
            self._discard()
            raise
        try:
            with self.phase("saving"):
                mine["error"] = self._told(error)
                all_of_them = self._meet("begin", mine)
            self._raise_if_failed(all_of_them, error)
            self.path = all_of_them[0]["path"]
            self._merge(all_of_them)
        except BaseException:
            self._discard()
            raise

    # ------------------------------------------------------------------ taking the values

    def _take(self, nodes: list[GraphNode]) -> None:
        """Copies the values to the host, and describes them."""
        leaves = [node for node in nodes if node.kind in (Kind.VARIABLE, Kind.ARRAY)]
        # What the workers have parts of, all take part to combine; the rest is the same everywhere.
        read = [n for n in leaves if self._job.worker == 0 or has_parts_elsewhere(n.value)]
        if self._partial is not None:
            self._elsewhere = WrittenElsewhere(read, self._partial.path)
            read = [node for node in read if node.path not in self._elsewhere.parts]
        values = host_copies(read)
        self._arrays = {node.path: value for node, value in zip(read, values, strict=True)}
        self._copies: dict[str, np.ndarray] = {}
        self._states: dict[str, Any] = {}
        self._objects = [self._described(node) for node in nodes]
        if self._job.worker != 0:
            self._arrays = {}

    def _described(self, node: GraphNode) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": node.kind, "path": node.path}
        if node.children:
            found["children"] = node.children
        if node.slots:
            found["slots"] = [[s.owner, s.position, s.label, s.node] for s in node.slots]
        if node.kind in (Kind.VARIABLE, Kind.ARRAY):
            spec = spec_of(node.value)
            found |= {"dtype": spec.dtype, "shape": list(spec.shape), "keys": spec.keys}
            if self._elsewhere is not None and node.path in self._elsewhere.parts:
                found["parts"] = self._elsewhere.parts[node.path]
            copies = differing_copies(node.value)
            if len(copies) * self._job.workers > 1:
                found["copies"] = [len(copies)] * self._job.workers
                for index, copy in enumerate(copies):
                    self._copies[f"{node.path}/{index}"] = host_copy(copy)
        elif node.kind == Kind.NUMBER:
            found["value"] = number_to_json(node.value)
        elif node.kind == Kind.STATE:
            self._states[node.path] = state_to_json(node.value.get_state())
        return found

    def _summary(self) -> int:
        """Returns a number that is the same on all workers, unless their programs differ."""
        described = [{k: v for k, v in each.items() if k != "value"} for each in self._objects]
        return zlib.crc32(json.dumps(described, sort_keys=True).encode())

    def _merge(self, all_of_them: list[dict[str, Any]]) -> None:
        strange = [i for i, each in enumerate(all_of_them) if each["objects"] != self._summary()]
        if strange:
            raise SaveFailedError(
                f"The checkpoint {self.path} was not saved: worker {strange[0]} has other objects "
                f"to save than worker {self._job.worker}. Every worker must call save at the same "
                "place of the same program, with a checkpoint of the same things."
            )
        for each in self._objects:
            if each["kind"] == Kind.STATE:
                states = [given["states"][each["path"]] for given in all_of_them]
                same = all(state == states[0] for state in states)
                each["states"] = states[:1] if same else states

    # ------------------------------------------------------------------ writing

    def finish(self, committed: Callable[[], None] = lambda: None) -> str:
        """Writes the checkpoint; returns its path when it is safe on the disk.

        Args:
          committed: called by the writer when it is there, before the other workers are told.
        """
        error: Exception | None = None
        files: dict[str, tuple[int, int]] = {}
        try:
            try:
                files = self._written()
            except Exception as failure:
                error = failure
            written = self._meet("written", {"files": files, "error": self._told(error)})
            self._raise_if_failed(written, error)
            try:
                if self._partial is not None:
                    every = {
                        name: entry for each in written for name, entry in each["files"].items()
                    }
                    self._partial.commit(every, self._job.workers, self._metrics)
                    committed()
            except Exception as failure:
                error = failure
            self._raise_if_failed(self._meet("done", {"error": self._told(error)}), error)
        except BaseException:
            self._discard()
            raise
        finally:
            # A finished save may be held for long.
            self._arrays, self._copies, self._elsewhere = {}, {}, None
        return self.path

    def _written(self) -> dict[str, tuple[int, int]]:
        folder = self.path + PARTIAL
        files: dict[str, tuple[int, int]] = {}
        if self._copies:
            if not os.path.isdir(folder):
                raise FileNotFoundError(
                    f"worker {self._job.worker} does not see the directory {folder}, which worker "
                    "0 has made. All workers must save to one directory that they share"
                )
            part = COPIES.format(self._job.worker)
            write_arrays(os.path.join(folder, part), self._copies)
            files |= _folder.sync_and_list(folder, part)
        if self._partial is not None:
            write_arrays(os.path.join(folder, ARRAYS), self._arrays)
            files |= _folder.sync_and_list(folder, ARRAYS)
            data = json.dumps({"objects": self._objects}).encode()
            _folder.write_file(os.path.join(folder, OBJECTS), data)
            files |= _folder.sync_and_list(folder, OBJECTS)
        if self._elsewhere is not None:
            files |= self._elsewhere.files()
        return files

    def _discard(self) -> None:
        if self._elsewhere is not None:
            self._elsewhere.end()
        if self._partial is not None:
            self._partial.discard()
            self._partial = None

    # ------------------------------------------------------------------ the other workers

    def _meet(self, what: str, mine: dict[str, Any]) -> list[dict[str, Any]]:
        # A disk may take as long as it takes; a worker that is lost is noticed at once.
        patience = None if what == "begin" else _PATIENCE_SECONDS
        return self._job.exchange(f"{self._topic}-{what}", mine, patience)

    def _raise_if_failed(self, given: list[dict[str, Any]], mine: BaseException | None) -> None:
        if mine is not None:
            if _is_about_writing(mine):
                raise SaveFailedError(self._failure(f"{mine}{self._advice(mine)}")) from mine
            raise mine
        for worker, each in enumerate(given):
            if each["error"] is not None:
                raise SaveFailedError(self._failure(f"worker {worker} failed: {each['error']}"))

    def _told(self, error: BaseException | None) -> str | None:
        """Returns what the other workers hear of an error here."""
        return None if error is None else f"{type(error).__name__}: {error}{self._advice(error)}"

    def _failure(self, reason: str) -> str:
        return (
            f"The checkpoint {self.path} could not be written: {reason}. Nothing is left of it, "
            "and the checkpoints before it are as they were."
        )

    def _advice(self, error: BaseException) -> str:
        number = getattr(error, "errno", None)
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            return "; save to a directory that this user can write to"
        if number != errno.ENOSPC and "space left" not in str(error):
            return ""
        needed = sum(array.nbytes for array in (*self._arrays.values(), *self._copies.values()))
        free = shutil.disk_usage(os.path.dirname(self.path)).free
        return (
            f"; the disk is full: {needed / 1e6:.1f} MB are needed. Free some space (now "
            f"{free / 1e6:.1f} MB), save to another disk, or keep fewer with max_to_keep"
        )


def _is_about_writing(error: BaseException) -> bool:
    """Errors of the file system: Python's, and TensorStore's, which has its own texts for them.

    A parameter server that was lost meanwhile is none.
    """
    if isinstance(error, UnavailableError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, OSError) or any(f.name in ("write_arrays",) for f in frames)
