"""Paths and names that users give, checked before anything is done with them."""

from __future__ import annotations

import os

from replicax._src import _local_path


def as_path(given: object, what: str) -> str:
    """Returns the path that was given as text.

    Args:
      given: by the user.
      what: the call and its argument, for the error.
    """
    path = _local_path.as_path(given, what)
    if "\\" in _local_path.made_absolute(path):
        # TensorStore would write the arrays somewhere else.
        raise ValueError(
            f"`{what}` must be a path without backslashes, which are taken for slashes when arrays "
            f"are stored; got {path!r}. Rename the folder."
        )
    return path


def as_target(given: object, what: str) -> str:
    """Returns the path of a checkpoint that is to be written, or the beginning of that path."""
    path = as_path(given, what)
    if not path or os.path.basename(path) in (".", ".."):
        raise ValueError(
            f"`{what}` must end in the name of the checkpoint; got {path!r}. Write, for example, "
            f"{os.path.join(path, 'ckpt')!r}."
        )
    return path


def require_below(path: str) -> None:
    """`ValueError` if a checkpoint would take the place of the working directory or of a parent."""
    try:
        here, there = os.path.realpath(os.getcwd()), os.path.realpath(path)
    except FileNotFoundError:
        return  # somebody has removed the working directory
    if os.path.commonpath([here, there]) == there:
        raise ValueError(
            f"A checkpoint cannot be written to {path!r}: the program works in {here!r}, which "
            f"it would replace. Write to a new folder, as {os.path.join(path, 'ckpt')!r}."
        )


def require_plain_name(name: object) -> None:
    """`checkpoint_name` of a manager must be a name, and not a path."""
    if not isinstance(name, str):
        raise TypeError(f'`checkpoint_name` must be a text, as "ckpt"; got {name!r}.')
    if not name or any(mark in name for mark in "/\\\0"):  # TensorStore takes "\\" for "/"
        raise ValueError(
            f"`checkpoint_name` must be a name without '/' and '\\'; got {name!r}. Checkpoints are "
            '`{directory}/{checkpoint_name}-{number}`: write CheckpointManager(checkpoint, "run/'
            'checkpoints", checkpoint_name="ckpt").'
        )
