"""The worker's side of `tests/processes.py`: how a process begins, and how it reports."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import runpy
import signal
import sys
from typing import Any

RESULTS = "REPLICAX_TEST_RESULTS"
"""The variable with the name of the file into which this process reports."""

_PR_SET_PDEATHSIG = 1  # of Linux's prctl: a signal for when the parent dies


def result(name: str, value: Any) -> None:
    """Reports a result from a worker; arrays become lists. It survives a kill -9 right after."""
    line = json.dumps({"name": name, "value": value}, default=lambda array: array.tolist())
    with open(os.environ[RESULTS], "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def say(text: str) -> None:
    """Prints a line that `Job.wait_for` sees at once."""
    print(text, flush=True)


def enter() -> None:
    """Runs the program that is named on the command line, in a process that dies with the test."""
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    program, sys.argv = sys.argv[1], sys.argv[1:]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    elif ":" in program:
        module, _, function = program.partition(":")
        getattr(importlib.import_module(module), function)()
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    enter()
