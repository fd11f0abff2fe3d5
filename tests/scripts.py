"""Runs a Python program as a user would: in its own process and in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

from tests.guards import ROOT


def run_python(arguments: list[str], folder: Path, timeout: float = 250) -> str:
    """Returns what `python <arguments>` prints; fails with its whole output when it fails.

    The program finds eight virtual CPU devices, unless it asks for another number itself.
    """
    environment = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": "8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, f"python {' '.join(arguments)} failed:\n{result.stdout}"
    return result.stdout
