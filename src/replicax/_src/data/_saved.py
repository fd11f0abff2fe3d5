"""A data set in a folder: what `save` writes, and `load` and `snapshot` read.

A folder has an index and parts. A part has some elements of one shard, in the format of
`_cache_file.py`. The index says what the elements look like, and which parts each shard has; it is
written last, so that a folder is a saved data set as a whole or not at all. What is not named in
an index that is ours is never touched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, final

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._errors import DataLossError, NotFoundError
from replicax._src._local_path import naming
from replicax._src._tensor_spec import TensorSpec
from replicax._src.data import _cache_file
from replicax._src.data._abandoned import create_locked, is_abandoned
from replicax._src.data._described import described, integer, is_dtype, structure_like
from replicax._src.data._elements import (
    Element,
    ElementSpec,
    Structure,
    leaves_with_names,
    own,
)
from replicax._src.data._leaf_columns import check_can_be_kept

INDEX = "replicax-dataset"
_FIRST_LINE = b"replicax data set 1\n"
_PART = re.compile(r"part-([0-9a-f]{16})-[0-9]{6,}")
_TEMPORARY = re.compile(rf"{INDEX}-([0-9a-f]{{16}})")
_OURS = re.compile(rf"{_PART.pattern}$|{INDEX}-|\.rx-cache-")  # what writers make on the way
_PART_BYTES = 1 << 25
_PART_ELEMENTS = 1 << 14
_MOST_INDEX = 1 << 28  # bytes


@final
@dataclasses.dataclass(frozen=True)
class Part:
    """A file of a saved data set, and how many elements it has."""

    name: str
    elements: int


@final
@dataclasses.dataclass(frozen=True)
class Index:
    """What is in a folder.

    Attributes:
      folder: where it is.
      structure: that of the elements, as JSON, or as a text where it is not of tuples and dicts.
      leaves: the shape (None if unknown) and dtype of each leaf.
      shards: the parts of each shard, by its number.
      seeds: that decided the order of the elements.
    """

    folder: str
    structure: Any
    leaves: list[tuple[list[int | None] | None, str]]
    shards: dict[int, list[Part]]
    seeds: tuple[int, ...]

    @property
    def parts(self) -> list[Part]:
        """All parts, shard after shard."""
        return [part for number in sorted(self.shards) for part in self.shards[number]]

    def spec(self) -> Any:
        """Returns the spec of the elements.

        Raises:
          ValueError: they have containers of a class that only the program knows.
        """
        if isinstance(self.structure, str):
            raise ValueError(
                f"The data set in {self.folder!r} has elements of {self.structure:.200}, and "
                "classes of a program are not looked up by name. Name them: "
                "load(path, element_spec=...), with the element_spec of the data set that was "
                "saved."
            )
        like = structure_like(self.structure)
        specs = [
            TensorSpec.on_host(shape, STRING if dtype == "string" else np.dtype(dtype))
            for shape, dtype in self.leaves
        ]
        return Structure(like).build(specs)

    def elements(self, part: Part, spec: Callable[[], Any]) -> list[Any]:
        """Returns the elements of a part.

        Raises:
          DataLossError: the file is damaged, or not there.
        """
        path = os.path.join(self.folder, part.name)
        try:
            found = _cache_file.read(path, (), spec, _damaged)
        except FileNotFoundError:
            _damaged(path, "it is not there")
        if found is None or len(found) != part.elements:
            _damaged(path, f"it does not have the {part.elements} elements that the index says")
        return found


def _damaged(path: str, why: str) -> NoReturn:
    raise DataLossError(
        f"{path!r} is no file of a saved data set that can be used: {why}. Copy the whole folder "
        "again, or save the data set again.",
        path,
    )


# ------------------------------------------------------------------ writing


def write(
    folder: str,
    elements: Iterable[Any],
    spec: Callable[[], ElementSpec],
    shard_of: Callable[[Any], int],
    compress: bool,
    seeds: tuple[int, ...] = (),
    operation: str = "save()",
) -> None:
    """Writes elements into a folder; what is there already is replaced if we made it.

    Raises:
      FileExistsError: the folder has something else in it.
    """
    writer = Writer(folder, shard_of, compress, operation)
    try:
        for element in elements:
            writer.add(element)
        writer.finish(spec(), seeds)
    except BaseException:
        writer.give_up()
        raise


@final
class Writer:
    """Writes one data set; nothing counts before `finish`."""

    def __init__(
        self,
        folder: str,
        shard_of: Callable[[Any], int],
        compress: bool,
        operation: str,
        is_shared: bool = False,
    ):
        self._folder = folder
        self._shard_of = shard_of
        self._compress = compress
        self._operation = operation
        self._is_shared = is_shared  # others may write the same: who is first counts
        self._is_new = not os.path.lexists(folder)
        self._count = 0
        self._open: dict[int, list[Any]] = {}
        self._bytes: dict[int, int] = {}
        self._shards: dict[int, list[Part]] = {}
        self._old = _old_index(folder, operation)
        os.makedirs(folder, exist_ok=True)
        self._process = os.getpid()
        self._token = secrets.token_hex(8)
        self._temporary = os.path.join(folder, f"{INDEX}-{self._token}")  # of the index
        self._handle = create_locked(self._temporary)
        self._release = weakref.finalize(
            self, _release, self._handle, self._temporary, self._process
        )
        _tidy(folder)

    def add(self, element: Element) -> None:
        """Takes the next element."""
        if not self._shards and not self._open:
            check_can_be_kept(element, self._operation)
        shard = self._shard_of(element)
        held = self._open.setdefault(shard, [])
        held.append(own(element))
        size = sum(getattr(leaf, "nbytes", 64) for _, leaf in leaves_with_names(element))
        self._bytes[shard] = self._bytes.get(shard, 0) + size
        if len(held) >= _PART_ELEMENTS or self._bytes[shard] >= _PART_BYTES:
            self._flush(shard)

    def _flush(self, shard: int) -> None:
        elements = self._open.pop(shard)
        self._bytes.pop(shard)
        part = Part(f"part-{self._token}-{self._count:06d}", len(elements))
        self._count += 1
        os.utime(self._handle)  # shows that it goes on
        self._shards.setdefault(shard, []).append(part)
        _cache_file.write(os.path.join(self._folder, part.name), elements, (), self._compress)

    def finish(self, spec: ElementSpec, seeds: tuple[int, ...]) -> None:
        """Makes it count: writes the index, and removes the parts of the one before.

        Args:
          spec: of the elements.
          seeds: that decided their order.
        """
        for shard in sorted(self._open):
            self._flush(shard)
        description = {
            "structure": described(spec),
            "leaves": [_leaf(leaf) for _, leaf in leaves_with_names(spec)],
            "shards": [
                [shard, [[part.name, part.elements] for part in self._shards[shard]]]
                for shard in sorted(self._shards)
            ],
            "seeds": seeds,
        }
        text = json.dumps(description).encode()
        with naming(self._folder), open(self._handle, "wb", closefd=False) as file:
            file.write(_FIRST_LINE + f"{zlib.crc32(text):08x}\n".encode() + text)
            file.flush()
            os.fsync(self._handle)
        for part in self._parts():
            path = os.path.join(self._folder, part.name)
            if not os.path.exists(path):
                raise FileNotFoundError(
                    f"{self._operation}: {path!r} is gone: another program has removed it. Give "
                    "every program a folder of its own."
                )
        path = os.path.join(self._folder, INDEX)
        if self._is_shared and not _is_first(self._temporary, path):
            self.give_up()
            return
        if not self._is_shared:
            os.replace(self._temporary, path)
        self._release()
        if self._old is not None:
            _remove(self._folder, self._old.parts)

    def give_up(self) -> None:
        """Removes what was written so far, and the folder if it was made for it."""
        if os.getpid() != self._process:  # a forked child leaves what its parent still writes
            return
        _remove(self._folder, self._parts())
        self._shards, self._open = {}, {}
        self._release()
        if self._is_new and not self._is_shared:
            with contextlib.suppress(OSError):
                os.rmdir(self._folder)

    def _parts(self) -> list[Part]:
        return [part for parts in self._shards.values() for part in parts]


def _release(handle: int, temporary: str, process: int) -> None:
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    os.close(handle)


def _is_first(temporary: str, path: str) -> bool:
    """Gives a file a second name if there is none of that name yet; returns whether it has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            return False
        os.replace(temporary, path)
    return True


