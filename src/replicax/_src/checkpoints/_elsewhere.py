"""Variables whose values are in other processes: each process writes and reads its own part.

Processes that do not see the directory of the checkpoint cannot: what they hold goes through this
one, as all other values do.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any, NamedTuple, final

import numpy as np

from replicax._src import _warnings
from replicax._src.checkpoints import _folder
from replicax._src.checkpoints._arrays import write_arrays
from replicax._src.checkpoints._graph import GraphNode, Kind
from replicax._src.checkpoints._leaf import ArraySpec, spec_of
from replicax._src.checkpoints._names import SERVERS
from replicax._src.checkpoints._saved import Place, ReadRows, Saved
from replicax._src.variable import Holder, Piece, Task, holder_of


@final
class WrittenElsewhere:
    """What other processes write of one save. They have the values of when it was made.

    Attributes:
      parts: by the paths of variables, the numbers of the parts' folders, and their first rows.
    """

    def __init__(self, nodes: list[GraphNode], folder: str):
        """
        Args:
          nodes: variables and arrays.
          folder: that of the checkpoint in the making.
        """
        self.parts: dict[str, list[list[int]]] = {}
        self._tasks: list[Task] = []
        used = 0  # numbers of folders
        try:
            for holder, group in _by_holder(nodes).items():
                blind = _blind(holder, folder, None)
                keys: dict[int, dict[str, int]] = defaultdict(dict)
                for node in group:
                    pieces = holder.pieces(node.value, with_copies=False)
                    if any(piece.process in blind for piece in pieces):
                        continue
                    self.parts[node.path] = [[used + p.process, p.start] for p in pieces]
                    for number, piece in enumerate(pieces):
                        keys[piece.process][f"{node.path}/{number}"] = piece.key
                self._tasks.append(
                    holder.write(
                        {
                            process: (_Write(folder, SERVERS.format(used + process)), names)
                            for process, names in keys.items()
                        }
                    )
                )
                used += max(keys, default=-1) + 1
        except BaseException:
            self.end()
            raise

    def files(self) -> dict[str, tuple[int, int]]:
        """Waits for all. Returns size and checksum of each file that was written."""
        results = [each for task in self._tasks for each in task.results().values()]
        self.end()
        return {name: entry for files in results for name, entry in files.items()}

    def end(self) -> None:
        """Waits for all, whatever becomes of it."""
        for task in self._tasks:
            task.end()
        self._tasks = []


@final
class ReadElsewhere:
    """What other processes read of a checkpoint. Everything is there when this is made.

    Attributes:
      rest: variables and arrays that are read here, and what was saved of each.
    """

    def __init__(self, pairs: list[tuple[GraphNode, int]], saved: Saved):
        self.rest = list(pairs)
        self._tasks: list[Task] = []
        fit = {
            id(node): index
            for node, index in pairs
            if saved.places(index) and spec_of(node.value) == saved.spec(index)
        }
        try:
            for holder, group in _by_holder([n for n, _ in pairs if id(n) in fit]).items():
                blind = _blind(holder, saved.path, saved.mark)
                wanted: dict[int, dict[int, Any]] = defaultdict(dict)
                done: set[int] = set()
                for node in group:
                    pieces = holder.pieces(node.value, with_copies=True)
                    if any(piece.process in blind for piece in pieces):
                        continue
                    done.add(id(node))
                    index = fit[id(node)]
                    for piece in pieces:
                        rows = _rows(piece, saved.spec(index), saved.places(index))
                        wanted[piece.process][piece.key] = rows
                self.rest = [pair for pair in self.rest if id(pair[0]) not in done]
                calls = {process: ReadRows(saved.path, each) for process, each in wanted.items()}
                self._tasks.append(holder.read(calls))
            for task in self._tasks:
                task.results()
        except BaseException:
            self.end()
            raise

    def adopt(self) -> None:
        """Makes what was read the values of the variables."""
        for task in self._tasks:
            task.adopt()

    def end(self) -> None:
        """Forgets what was read."""
        for task in self._tasks:
            task.end()


def _rows(piece: Piece, spec: ArraySpec, places: list[Place]) -> Any:
    return spec, places, piece.start, piece.stop


def _by_holder(nodes: list[GraphNode]) -> dict[Holder, list[GraphNode]]:
    found: dict[Holder, list[GraphNode]] = defaultdict(list)
    for node in nodes:
        if node.kind == Kind.VARIABLE and (holder := holder_of(node.value)) is not None:
            found[holder].append(node)
    return found


def _blind(holder: Holder, folder: str, mark: str | None) -> set[int]:
    """Returns the processes that do not see a folder, or another one under its name."""
    answers = holder.ask(_Sees(folder, mark))
    blind = {process for process, sees in enumerate(answers) if not sees}
    if blind:
        _warnings.warn(
            f"Parameter servers {sorted(blind)} do not see {os.path.dirname(folder)}: what they "
            "hold goes through this process, which needs the memory for it. Save to a directory "
            "that all servers share."
        )
    return blind


@final
class _Sees(NamedTuple):
    """Asks whether a folder is the one that is meant: a checkpoint has its mark."""

    folder: str
    mark: str | None

    def __call__(self) -> bool:
        if self.mark is None:
            return os.path.isdir(self.folder)
        return _folder.mark_of(self.folder) == self.mark


@final
class _Write(NamedTuple):
    """Writes arrays to a part of a checkpoint. Returns what was written."""

    folder: str
    part: str

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, tuple[int, int]]:
        try:
            write_arrays(os.path.join(self.folder, self.part), arrays)
            return _folder.sync_and_list(self.folder, self.part)
        except OSError:
            raise
        except Exception as error:  # TensorStore's are of many kinds
            raise OSError(str(error)) from error
