"""How the programs of tests compile in half the time and compute the same.

Compiling is more than half of what the tests take, and each program runs once or twice: code that
is fast is worth nothing to them. Many tests compile the same programs, also in the other processes
of a run and in the next run: what one has compiled, the others read, and what was compiled for one
device, the other devices. JAX's keys have its version, the flags and the machine in them.
`REPLICAX_TEST_OPTIMIZED=1` compiles as users do.
"""

import atexit
import functools
import inspect
import os
import shutil
import tempfile
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
# XLA ends a process that names a flag it does not know. Later versions have no other emitters. Who
# records what TensorFlow does has no JAX: no function of here imports it before it is used.
try:
    if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
        _FLAGS.append("--xla_cpu_use_fusion_emitters=false")
except PackageNotFoundError:
    _FLAGS.clear()

FOLDER = "REPLICAX_TEST_PROGRAMS"
"""The variable with the folder of compiled programs, which stay for the next run."""

_FOLDER_OF_RUN = "REPLICAX_TEST_FOLDER_OF_RUN"
# Below pytest's cache, which `make clean` removes.
_KEPT = Path(__file__).resolve().parent.parent / ".pytest_cache" / "programs"
_MOST = 50_000  # programs that are kept, of about 5 kB each; a run of all tests compiles a quarter

_AS_USERS_DO = "REPLICAX_TEST_OPTIMIZED" in os.environ or "REPLICAX_TEST_PLATFORM" in os.environ
XLA_FLAGS = "" if _AS_USERS_DO else " ".join(_FLAGS)
"""For the environment of a process; an empty text where nothing is to be said."""


def set_here() -> None:
    """Sets the flags for this process, before it compiles, and for the programs that it starts."""
    given = os.environ.get("XLA_FLAGS", "")
    if XLA_FLAGS not in given:
        os.environ["XLA_FLAGS"] = f"{XLA_FLAGS} {given}".strip()
    if _FOLDER_OF_RUN not in os.environ:  # the processes of pytest-xdist inherit it
        os.environ[_FOLDER_OF_RUN] = _make_folder()
    if not _AS_USERS_DO:
        if FOLDER not in os.environ:
            os.environ[FOLDER] = str(_KEPT) if _limit(_KEPT) else os.environ[_FOLDER_OF_RUN]
        share_programs(os.environ[FOLDER])
        share_contexts()


def share_programs(folder: str) -> None:
    """Lets this process read what others have compiled, and write what it compiles."""
    import jax

    from replicax._src import _jax_cache

    # Not by variables of JAX: programs that tests start do not all write whole entries.
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    _jax_cache.let_every_process_write()
    share_between_devices()


@functools.cache
def share_between_devices() -> None:
    """Lets the programs of one device have the same key on each.

    Replicas that run eagerly compile each operation for the device of each: reading it takes a
    fifth of the time. What is read runs where the process that reads it asks for.
    """
    from jax._src import cache_key

    # As for contexts below: nothing public does it, and nothing is lost without it.
    hash_options = getattr(cache_key, "_hash_serialized_compile_options", None)
    stripped = "strip_device_assignment"
    if hash_options is None or stripped not in inspect.signature(hash_options).parameters:
        return

    def hash_without_device(hashed: Any, options: Any, **given: Any) -> None:
        assignment = options.device_assignment
        if assignment and assignment.computation_count() * assignment.replica_count() == 1:
            given[stripped] = True
        hash_options(hashed, options, **given)

    cache_key._hash_serialized_compile_options = hash_without_device


def share_contexts() -> None:
    """Lets the programs of a thread be lowered in one context of MLIR after the other.

    JAX makes one for each program, which takes longer than to lower a small one.
    """
    from jax._src.interpreters import mlir

    # Nothing public does it, and nothing is lost where a later JAX does it otherwise.
    if make := getattr(mlir, "make_ir_context", None):
        mlir.make_ir_context = _Contexts(make).get


class _Contexts(threading.local):
    """Contexts of MLIR, for one thread each."""

    _PROGRAMS = 100  # in one context: it keeps their types and constants

    def __init__(self, make: Any) -> None:
        self._make = make
        self._left = 0

    def get(self) -> Any:
        if self._left == 0:
            self._context = self._make()
            self._left = self._PROGRAMS
        self._left -= 1
        return self._context


def folder_of_this_run() -> Path:
    """Returns a folder that all processes of this run of tests share, and that is gone after it."""
    return Path(os.environ[_FOLDER_OF_RUN])


def programs_of_this_run() -> dict[str, str]:
    """Returns variables for workers, which read and write whole entries once they have joined.

    One that is killed before may leave half an entry: theirs do not stay for the next run.
    """
    if _AS_USERS_DO or _FOLDER_OF_RUN not in os.environ:  # a program of ours outside of pytest
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder_of_this_run()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def _limit(folder: Path, most: int = _MOST) -> bool:
    """Makes a folder, or begins it again when it has become too large; False if it cannot be."""
    try:
        if folder.exists() and len(os.listdir(folder)) > most:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _make_folder() -> str:
    """Makes a folder for this run of tests alone."""
    folder = tempfile.mkdtemp(prefix="replicax-test-programs-")
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:  # and not in a fork
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
