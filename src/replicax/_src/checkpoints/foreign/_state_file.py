"""The file `checkpoint` in a directory of TensorFlow's checkpoints: which is the latest."""

from __future__ import annotations

import ast
import os
import re

from replicax._src.checkpoints.foreign._bundle import INDEX

_FILE = "checkpoint"
_MOST_BYTES = 1 << 20
_LINE = re.compile(r'^((?:all_)?model_checkpoint_paths?)\s*:\s*("(?:[^"\\\n]|\\.)*")')


def is_bundle(path: str) -> bool:
    """Returns whether there is a checkpoint of TensorFlow with this prefix."""
    return os.path.isfile(path + INDEX)


def latest_bundle(directory: str) -> str | None:
    """Returns the prefix of the latest checkpoint that TensorFlow wrote in a directory, or None."""
    paths = _paths_in(directory, "model_checkpoint_path")
    return paths[-1] if paths else None


def bundles_in(directory: str) -> list[str]:
    """Returns the prefixes of the checkpoints that TensorFlow lists in a directory."""
    return _paths_in(directory, "all_model_checkpoint_paths")


def _paths_in(directory: str, field: str) -> list[str]:
    path = os.path.join(directory, _FILE)
    if not os.path.isfile(path):  # a pipe would be waited for
        return []
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    found = []
    for line in lines:
        match = _LINE.match(line)
        if match is None or match[1] != field:
            continue
        try:
            path = str(ast.literal_eval(match[2]))
        except (SyntaxError, ValueError):
            continue
        path = os.path.join(directory, path)
        # A directory that was moved names its old place.
        here = os.path.join(directory, os.path.basename(path))
        path = path if is_bundle(path) else here
        if is_bundle(path):
            found.append(path)
    return found
