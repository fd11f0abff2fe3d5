"""What a fork does to be a program: it has JAX and replicax, and begins as `python` would.

`tests/forks.py` has the processes that fork.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import runpy
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.forked import READ_BY_IMPORTS, SETTINGS

ROOT = Path(__file__).resolve().parent.parent
_CACHE = "JAX_COMPILATION_CACHE_DIR"
# What most programs import besides, or load when they use it.
_IMPORTED_BY_MOST = (
    "optax",
    "replicax.debug",
    "replicax.distribute.coordinator",
    "replicax._src.checkpoints",
    "replicax._src.cli.main",
    "replicax._src.watching",
)


def environment_of_imports() -> dict[str, str]:
    """Returns the variables of a process that imports for others."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(READ_BY_IMPORTS)}
    return {**inherited, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def import_all(names: list[str]) -> dict[str, str]:
    """Imports replicax and more; returns the variables that the imports have set."""
    before = dict(os.environ)
    import replicax  # noqa: F401
    from tests import quick_compiles, quick_imports  # noqa: F401

    quick_imports.set_here()
    for name in (*_IMPORTED_BY_MOST, *names):
        importlib.import_module(name)
    # A fork does not look for garbage in what was imported, and does not copy it for that.
    gc.collect()
    gc.freeze()
    return {name: text for name, text in os.environ.items() if name not in before}


def become(request: dict[str, Any], files: Sequence[int], executable: str) -> None:
    """Makes this fork what `python <arguments>` would be before it runs the program.

    Args:
      request: has its `folder` and its `environment`.
      files: its input, output and errors.
      executable: what it starts other programs with.
    """
    import jax

    from tests import quick_compiles

    os.setsid()
    os.chdir(request["folder"])
    for target, source in enumerate(files):
        os.dup2(source, target)
    for each in files:
        os.close(each)
    sys.executable = executable
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    if "PYTHONUNBUFFERED" in os.environ:
        raw = io.FileIO(1, "w", closefd=False)
        sys.stdout = sys.__stdout__ = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    for name, kind in SETTINGS.items():
        if name in os.environ:
            jax.config.update(name.lower(), kind(os.environ[name]))
    if (folder := os.environ.get(quick_compiles.FOLDER)) and _CACHE not in os.environ:
        quick_compiles.share_programs(folder)
        quick_compiles.share_contexts()
    quick_compiles.share_between_devices()
    if options := os.environ.get("PYTHONWARNINGS"):
        warnings._processoptions(options.split(","))  # pyright: ignore[reportAttributeAccessIssue]
    own = {str(Path(__file__).parent), str(ROOT / "src"), str(ROOT)}
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*filter(None, given), *(path for path in sys.path if path not in own)]


def run_program(arguments: list[str]) -> None:
    """Runs the program as the interpreter does."""
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        code = compile(rest[0], "<string>", "exec")
    else:
        sys.argv = arguments
        path = Path(first).resolve()
        if path.is_dir():
            runpy.run_path(first, run_name="__main__")
            return
        sys.path.insert(0, str(path.parent))
        main.__file__ = str(path)
        code = compile(path.read_bytes(), str(path), "exec")
    sys.modules["__main__"] = main
    exec(code, vars(main))