def _tidy(folder: str) -> None:
    """Removes what writers that were killed have left in a folder."""
    _cache_file.tidy(folder)
    names = os.listdir(folder)
    # First who is at work, then what counts: who is done in between is in the index by then.
    alive = {
        name.removeprefix(f"{INDEX}-")
        for name in names
        if name.startswith(f"{INDEX}-") and not is_abandoned(os.path.join(folder, name))
    }
    try:
        counts = {part.name for part in read_index(folder).parts}
    except NotFoundError:
        counts = set()
    for name in names:
        match = _PART.fullmatch(name) or _TEMPORARY.fullmatch(name)
        if match and match[1] not in alive and name not in counts:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def _leaf(spec: TensorSpec) -> tuple[Any, str]:
    shape = None if spec.shape is None else list(spec.shape)
    return shape, "string" if spec.dtype == STRING else np.dtype(spec.dtype).name


def _remove(folder: str, parts: Sequence[Part]) -> None:
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, part.name))


def _old_index(folder: str, operation: str) -> Index | None:
    """Returns the index of what is to be replaced; None if there is nothing."""
    if not os.path.lexists(folder):
        return None
    if not os.path.isdir(folder):
        raise FileExistsError(
            f"{operation} writes a folder, and {folder!r} is a file that it did not make. Name "
            "another path."
        )
    if os.path.lexists(os.path.join(folder, INDEX)):
        return read_index(folder)
    others = [name for name in os.listdir(folder) if _OURS.match(name) is None]
    if others:
        raise FileExistsError(
            f"{operation} writes into a folder of its own, and {folder!r} has other things in it: "
            f"{', '.join(map(repr, sorted(others)[:4]))}. Name another path."
        )
    return None


