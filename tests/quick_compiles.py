"""How the programs of tests compile in half the time and compute the same.

Compiling is more than half of what the tests take, and each program runs once or twice: code that
is fast is worth nothing to them. Many tests compile the same programs, also in the other processes
of a run: what one has compiled, the others read. `REPLICAX_TEST_OPTIMIZED=1` compiles as users do.
"""

import atexit
import os
import shutil
import tempfile
from importlib.metadata import version

import jax

from replicax._src import _jax_cache

_FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
# XLA ends a process that names a flag it does not know. Later versions have no other emitters.
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")

FOLDER = "REPLICAX_TEST_PROGRAMS"
"""The variable with the folder of the compiled programs of this run."""

_AS_USERS_DO = "REPLICAX_TEST_OPTIMIZED" in os.environ or "REPLICAX_TEST_PLATFORM" in os.environ
XLA_FLAGS = "" if _AS_USERS_DO else " ".join(_FLAGS)
"""For the environment of a process; an empty text where nothing is to be said."""


def set_here() -> None:
    """Sets the flags for this process, before it compiles, and for the programs that it starts."""
    given = os.environ.get("XLA_FLAGS", "")
    if XLA_FLAGS not in given:
        os.environ["XLA_FLAGS"] = f"{XLA_FLAGS} {given}".strip()
    if not _AS_USERS_DO:
        share_programs(os.environ.get(FOLDER) or _make_folder())


def share_programs(folder: str) -> None:
    """Lets this process read what others have compiled, and write what it compiles."""
    # Not by variables of JAX: programs that tests start do not all write whole entries.
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    _jax_cache.let_every_process_write()


def programs_of_this_run() -> dict[str, str]:
    """Returns variables for workers, which read and write whole entries once they have joined."""
    if not (folder := os.environ.get(FOLDER)):
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def _make_folder() -> str:
    """Makes a folder for this run of tests; the processes of pytest-xdist inherit its name."""
    folder = os.environ[FOLDER] = tempfile.mkdtemp(prefix="replicax-test-programs-")
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:  # and not in a fork
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
