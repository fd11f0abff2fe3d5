"""A capsule: what is needed to run the last steps of a job again, in one folder.

    capsule.json              what happened, the layout of the job, and a checksum of every file
    worker-0/recording.json   versions, and the layout as this worker saw it
    worker-0/steps.jsonl      the steps since the checkpoint: inputs and results
    worker-0/step-7-0-0.npy   inputs that cannot be read again, if they are kept
    checkpoint/               the nearest one before the step
    unsaved/                  variables that the step changes, and the checkpoint does not have

Nothing in it is code, and nothing is unpickled. How it is read is in `_recorded.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Generator
from typing import Any, TypeGuard

from replicax._src._errors import CheckpointError, DataLossError
from replicax._src.checkpoints import link_whole, require_whole
from replicax._src.recording._ring import (
    ARRAY,
    DESCRIPTION,
    head_of,
    lines_of,
    open_regular,
    segments_in,
    unsaved_of,
    write_private,
)

MANIFEST = "capsule.json"
FORMAT, VERSION = "replicax capsule", 1
_WORKER = re.compile(r"worker-(\d{1,6})")


def is_count(value: object) -> TypeGuard[int]:
    """Returns whether a value of JSON is a number of something."""
    return type(value) is int and 0 <= value < 1 << 53


def write_capsule(
    recording: str, target: str, step: int, trap: dict[str, Any] | None = None
) -> str:
    """Makes a capsule of what was recorded up to a step; returns its path.

    Args:
      recording: the folder of the recording, with a folder for each worker.
      target: the path of the capsule, which must not exist.
      step: the last step that is to be replayed.
      trap: what was noticed there, if that is why it is made.

    Raises:
      DataLossError: the step cannot be replayed from what is there.
      FileExistsError: there is something at `target`.
    """
    workers = _workers_in(recording)
    if not workers:
        raise DataLossError(f"{recording} is no recording: there is no folder worker-0 in it.")
    first = min(workers)
    workers = _of_this_job(os.path.join(recording, f"worker-{first}"), workers)
    after, checkpoint, unsaved = _nearest_checkpoint(
        os.path.join(recording, f"worker-{first}"), step
    )
    os.mkdir(target, 0o700)  # one that is there is somebody else's
    try:
        files: dict[str, bytes] = {}
        for worker in workers:
            folder = os.path.join(recording, f"worker-{worker}")
            for name, data in _part_of(folder, after, step, worker == first).items():
                files[f"worker-{worker}/{name}"] = data
        for name, data in files.items():
            os.makedirs(os.path.dirname(os.path.join(target, name)), mode=0o700, exist_ok=True)
            write_private(os.path.join(target, name), data)
        link_whole(checkpoint, os.path.join(target, "checkpoint"))
        if unsaved is not None:
            link_whole(unsaved, os.path.join(target, "unsaved"))
        content = {
            "format": FORMAT,
            "version": VERSION,
            "step": step,
            "after": after,
            "trap": trap,
            "workers": workers,
            "unsaved": unsaved is not None,
            "files": {name: [len(data), sum_of(data)] for name, data in files.items()},
        }
        body = json.dumps(content).encode()
        write_private(os.path.join(target, MANIFEST), body + b"\n" + sum_of(body).encode() + b"\n")
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


def sum_of(data: bytes) -> str:
    """Returns the checksum of a file."""
    return hashlib.sha256(data).hexdigest()


def _workers_in(recording: str) -> list[int]:
    try:
        matches = map(_WORKER.fullmatch, os.listdir(recording))
    except (FileNotFoundError, NotADirectoryError):
        raise DataLossError(f"There is no recording at {recording}.") from None
    return sorted(int(match[1]) for match in matches if match)


def last_step_of(recording: str) -> int | None:
    """Returns the last step in the folder of a recording; None if it is none, or has none."""
    folder = os.path.join(recording, "worker-0")
    if os.path.exists(os.path.join(recording, MANIFEST)) or not os.path.isdir(folder):
        return None
    for segment in reversed(segments_in(folder)):
        steps = [_number_of(line) for line in lines_of(folder, segment) if "inputs" in line]
        if steps:
            return steps[-1]
    return None


def _of_this_job(folder: str, workers: list[int]) -> list[int]:
    """Returns the workers that the job has now; an earlier one in the folder had more, perhaps."""
    try:
        with open_regular(os.path.join(folder, DESCRIPTION)) as file:
            count = json.load(file)["layout"]["workers"]
    except (OSError, ValueError, KeyError, TypeError):
        return workers
    return [each for each in workers if not is_count(count) or each < count]


def _nearest_checkpoint(folder: str, step: int) -> tuple[int, str, str | None]:
    """Returns the last step that the checkpoint before `step` has, its path, and what it lacks."""
    reasons: list[str] = []
    for segment in reversed(segments_in(folder)):
        after, path = head_of(folder, segment)
        if after is None or path is None or after >= step:
            continue
        try:
            require_whole(path)
            unsaved = unsaved_of(folder, segment)
            if unsaved is not None:
                require_whole(unsaved)
        except (CheckpointError, OSError) as error:
            reasons.append(str(error))
            continue
        return after, path, unsaved
    why = f" ({reasons[0]})" if reasons else ""
    raise DataLossError(
        f"Step {step} cannot be replayed: there is no checkpoint from before it{why}. Keep more of "
        "them: max_to_keep of the CheckpointManager."
    )


def _part_of(folder: str, after: int, step: int, is_first: bool) -> dict[str, bytes]:
    """Returns the files of one worker, by name; the first one has the step for sure."""
    segments = segments_in(folder)
    heads = {each: head_of(folder, each)[0] for each in segments}
    start = max((each for each in segments if heads[each] == after), default=None)
    lines: list[dict[str, Any]] = []
    for segment in segments:
        if start is not None and segment >= start:
            lines += [line for line in lines_of(folder, segment) if _number_of(line) <= step]
    with open_regular(os.path.join(folder, DESCRIPTION)) as file:
        found = {DESCRIPTION: file.read()}
    told = [line for line in lines if "checkpoint" not in line]  # paths are nobody's business
    found["steps.jsonl"] = b"".join(json.dumps(each).encode() + b"\n" for each in told)
    for line in lines:
        for name in _files_of(line):
            try:
                with open_regular(os.path.join(folder, name)) as file:
                    found[name] = file.read()
            except FileNotFoundError:
                raise DataLossError(
                    f"Step {step} cannot be replayed: {os.path.join(folder, name)} is missing."
                ) from None
    if is_first and not any(_number_of(line) == step and "inputs" in line for line in lines):
        raise DataLossError(
            f"Step {step} is not in the recording {os.path.dirname(folder)}, after the checkpoint "
            f"of step {after}: it was not called, or not written."
        )
    return found


def _number_of(line: dict[str, Any]) -> int:
    number = line.get("step", 0)
    return number if type(number) is int else 0


def _files_of(line: dict[str, Any]) -> Generator[str]:
    """Yields the files that the inputs of a step are in, and values of variables before it."""
    found: list[Any] = []
    for name in ("inputs", "outside"):
        each = line.get(name)
        found += each if isinstance(each, list) else []
    for described in found:
        match described:
            case [str() | int(), [*_] as value]:
                yield from _files_of({"inputs": [value]})
            case ["files", _, [*files]]:
                for each in files:
                    match each:
                        case [_, _, str(name)] if ARRAY.fullmatch(name):
                            yield name
                        case _:
                            raise DataLossError(f"A recording has no sound array: {each!r:.80}.")
            case _:
                pass