# ------------------------------------------------------------------ reading


def read_index(folder: str) -> Index:
    """Returns the index of a folder, checked.

    Raises:
      NotFoundError: there is none.
      DataLossError: it is damaged.
    """
    path = os.path.join(folder, INDEX)
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_INDEX + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"There is no saved data set in {folder!r}: it has no file {INDEX!r}. load() reads "
            "what dataset.save(path) of replicax wrote; data sets that TensorFlow saved are read "
            "by TensorFlow, and can be written as TFRecord files there."
        ) from None
    except IsADirectoryError:
        _damaged(path, "it is a folder")
    if len(content) > _MOST_INDEX or not content.startswith(_FIRST_LINE):
        _damaged(path, "it does not begin as the index of a data set of this version does")
    checksum, _, text = content[len(_FIRST_LINE) :].partition(b"\n")
    if checksum != f"{zlib.crc32(text):08x}".encode():
        _damaged(path, "it does not match its checksum")
    try:
        found = json.loads(text)
        return Index(
            folder,
            _checked_structure(found["structure"], len(found["leaves"])),
            [_checked_leaf(*leaf) for leaf in found["leaves"]],
            {
                integer(shard): [_checked_part(*p) for p in parts]
                for shard, parts in found["shards"]
            },
            tuple(integer(seed) for seed in found["seeds"]),
        )
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        _damaged(path, f"it cannot be understood ({error!r:.80})")


def _checked_structure(structure: Any, leaves: int) -> Any:
    if not isinstance(structure, str):
        like = structure_like(structure)
        if len(Structure(like).leaves(like)) != leaves:
            raise ValueError(f"{leaves} leaves in the structure {structure!r:.60}")
    return structure


def _checked_leaf(shape: Any, dtype: object) -> tuple[list[int | None] | None, str]:
    if not isinstance(dtype, str) or not is_dtype(dtype):
        raise ValueError(f"a leaf of {dtype!r:.40}")
    if shape is None:
        return None, dtype
    sizes = [None if size is None else integer(size) for size in shape]
    if any(size is not None and size < 0 for size in sizes):
        raise ValueError(f"a leaf of the shape {shape!r:.40}")
    return sizes, dtype


def _checked_part(name: object, elements: object) -> Part:
    if not isinstance(name, str) or _PART.fullmatch(name) is None:
        raise ValueError(f"a part that is called {name!r:.60}")
    if integer(elements) <= 0:
        raise ValueError(f"a part of {elements!r:.40} elements")
    return Part(name, integer(elements))


def specs_fit(given: ElementSpec, index: Index) -> bool:
    """Returns whether a spec that a user gave is that of the elements, as far as is known."""
    leaves = [leaf for _, leaf in leaves_with_names(given)]
    if described(given) != index.structure:
        return False
    return len(leaves) == len(index.leaves) and all(
        _leaf(leaf)[1] == dtype and _shapes_fit(leaf.shape, shape)
        for leaf, (shape, dtype) in zip(leaves, index.leaves)
    )


def _shapes_fit(one: Sequence[int | None] | None, other: Sequence[int | None] | None) -> bool:
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(
        a is None or b is None or a == b for a, b in zip(one, other)
    )
