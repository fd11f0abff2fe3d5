"""The text in the environment variable TF_CONFIG: read it, and say exactly what is wrong with it.

TensorFlow takes nearly everything here and fails later, or hangs. What is checked is form and types
only; whether the cluster makes sense is asked in `_view.py`, for every resolver.
"""

from __future__ import annotations

import json
import operator
import os
import re
from typing import Any, SupportsIndex

from replicax._src._errors import ClusterConfigError

VARIABLE = "TF_CONFIG"
_MOST_DIGITS = 18
_DIGITS = re.compile(rf"[0-9]{{1,{_MOST_DIGITS}}}")
EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)


def read_tf_config() -> dict[str, Any]:
    """Returns what TF_CONFIG says, or {} if it is not set.

    Raises:
      ClusterConfigError: If it is not JSON, or its parts do not have the types that they must have.
    """
    text = os.environ.get(VARIABLE)
    return {} if text is None else parse_tf_config(text)


def parse_tf_config(text: str) -> dict[str, Any]:
    """Returns the content of a TF_CONFIG, with its form and types checked.

    Raises:
      ClusterConfigError: If it is not JSON, or its parts do not have the types that they must have.
    """
    if not text.strip():
        raise ClusterConfigError(
            f"TF_CONFIG is set, but empty. Unset it to train with one worker, or write {EXAMPLE}."
        )
    try:
        config = json.loads(text, object_pairs_hook=_no_key_twice, parse_int=_whole_number)
    except json.JSONDecodeError as error:
        raise ClusterConfigError(_not_json(text, error)) from None
    except RecursionError:
        raise ClusterConfigError(
            f"TF_CONFIG has too many lists or objects inside each other. Write {EXAMPLE}."
        ) from None
    if not isinstance(config, dict):
        raise ClusterConfigError(
            f"TF_CONFIG must be a JSON object; got {_kind(config)}: {_short(config)}. "
            f"Write {EXAMPLE}."
        )
    _check_cluster(config.get("cluster", {}))
    _check_task(config.get("task", {}))
    return config


def task_index(value: object, what: str) -> int:
    """Returns the index of a task as a number; digits in a string will do, as in TensorFlow.

    Raises:
      ClusterConfigError: If it is not a whole number of 0 or more.
    """
    index: int | None = None
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        index = int(value)
    elif isinstance(value, SupportsIndex) and not isinstance(value, bool):
        index = operator.index(value)
    if index is None or not 0 <= index < 10**_MOST_DIGITS:
        raise ClusterConfigError(
            f"{what} must be a whole number from 0; got {_short(value)}. Write the place of this "
            "worker in its job's list: 0 for the first."
        )
    return index


def _check_cluster(cluster: object) -> None:
    if not isinstance(cluster, dict):
        raise ClusterConfigError(
            f"'cluster' in TF_CONFIG must be an object from job names to lists of addresses; got "
            f"{_kind(cluster)}: {_short(cluster)}. Write {EXAMPLE}."
        )
    for job, tasks in cluster.items():
        if isinstance(tasks, list):
            named = {f"{job!r}[{i}]": address for i, address in enumerate(tasks)}
        elif isinstance(tasks, dict):
            named = {f"{job!r}[{i}]": address for i, address in tasks.items()}
            for i in tasks:
                task_index(i, f"The index of a task of {job!r} in TF_CONFIG")
        else:
            hint = f" Write [{json.dumps(tasks)}]." if isinstance(tasks, str) else ""
            raise ClusterConfigError(
                f"The job {job!r} in TF_CONFIG must be a list of addresses; got {_kind(tasks)}: "
                f"{_short(tasks)}.{hint}"
            )
        for name, address in named.items():
            if not isinstance(address, str):
                raise ClusterConfigError(
                    f"The address {name} in TF_CONFIG must be a string 'host:port'; got "
                    f"{_kind(address)}: {_short(address)}."
                )


def _check_task(task: object) -> None:
    if not isinstance(task, dict):
        raise ClusterConfigError(
            f"'task' in TF_CONFIG must be an object with 'type' and 'index'; got {_kind(task)}: "
            f'{_short(task)}. Write "task": {{"type": "worker", "index": 0}}.'
        )
    if "type" in task and not isinstance(task["type"], str):
        raise ClusterConfigError(
            f"The 'type' of the task in TF_CONFIG must be a string such as \"worker\"; got "
            f"{_kind(task['type'])}: {_short(task['type'])}."
        )
    if "index" in task:
        task_index(task["index"], "The 'index' of the task in TF_CONFIG")
    elif task:
        hint = " ('id' is not read.)" if "id" in task else ""
        raise ClusterConfigError(
            f"The task in TF_CONFIG has no 'index': {_short(task)}.{hint} Write "
            f'"task": {{"type": "worker", "index": 0}}.'
        )


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ClusterConfigError(
            f"TF_CONFIG has a number of {len(digits)} digits, {digits[:20]}... The index of a task "
            f"is the place of a worker in its job's list: write {EXAMPLE}."
        )
    return int(digits)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ClusterConfigError(
                f"TF_CONFIG has {key!r} twice in one object; JSON would silently drop the first, "
                f"{_short(seen[key])}. Write it once, with all that belongs to it."
            )
        seen[key] = value
    return seen


def _not_json(text: str, error: json.JSONDecodeError) -> str:
    line = text.splitlines()[error.lineno - 1] if error.lineno <= len(text.splitlines()) else ""
    column = error.colno - 1
    start = max(0, column - 40)
    shown = line[start : column + 40]
    where = f"    {shown}\n    {' ' * (column - start)}^"
    if "'" in text and '"' not in text:
        hint = "JSON has double quotes: make the text with json.dumps(...), not with str(...)."
    elif '"' not in text:
        hint = "It has no quotes; in a shell, put the whole text in single quotes."
    elif text.count("{") > text.count("}") or text.count("[") > text.count("]"):
        hint = "It has more opening than closing brackets: it may have been cut off."
    else:
        hint = "Make the text with json.dumps(...)."
    return (
        f"TF_CONFIG is not JSON: {error.msg}, at character {error.pos} (line {error.lineno}):\n"
        f"{where}\n{hint} An example: {EXAMPLE}."
    )


def _kind(value: object) -> str:
    """Returns the name of a value's type, in the words of JSON."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    names |= {list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _short(value: object) -> str:
    try:
        shown = repr(value)
    except (RecursionError, ValueError):  # too deep, or too long a number
        return f"one too large to show ({type(value).__name__})"
    return shown if len(shown) <= 120 else shown[:117] + "..."
