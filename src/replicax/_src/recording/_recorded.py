"""`Recorded`: a capsule that was read, and checked.

What is read may have been made by somebody else: nothing of it is trusted before it was looked at.
What is in a capsule is in `_capsule.py`.
"""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import os
import re
import stat
from collections.abc import Callable
from typing import Any, final

import numpy as np

from replicax._src._errors import CheckpointError, DataLossError
from replicax._src._local_path import made_absolute
from replicax._src.checkpoints import require_whole
from replicax._src.recording._capsule import FORMAT, MANIFEST, VERSION, is_count, sum_of
from replicax._src.recording._inputs import as_argument, from_bytes, from_line, leaves_in
from replicax._src.recording._ring import ARRAY, DESCRIPTION, open_regular

_NAME = re.compile(r"worker-\d{1,6}/(recording\.json|steps\.jsonl|step-\d+-\d+-\d+\.npy)")
_MOST_BYTES = 1 << 30  # of one file


@final
@dataclasses.dataclass
class Step:
    """What one worker recorded of a step.

    Attributes:
      number: of the step; the first call is step 1.
      inputs: what is known of each leaf of the arguments.
      structure: of the arguments, if it can be said.
      states: of the iterators that the inputs are positions of, by their numbers.
      positions: of which elements of this worker's own data the arguments are that were kept.
      outside: what something else than the function has done to variables since the step before:
        the name or the number of each, and its value.
      results: the small arrays that the step returned, as `[dtype, shape, bytes]`; a list for each
        leaf, with one for each replica.
      figures: what traps saw: arrays with a row for each replica here.
      names: what their columns are of.
      times: seconds: `idle` between the end of the step before and the call, `step` until it was
        done.
    """

    number: int
    inputs: list[Any] = dataclasses.field(default_factory=list)
    structure: Any = None
    states: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)
    positions: dict[str, int] = dataclasses.field(default_factory=dict)
    outside: list[Any] = dataclasses.field(default_factory=list)
    results: list[Any] | None = None
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    times: dict[str, float] = dataclasses.field(default_factory=dict)
    names: list[str] = dataclasses.field(default_factory=list)
    error: str | None = None


@final
class Recorded:
    """A capsule that was read, and checked."""

    def __init__(self, path: str):
        """
        Raises:
          DataLossError: it is not there, is damaged, or is something else.
        """
        self.path = made_absolute(path)
        content = _manifest(self.path)
        self.step: int = content["step"]
        self.after: int = content["after"]
        self.trap: dict[str, Any] | None = content["trap"]
        self.workers: list[int] = content["workers"]
        self._files: dict[str, list[Any]] = content["files"]
        for name in self._files:
            self._read(name)
        self.has_unsaved = content.get("unsaved") is True
        for name in ("checkpoint", "unsaved") if self.has_unsaved else ("checkpoint",):
            try:
                if not stat.S_ISDIR(os.lstat(os.path.join(self.path, name)).st_mode):
                    raise DataLossError(f"{name} is no folder.")
                require_whole(os.path.join(self.path, name))
            except (CheckpointError, DataLossError, OSError) as error:
                raise DataLossError(f"The capsule {self.path} is damaged: {error}") from None
        self.descriptions = [
            self._object(f"worker-{worker}/{DESCRIPTION}") for worker in self.workers
        ]
        self.steps: list[dict[int, Step]] = []
        for worker in self.workers:
            name = f"worker-{worker}/steps.jsonl"
            try:
                self.steps.append(_steps_of(self._lines(name)))
            except DataLossError as error:
                raise self._unsound(f"{name}: {error}") from None

    @property
    def checkpoint(self) -> str:
        """The path of the checkpoint."""
        return os.path.join(self.path, "checkpoint")

    @property
    def unsaved(self) -> str | None:
        """The path of the values that the checkpoint does not have; None if there are none."""
        return os.path.join(self.path, "unsaved") if self.has_unsaved else None

    @property
    def layout(self) -> dict[str, Any]:
        """What the job ran on."""
        return self.descriptions[0]["layout"]

    def of(self, number: int) -> list[Step]:
        """Returns what each worker recorded of a step; nothing of one that was lost before."""
        if number not in self.steps[0]:
            here = sorted(self.steps[0])
            span = f"It has steps {here[0]} to {here[-1]}" if here else "It has no steps"
            raise DataLossError(
                f"The capsule {self.path} has nothing of step {number} of worker "
                f"{self.workers[0]}. {span}, after a checkpoint of step {self.after}."
            )
        return [steps.get(number) or Step(number) for steps in self.steps]

    def only(self, worker: int) -> Recorded:
        """Returns the same capsule, with what one worker recorded alone."""
        index = self.workers.index(worker)
        found = copy.copy(self)
        found.workers = [worker]
        for name in ("descriptions", "steps"):
            setattr(found, name, [getattr(self, name)[index]])
        return found

    def argument(self, number: int, index: int, replicas: int) -> Any:
        """Returns an argument that was kept, with the parts of the replicas of all workers.

        Args:
          number: of the step.
          index: of the argument.
          replicas: among which its rows are shared out again if there are not as many parts.
        """
        parts: list[Any] = []
        kind = ""
        for worker, step in zip(self.workers, self.of(number), strict=True):
            if index >= len(step.inputs):
                raise self._unsound(f"worker {worker} has no argument {index} of step {number}")
            match step.inputs[index]:
                case ["left out", str(reason)]:
                    raise DataLossError(
                        f"Step {number} cannot be replayed: its argument {index} was not kept, "
                        f"since {reason}. Let it come from an iterator of rx.data, whose position "
                        "is enough, or raise the limit of the Recorder."
                    )
                case described:
                    kind, arrays = self.kept(worker, described)
                    parts += arrays
        return as_argument(kind, parts, replicas)

    def kept(self, worker: int, described: object) -> tuple[str, list[Any]]:
        """Returns the kind of what a worker has kept, and its arrays."""
        match described:
            case ["array", str(kind), [*arrays]]:
                return kind, list(map(from_line, arrays))
            case ["files", str(kind), [*files]]:
                parts: list[Any] = []
                for dtype, shape, name in files:
                    data = self._read(f"worker-{worker}/{name}")
                    parts.append(from_bytes(dtype, shape, _bytes_of(self.path, name, data)))
                return kind, parts
            case other:
                raise self._unsound(f"an argument is {str(other)[:80]}")

    def _unsound(self, what: str) -> DataLossError:
        return DataLossError(f"The capsule {self.path} is not sound: {what}.")

    def _read(self, name: str) -> bytes:
        if name not in self._files:
            raise self._unsound(f"it has no file {name!r}")
        size, checksum = self._files[name]
        data = _regular_file(self.path, name, size)
        if len(data) != size or sum_of(data) != checksum:
            raise DataLossError(
                f"The capsule {self.path} is damaged: {name} is not as it was written."
            )
        return data

    def _object(self, name: str) -> dict[str, Any]:
        found = _json_of(self.path, name, self._read(name))
        layout = found.get("layout")
        counts = ("replicas", "local_replicas", "workers", "devices")
        if not isinstance(layout, dict) or not all(
            type(layout.get(each)) is int and 0 < layout[each] < 1 << 20 for each in counts
        ):
            raise self._unsound(f"{name} has no sound layout")
        if not all(isinstance(found.get(each, {}), dict) for each in ("versions", "function")):
            raise self._unsound(f"{name} has no sound versions or function")
        return found

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return [_json_of(self.path, name, line) for line in self._read(name).splitlines()]


