"""Flags for XLA under which the programs of tests compile in half the time and compute the same.

Compiling is more than half of what the tests take, and each program runs once or twice: code that
is fast is worth nothing to them. `REPLICAX_TEST_OPTIMIZED=1` compiles as users do.
"""

import os
from importlib.metadata import version

_FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
# XLA ends a process that names a flag it does not know. Later versions have no other emitters.
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")

_AS_USERS_DO = "REPLICAX_TEST_OPTIMIZED" in os.environ or "REPLICAX_TEST_PLATFORM" in os.environ
XLA_FLAGS = "" if _AS_USERS_DO else " ".join(_FLAGS)
"""For the environment of a process; an empty text where nothing is to be said."""


def set_here() -> None:
    """Sets the flags for this process, before it compiles, and for the programs that it starts."""
    given = os.environ.get("XLA_FLAGS", "")
    if XLA_FLAGS not in given:
        os.environ["XLA_FLAGS"] = f"{XLA_FLAGS} {given}".strip()
