"""What restoring asks of a checkpoint on the disk, and the answers of our own format."""

from __future__ import annotations

import abc
import collections
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, final

import numpy as np

from replicax._src._typing import override
from replicax._src.checkpoints import _folder
from replicax._src.checkpoints._arrays import read_arrays
from replicax._src.checkpoints._graph import OURS, Kind, Node, Spelling
from replicax._src.checkpoints._leaf import ArraySpec, as_saved, number_from_json
from replicax._src.checkpoints._manifest import damaged
from replicax._src.checkpoints._names import ARRAYS, COPIES
from replicax._src.checkpoints._objects import read_objects
from replicax._src.checkpoints.foreign._spelling import SPELLINGS

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

    def copies(self, worker: int, indices: list[int]) -> dict[int, list[Any]]:
        """Returns the copies that a worker had, by object."""
        return {}

    def named(self, node: Node) -> int | None:
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
        self.path = os.path.abspath(path)
        self.mark = _folder.mark_of(path)
        self._manifest = _folder.read_manifest(path) if verified else _folder.verify(path)
        self.objects, spelling = read_objects(path)
        if spelling is not None:  # it was converted
            if spelling not in SPELLINGS:
                raise damaged(path, f"its names are those of {spelling!r}, which nobody knows")
            self.spelling = SPELLINGS[spelling]

    @override
    def arrays(self, indices: list[int]) -> Mapping[int, Any]:
        names = {index: [self.objects[index]["path"]] for index in indices}
        return {index: value for index, (value,) in self._read(ARRAYS, names).items()}

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
        files = self._manifest.files.items()
        size = sum(size for file, (size, _) in files if file.startswith(f"{part}/"))
        wanted = {name for each in names.values() for name in each}
        try:
            stored = read_arrays(os.path.join(self.path, part), wanted, size)
            return {
                index: [as_saved(stored[name], self.spec(index)) for name in each]
                for index, each in names.items()
            }
        except Exception as error:  # TensorStore's are of many kinds
            raise damaged(self.path, f"{part} cannot be read: {error}") from error