def _steps_of(lines: list[dict[str, Any]]) -> dict[int, Step]:
    states: dict[int, dict[str, Any]] = {}
    steps: dict[int, Step] = {}
    structure: Any = None
    names: list[str] = []
    for line in lines:
        if is_count(line.get("iterator")) and isinstance(line.get("state"), dict):
            states = states | {line["iterator"]: line["state"]}
        structure = line.get("structure", structure)
        number = line.get("step")
        if number is None:
            continue
        if not is_count(number):
            raise DataLossError(f"a step has the number {str(number)[:80]}")
        if "inputs" in line:  # another time, after a restart
            steps[number] = Step(number, structure=structure, states=states)
        step = steps.setdefault(number, Step(number))
        for name, check in _CHECKS.items():
            if name in line:
                try:
                    check(line[name])
                except (DataLossError, TypeError, ValueError) as error:
                    raise DataLossError(f"{name!r} of step {number} is wrong: {error}") from None
                setattr(step, name, line[name])
        if "inputs" in line and structure is not None and leaves_in(structure) != len(step.inputs):
            raise DataLossError(f"step {number} has {len(step.inputs)} arguments")
        if isinstance(line.get("names"), list):
            names = [str(each) for each in line["names"]]
        step.names = names
    return steps


def _check_inputs(inputs: list[Any]) -> None:
    for each in inputs:
        match each:
            case ["element", iterator, position, leaf]:
                is_sound = all(map(is_count, (iterator, position, leaf))) and position > 0
            case ["iterator", iterator, position]:
                is_sound = is_count(iterator) and is_count(position)
            case ["value", value]:
                is_sound = value is None or isinstance(value, bool | int | str)
            case ["float", str(text)]:
                is_sound = isinstance(float.fromhex(text), float)
            case ["complex", str(real), str(imaginary)]:
                is_sound = isinstance(complex(*map(float.fromhex, (real, imaginary))), complex)
            case ["bytes", str(text)]:
                is_sound = isinstance(bytes.fromhex(text), bytes)
            case ["object" | "left out", str()]:
                is_sound = True
            case ["array", str(), [*arrays]]:
                is_sound = bool(list(map(from_line, arrays)))
            case ["files", str(), [*files]]:
                is_sound = files != [] and all(
                    isinstance(file, list)
                    and len(file) == 3
                    and isinstance(file[2], str)
                    and ARRAY.fullmatch(file[2])
                    for file in files
                )
            case _:
                is_sound = False
        if not is_sound:
            raise DataLossError(f"an argument is {str(each)[:80]}")


