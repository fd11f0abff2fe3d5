"""A process that has imported JAX and replicax, and forks for each program that is to be run.

The imports take longer than most programs of pages and examples. JAX starts no thread before its
devices are used, so that a fork has everything. A program sees what it would in a process of its
own: its arguments, folder, variables and `__main__`. Only the seed of hashes is that of all others:
programs of which one must understand the files of another are better run on their own. For programs
with Keras, whose import takes twice as long, there is another such process.

As a program, this file is that process: it reads requests from its standard input, and answers on
its standard output. Its arguments are the modules that it imports besides.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import importlib.util
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_CACHE = "JAX_COMPILATION_CACHE_DIR"
# What JAX reads when it is imported, and how it is said later.
_SETTINGS = {
    "JAX_PLATFORMS": str,
    "JAX_NUM_CPU_DEVICES": int,
    _CACHE: str,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": float,
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": int,
}
# What most programs import besides, or load when they use it.
_IMPORTED_BY_MOST = (
    "optax",
    "replicax.debug",
    "replicax.distribute.coordinator",
    "replicax._src.checkpoints",
    "replicax._src.cli.main",
    "replicax._src.watching",
)
_READ_BY_IMPORTS = ("JAX_", "PYTHON")
_MAY_DIFFER = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS")


# In the tests.


def run(
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    output: Path,
    timeout: float,
    imports: tuple[str, ...] = (),
) -> int | None:
    """Runs `python <arguments>` in a fork of the warm process, which writes to the file `output`.

    The process has `imports` behind it too, besides JAX and replicax.

    Returns:
      The exit status; None if it must be run in a process of its own.
    """
    has_options = arguments[0].startswith("-") and arguments[0] not in ("-c", "-m")
    if has_options or not can_be_forked(environment):
        return None
    request = {
        "arguments": arguments,
        "folder": str(folder),
        "environment": environment,
        "output": str(output),
        "timeout": timeout,
    }
    answer = _warm_process(imports).ask(request)
    if "timeout" in answer:
        raise subprocess.TimeoutExpired([sys.executable, *arguments], timeout)
    return answer["status"]


def keras_if_safe() -> tuple[str, ...]:
    """Returns an import of Keras, unless it imports TensorFlow, whose threads no fork has."""
    return ("keras",) if importlib.util.find_spec("tensorflow") is None else ()


def can_be_forked(environment: dict[str, str]) -> bool:
    """Says whether a fork can be what a process of its own would be with these variables."""
    names = {name for name in environment if name.startswith(_READ_BY_IMPORTS)}
    return hasattr(os, "fork") and not names - {*_SETTINGS, *_MAY_DIFFER}


def environment_of_imports() -> dict[str, str]:
    """Returns the variables of a process that imports for others."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_READ_BY_IMPORTS)}
    return {**inherited, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


@functools.cache
def _warm_process(imports: tuple[str, ...]) -> _Client:
    return _Client(imports)


class _Client:
    def __init__(self, imports: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment_of_imports(),
            text=True,
        )
        atexit.register(self._process.communicate)  # it ends with the requests

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        return json.loads(answers.readline())


# In the warm process.


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


def _serve() -> dict[str, Any]:
    """Answers requests until there are no more; in a fork, returns the request to be met."""
    # What the imports have set, such as how much XLA says, they would set for the program too.
    added = import_all(sys.argv[1:])
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            request["environment"] = {**added, **request["environment"]}
            return request
        print(json.dumps(_await(child, request["timeout"])), flush=True)
    os._exit(0)


def _await(child: int, timeout: float) -> dict[str, Any]:
    end = time.monotonic() + timeout
    pause = 0.001
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return {"status": os.waitstatus_to_exitcode(status)}
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"timeout": timeout}
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)


def become(request: dict[str, Any], stdout: int, stderr: int) -> None:
    """Makes this fork what `python <arguments>` would be before it runs the program.

    Args:
      request: has its `folder` and its `environment`.
      stdout: where it writes.
      stderr: where it writes what it says about itself.
    """
    import jax

    from tests import quick_compiles

    os.setsid()
    os.chdir(request["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    for each in {nothing, stdout, stderr}:
        os.close(each)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    if "PYTHONUNBUFFERED" in os.environ:
        raw = io.FileIO(1, "w", closefd=False)
        sys.stdout = sys.__stdout__ = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    for name, kind in _SETTINGS.items():
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


if __name__ == "__main__":
    _request = _serve()
    _output = os.open(_request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    become(_request, _output, _output)
    run_program(_request["arguments"])
