"""Compiled programs on the disk, so that a restarted program does not compile again."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import jax

from replicax._src import _jax_cache


def keep_compiled_programs(directory: str | os.PathLike[str]) -> None:
    """Keeps every program that is compiled from now on, and reads those that are there.

    A program that is started again, after a failure or for the next experiment, then reads in a few
    hundredths of a second what took seconds to compile. This is JAX's persistent compilation
    cache, but with all programs, however quickly they were compiled, and written by every worker.
    Put it beside the checkpoints, and call this first:

    >>> import replicax as rx
    >>> rx.config.keep_compiled_programs("runs/1/programs")  # doctest: +SKIP

    Entries depend on what is compiled, the versions of JAX and XLA, and the devices. Nothing is
    deleted. Programs are machine code: whoever can write to the
    directory decides what this process runs.

    Args:
      directory: made if it is not there. It must belong to you, and nobody else may write to it.

    Raises:
      PermissionError: it belongs to another user, others may write to it, or have.
      NotADirectoryError: it is a file.
    """
    path = Path(directory).expanduser().resolve()  # not a link that others could turn elsewhere
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(
            f"keep_compiled_programs: {str(path)!r} is a file. Name a directory, for example one "
            "beside the checkpoints."
        )
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    _require_own(path)
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    _jax_cache.let_every_process_write()
    _jax_cache.open_again()


def _require_own(path: Path) -> None:
    if not hasattr(os, "getuid"):  # Windows
        return
    own = (os.getuid(), 0)
    found = path.stat()
    if found.st_uid not in own or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"keep_compiled_programs: others can write to {str(path)!r}, and what lies there is "
            "run as it is. Name a directory of your own, or take their permission away: chmod "
            f"go-w {path}"
        )
    with os.scandir(path) as entries:
        for each in entries:
            with contextlib.suppress(FileNotFoundError):  # another worker is at work
                if each.stat(follow_symlinks=False).st_uid not in own:
                    raise PermissionError(
                        f"keep_compiled_programs: {each.path!r} belongs to another user, who may "
                        "have written anything into it, and what lies there is run as it is. "
                        "Remove it, or name a new directory."
                    )
