"""What restoring asks of a checkpoint on the disk, and the answers of our own format."""

from __future__ import annotations

import abc
import collections
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, final

import numpy as np

from replicax._src._local_path import made_absolute
from replicax._src._typing import override
from replicax._src.checkpoints import _folder
from replicax._src.checkpoints._arrays import read_arrays
from replicax._src.checkpoints._graph import OURS, GraphNode, Kind, Spelling
from replicax._src.checkpoints._leaf import ArraySpec, as_saved, number_from_json
from replicax._src.checkpoints._manifest import damaged
from replicax._src.checkpoints._names import ARRAYS, COPIES, SERVERS
from replicax._src.checkpoints._objects import read_objects
from replicax._src.checkpoints.foreign._spelling import SPELLINGS


@final
class Place(NamedTuple):
    """Rows of an array, all or some, in a folder of arrays.

    Attributes:
      folder: which, in the checkpoint.
      name: of the array there.
      start: the number of the first row.
      stop: the number after the last row; of an array without rows, 1.
      size: how many bytes the folder has.
    """

    folder: str
    name: str
    start: int
    stop: int
    size: int


Progress = Callable[[list[str]], Iterable[str]]


class Saved(abc.ABC):
    """A checkpoint on the disk.

    Attributes:
      path: where it is.
      mark: a text that is different for different checkpoints.
      objects: what is in it, the root first, in the form of `objects.json`.
      spelling: what things of the program are called in it.
      progress: is given the names of what is checked or read, and yields them.
    """

    path: str
    mark: str | None
    objects: list[dict[str, Any]]
    spelling: Spelling = OURS
    progress: Progress = staticmethod(iter)  # shows nothing

    def watched(self, names: list[str]) -> Iterator[str]:
        """Yields names while `progress` is told; all of them, whatever that yields."""
        shown = iter(self.progress(list(names)))
        for name in names:
            next(shown, None)
            yield name
        collections.deque(shown, maxlen=0)

    @abc.abstractmethod
    def arrays(self, indices: list[int]) -> Mapping[int, Any]:
        """Returns the values of arrays, by object; all of them have been checked."""

    def places(self, index: int) -> list[Place]:
        """Returns where the rows of an array are, in order; nothing where others cannot read it."""
        return []

    def copies(self, worker: int, indices: list[int]) -> dict[int, list[Any]]:
        """Returns the copies that a worker had, by object."""
        return {}

    def named(self, node: GraphNode) -> int | None:
        """Returns the saved object of something that names from the root did not lead to."""
        return None

    def spec(self, index: int) -> ArraySpec:
        each = self.objects[index]
        return ArraySpec(each["dtype"], tuple(each["shape"]), each["keys"])

    def fits(self, wanted: ArraySpec, index: int) -> bool:
        """Returns whether a saved array can be the value of such a one."""
        saved = self.spec(index)
        if saved.keys is not None or wanted.keys is not None:
            return saved == wanted
        is_same = self.spelling.is_same_dtype(wanted.dtype, saved.dtype)
        return is_same and saved.shape == wanted.shape

    def number(self, index: int) -> Any:
        """Returns a saved number; None if it is something else."""
        each = self.objects[index]
        if each["kind"] == Kind.NUMBER:
            return number_from_json(each["value"])
        is_scalar = each["kind"] == Kind.VARIABLE and not each["shape"] and each["keys"] is None
        if self.spelling is OURS or not is_scalar or each["dtype"] == "string":
            return None
        return np.asarray(self.arrays([index])[index]).item()  # TensorFlow has nothing else

    def leaves(self) -> list[int]:
        """Returns what has a value, without settings that a program may be without."""
        return [
            index
            for index, each in enumerate(self.objects)
            if each["kind"] != Kind.OBJECT and not each.get("is_setting", False)
        ]

    def describe(self, index: int) -> str:
        each = self.objects[index]
        if each["kind"] in (Kind.VARIABLE, Kind.ARRAY):
            return str(self.spec(index))
        if each["kind"] == Kind.NUMBER:
            return f"the number {number_from_json(each['value'])!r}"
        return "the position of an iterator" if each["kind"] == Kind.STATE else "an object"