def _check_outside(outside: list[Any]) -> None:
    for each in outside:
        match each:
            case [str() | int() as name, ["array" | "files" | "left out", *_] as value]:
                _check_inputs([value])
                is_sound = isinstance(name, str) or is_count(name)
            case _:
                is_sound = False
        if not is_sound:
            raise DataLossError(f"a variable is {str(each)[:80]}")


def _check_results(results: list[list[Any]]) -> None:
    for parts in results:
        if not isinstance(parts, list) or not parts:
            raise DataLossError(f"a result is {str(parts)[:80]}")
        list(map(from_line, parts))


def _check_figures(figures: dict[str, Any]) -> None:
    for name, figure in figures.items():
        if np.ndim(from_line(figure)) != 2:
            raise DataLossError(f"{name!r} has no row for each replica")


def _check_times(times: dict[str, Any]) -> None:
    if not all(type(each) in (int, float) for each in times.values()):
        raise DataLossError("not all are numbers")


def _of(kind: type, check: Callable[[Any], object]) -> Callable[[Any], object]:
    def checked(value: object) -> None:
        if not isinstance(value, kind):
            raise DataLossError(f"it is {str(value)[:80]}")
        check(value)

    return checked


_CHECKS = {
    "inputs": _of(list, _check_inputs),
    "outside": _of(list, _check_outside),
    "results": _of(list, _check_results),
    "figures": _of(dict, _check_figures),
    "times": _of(dict, _check_times),
    "positions": _of(dict, _check_times),
    "error": _of(str, len),
}


def _json_of(path: str, name: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataLossError(
            f"The capsule {path} is not sound: {name} has lines that are no objects."
        )
    return found


def _bytes_of(path: str, name: str, data: bytes) -> bytes:
    """Returns the bytes in an .npy file, which is no pickle, and has as many as it says."""
    file = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("it is of another version")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        found = file.read()
        if dtype != np.uint8 or shape != (len(found),):
            raise ValueError(f"it says {dtype}{list(shape)} of {len(found)} bytes")
    except ValueError as error:
        raise DataLossError(f"The capsule {path} has no sound array in {name}: {error}.") from None
    return found


def _regular_file(path: str, name: str, most: int = _MOST_BYTES) -> bytes:
    file = os.path.join(path, name)
    try:
        if stat.S_ISLNK(os.lstat(os.path.dirname(file)).st_mode):
            raise DataLossError(f"{os.path.dirname(file)} is no folder.")
        with open_regular(file) as opened:
            return opened.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise DataLossError(f"The capsule {path} is damaged: {name} is missing.") from None
    except DataLossError as error:
        raise DataLossError(f"The capsule {path} is not sound: {error}") from None


def _manifest(path: str) -> dict[str, Any]:
    if not os.path.isdir(path) or not os.path.exists(os.path.join(path, MANIFEST)):
        what = "has no file capsule.json" if os.path.isdir(path) else "is no folder"
        raise DataLossError(
            f"There is no capsule at {path}: it {what}. Name the folder that the trap printed, or "
            "what Recorder.save() returned."
        )
    data = _regular_file(path, MANIFEST, 64 << 20)
    body, _, checksum = data.rstrip(b"\n").rpartition(b"\n")
    if sum_of(body).encode() != checksum:
        raise DataLossError(f"The capsule {path} is damaged: {MANIFEST} is not as it was written.")
    content = _json_of(path, MANIFEST, body)
    if content.get("format") != FORMAT:
        raise DataLossError(f"{path} is no capsule: its {MANIFEST} is of something else.")
    if content.get("version") != VERSION:
        raise DataLossError(
            f"The capsule {path} has version {content.get('version')!r} of the format, and this "
            f"replicax reads version {VERSION}. Use the replicax that wrote it."
        )
    files, workers, trap = content.get("files"), content.get("workers"), content.get("trap")
    is_sound = (
        is_count(content.get("step"))
        and is_count(content.get("after"))
        and content["after"] < content["step"]
        and isinstance(workers, list)
        and workers
        and all(is_count(each) and each < 1 << 20 for each in workers)
        and isinstance(files, dict)
        and all(_NAME.fullmatch(name) for name in files)
        and all(
            isinstance(each, list)
            and len(each) == 2
            and type(each[0]) is int
            and 0 <= each[0] <= _MOST_BYTES
            and isinstance(each[1], str)
            for each in files.values()
        )
        and (trap is None or isinstance(trap, dict))
    )
    if not is_sound:
        raise DataLossError(f"The capsule {path} is not sound: {MANIFEST} lacks what it must have.")
    return content
