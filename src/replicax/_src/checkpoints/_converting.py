"""From one form of checkpoint to another: names are mapped, values read and written in parts."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._local_path import absolute_path
from replicax._src._typing import override
from replicax._src.checkpoints import _folder
from replicax._src.checkpoints._arrays import write_arrays
from replicax._src.checkpoints._graph import Kind
from replicax._src.checkpoints._leftovers import settle
from replicax._src.checkpoints._lock import PathLock
from replicax._src.checkpoints._names import ARRAYS, OBJECTS, PARTIAL
from replicax._src.checkpoints._opening import bundle_at, open_saved
from replicax._src.checkpoints._problems import SaveFailedError
from replicax._src.checkpoints._reading import CheckpointReader, load_checkpoint
from replicax._src.checkpoints.foreign._object_graph import GRAPH, SUFFIX
from replicax._src.checkpoints.foreign._safetensors import (
    can_hold,
    require_free,
    write_safetensors,
)

FORMATS = ("replicax", "orbax", "safetensors")
_AT_ONCE = 512 << 20  # bytes that are held on their way
PART_BYTES = 5_000_000_000

Progress = Callable[[Iterable[str]], Iterable[str]]


@final
@dataclasses.dataclass
class Rule:
    """A name or regular expression of names, and what becomes of it; None: it is left out."""

    pattern: re.Pattern[str]
    target: str | None
    line: str

    def applied(self, match: re.Match[str]) -> str | None:
        """Returns what becomes of a name that fits; `ValueError` for a group that is not there."""
        try:
            return None if self.target is None else match.expand(self.target)
        except (re.error, IndexError) as error:
            raise ValueError(f"The rule {self.line!r} makes no name: {error}.") from None


def read_rules(text: str) -> list[Rule]:
    """Returns the rules in a text: a line `PATTERN -> NAME` each, `PATTERN ->` to leave out.

    Raises:
      ValueError: a line that is none.
    """
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        pattern, arrow, target = line.partition("->")
        if not arrow or not pattern.strip():
            raise ValueError(
                f"line {number} is no rule: {line!r}. Write `PATTERN -> NAME`: a name or a regular "
                r"expression, and the new name, in which \1 is the first group; nothing after the "
                "arrow leaves it out."
            )
        try:
            rules.append(Rule(re.compile(pattern.strip()), target.strip() or None, line))
        except re.error as error:
            raise ValueError(
                f"line {number}: {pattern.strip()!r} is no expression: {error}"
            ) from None
    return rules


@final
@dataclasses.dataclass
class Conversion:
    """What went where.

    Attributes:
      moved: names in the new checkpoint, by those in the old one.
      left: what was left over, and why.
      files: what was written.
      specs: dtype and shape of what went along, by its old name.
    """

    moved: dict[str, str]
    left: dict[str, str]
    files: list[str]
    specs: dict[str, str]


def convert(
    source: str,
    target: str,
    to: str = "replicax",
    rules: Sequence[Rule] | None = None,
    part_bytes: int = PART_BYTES,
    progress: Progress = lambda names: names,
) -> Conversion:
    """Writes a checkpoint in another form.

    Args:
      source: a checkpoint of TensorFlow or replicax, or a file of SafeTensors.
      target: a path at which there is nothing.
      to: one of `FORMATS`.
      rules: what names become; those without a rule stay as they are.
      part_bytes: how large a file of SafeTensors may be.
      progress: is given the names, and yields them as they are read.

    Raises:
      ValueError: a rule that fits no name, or two names that become one.
      FileExistsError: there is something at the target.
    """
    target = absolute_path(target, "target")
    reader = load_checkpoint(source)
    found = _planned(reader, to, rules or ())
    arrays = _Read(reader, found, progress)
    if to == "safetensors":
        target = target if target.endswith(".safetensors") else f"{target}.safetensors"
        sizes = {found.moved[name]: arrays.size_of(name) for name in found.moved}
        found.files = write_safetensors(target, arrays, sizes, part_bytes)
        return found
    require_free(target)
    if to == "orbax":
        _write_arrays_alone(target, arrays)
    else:
        prefix = bundle_at(reader.path)
        is_whole = prefix is not None and not rules
        objects = _objects_of(prefix, found) if is_whole else _tree_of(reader, found)
        _write_folder(target, arrays, objects, is_whole)
    found.files = [target]
    return found


def _planned(reader: CheckpointReader, to: str, rules: Sequence[Rule]) -> Conversion:
    """Decides what becomes of each name."""
    found = Conversion({}, {}, [], {})
    taken: dict[str, str] = {}
    unused = {id(rule): rule for rule in rules}
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    for name, shape in shapes.items():
        dtype = dtypes[name]
        if name == GRAPH:
            continue  # it says how the others are connected
        plain = name.removesuffix(SUFFIX)
        new: str | None = plain
        for rule in rules:
            match = rule.pattern.fullmatch(plain)
            if match is not None:
                unused.pop(id(rule), None)
                new = rule.applied(match)
                break
        if new is None:
            found.left[plain] = "a rule leaves it out"
        elif not isinstance(dtype, np.dtype) or dtype == STRING:
            found.left[plain] = "texts, keys and objects have no place there"
        elif to == "safetensors" and not can_hold(dtype):
            found.left[plain] = f"{dtype} has no place in SafeTensors"
        elif new in taken:
            raise ValueError(
                f"{taken[new]!r} and {plain!r} would both become {new!r}. Change the rules."
            )
        else:
            taken[new] = plain
            found.moved[name] = new
            found.specs[name] = f"{dtype}[{','.join(map(str, shape))}]"
    if unused:
        lines = "; ".join(rule.line for rule in unused.values())
        raise ValueError(f"No name in {reader.path} fits these rules: {lines}")
    if not found.moved:
        raise ValueError(f"There is nothing to convert in {reader.path}.")
    return found


@final
class _Read(Mapping[str, np.ndarray]):
    """The arrays by their new names, each read when it is asked for."""

    def __init__(self, reader: CheckpointReader, found: Conversion, progress: Progress):
        self._reader = reader
        self._old = {new: old for old, new in found.moved.items()}
        self._progress = progress
        self._shapes = reader.get_variable_to_shape_map()
        self._dtypes = reader.get_variable_to_dtype_map()

    def size_of(self, name: str) -> int:
        return math.prod(self._shapes[name]) * self._dtypes[name].itemsize

    @override
    def __getitem__(self, name: str) -> np.ndarray:
        return self._reader.get_tensor(self._old[name])

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._progress(list(self._old)))

    @override
    def __len__(self) -> int:
        return len(self._old)


def _objects_of(prefix: str | None, found: Conversion) -> list[dict[str, Any]]:
    """Returns the objects that TensorFlow saved, with the arrays under their new names."""
    assert prefix is not None
    objects = [dict(each) for each in open_saved(prefix).objects]
    for each in objects:
        name = each.pop("tensor", None)
        if name in found.moved:
            each["path"] = found.moved[name]
        elif name is not None:
            each["kind"] = Kind.OBJECT
            for detail in ("dtype", "shape", "keys"):
                del each[detail]
    for each in objects:
        each["slots"] = [s for s in each.get("slots", ()) if objects[s[3]]["kind"] == "variable"]
    return objects


def _tree_of(reader: CheckpointReader, found: Conversion) -> list[dict[str, Any]]:
    """Returns objects by the names alone: what is before a slash has what is after it."""
    objects: list[dict[str, Any]] = [{"kind": Kind.OBJECT, "path": "", "children": {}}]
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    for old, new in found.moved.items():
        parent = objects[0]
        *folders, last = new.split("/")
        for depth, folder in enumerate(folders):
            folder = _unescaped(folder)
            if folder not in parent["children"]:
                parent["children"][folder] = len(objects)
                path = "/".join(new.split("/")[: depth + 1])
                objects.append({"kind": Kind.OBJECT, "path": path, "children": {}})
            parent = objects[parent["children"][folder]]
            parent.setdefault("children", {})
        index = parent["children"].setdefault(_unescaped(last), len(objects))
        if index == len(objects):  # else names below it came first
            objects.append({})
        spec = {"dtype": str(dtypes[old]), "shape": shapes[old], "keys": None}
        objects[index] |= {"kind": Kind.VARIABLE, "path": new, **spec}
    return objects


def _unescaped(name: str) -> str:
    return name.replace(".S", "/").replace("..", ".")


def _write_arrays_alone(target: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the arrays under another name, which a killed program may have left, and renames."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    lock = PathLock(target)
    try:
        settle(target)
        _write_arrays(target + PARTIAL, arrays, target)
        require_free(target)
        os.rename(target + PARTIAL, target)
    finally:
        settle(target)
        lock.release()


def _write_arrays(folder: str, arrays: Mapping[str, np.ndarray], target: str) -> None:
    try:
        write_arrays(folder, arrays, _AT_ONCE)
    except ValueError as error:  # TensorStore's, which it is for a full disk too
        if "RESOURCE_EXHAUSTED" not in str(error) and "space left" not in str(error):
            raise
        raise SaveFailedError(
            f"{target} could not be written: the disk is full. {error}"
        ) from error


def _write_folder(
    target: str, arrays: Mapping[str, np.ndarray], objects: list[dict[str, Any]], is_theirs: bool
) -> None:
    partial = _folder.PartialFolder(target)
    try:
        _write_arrays(os.path.join(partial.path, ARRAYS), arrays, target)
        files = _folder.sync_and_list(partial.path, ARRAYS)
        content = {"objects": objects, "spelling": "tensorflow" if is_theirs else "names"}
        _folder.write_file(os.path.join(partial.path, OBJECTS), json.dumps(content).encode())
        files |= _folder.sync_and_list(partial.path, OBJECTS)
        partial.commit(files, 1, {})
    except OSError as error:
        raise SaveFailedError(f"{target} could not be written: {error}") from error
    finally:
        partial.discard()