@final
class SavedFolder(Saved):
    """A checkpoint of ours."""

    def __init__(self, path: str, verified: bool = False):
        """Opens it.

        Args:
          path: where it is.
          verified: whether every byte has been checked just now.
        """
        self.path = made_absolute(path)
        self.mark = _folder.mark_of(path)
        self._manifest = _folder.read_manifest(path) if verified else _folder.verify(path)
        self.objects, spelling = read_objects(path)
        if spelling is not None:  # it was converted
            if spelling not in SPELLINGS:
                raise damaged(path, f"its names are those of {spelling!r}, which nobody knows")
            self.spelling = SPELLINGS[spelling]

    @override
    def arrays(self, indices: list[int]) -> Mapping[int, Any]:
        whole = [index for index in indices if "parts" not in self.objects[index]]
        names = {index: [self.objects[index]["path"]] for index in whole}
        found = {index: value for index, (value,) in self._read(ARRAYS, names).items()}
        in_parts = {
            index: (self.spec(index), self.places(index), 0, sys.maxsize)
            for index in indices
            if index not in found
        }
        return found | ReadRows(self.path, in_parts)()

    @override
    def places(self, index: int) -> list[Place]:
        each = self.objects[index]
        rows = each["shape"][0] if each["shape"] else 1
        if "parts" not in each:
            return [Place(ARRAYS, each["path"], 0, rows, self._size_of(ARRAYS))]
        folders = [SERVERS.format(server) for server, _ in each["parts"]]
        starts = [start for _, start in each["parts"]]
        return [
            Place(folder, f"{each['path']}/{number}", start, stop, self._size_of(folder))
            for number, (folder, start, stop) in enumerate(
                zip(folders, starts, [*starts[1:], rows], strict=True)
            )
        ]

    def _size_of(self, part: str) -> int:
        files = self._manifest.files.items()
        return sum(size for file, (size, _) in files if file.startswith(f"{part}/"))

    @override
    def copies(self, worker: int, indices: list[int]) -> dict[int, list[Any]]:
        names = {
            index: [
                f"{self.objects[index]['path']}/{copy}"
                for copy in range(self.objects[index]["copies"][worker])
            ]
            for index in indices
        }
        return self._read(COPIES.format(worker), names)

    def _read(self, part: str, names: dict[int, list[str]]) -> dict[int, list[Any]]:
        """Returns arrays of a part, by object: each is what the object says that it is."""
        if not names:
            return {}
        size = self._size_of(part)
        wanted = {name for each in names.values() for name in each}
        try:
            stored = read_arrays(os.path.join(self.path, part), wanted, size)
            return {
                index: [as_saved(stored[name], self.spec(index)) for name in each]
                for index, each in names.items()
            }
        except Exception as error:  # TensorStore's are of many kinds
            raise damaged(self.path, f"{part} cannot be read: {error}") from error


@final
class ReadRows(NamedTuple):
    """Reads rows of arrays, wherever it is called.

    Attributes:
      path: of the checkpoint.
      wanted: for each key, what the whole array is, where it is, and the first and last rows.
    """

    path: str
    wanted: Mapping[int, tuple[ArraySpec, list[Place], int, int]]

    def __call__(self) -> dict[int, np.ndarray]:
        try:
            return {key: self._rows(*given) for key, given in self.wanted.items()}
        except Exception as error:  # TensorStore's are of many kinds
            raise damaged(self.path, f"its arrays cannot be read: {error}") from error

    def _rows(self, spec: ArraySpec, places: list[Place], start: int, stop: int) -> np.ndarray:
        found = []
        for place in places:
            first, last = max(start, place.start), min(stop, place.stop)
            if first < last or not place.stop:
                rows = slice(first - place.start, last - place.start)
                folder = os.path.join(self.path, place.folder)
                cut = {place.name: rows} if spec.shape else {}
                (array,) = read_arrays(folder, [place.name], place.size, cut).values()
                shape = (max(0, last - first), *spec.shape[1:]) if spec.shape else ()
                found.append(as_saved(array, ArraySpec(spec.dtype, shape)))
        return found[0] if len(found) == 1 else np.concatenate(found)
