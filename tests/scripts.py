"""Runs a Python program as a user would: in a process and an empty folder of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.forks import interpreter
from tests.guards import ROOT


def run_python(
    arguments: list[str],
    folder: Path,
    timeout: float = 600,
    *,
    warm: bool = False,
    keras: bool = False,
    status: int = 0,
    given: str = "",
) -> str:
    """Returns what `python <arguments>` prints; fails with its whole output when it fails.

    It is to end with `status`. `given` is what it reads.

    The program finds eight virtual CPU devices, unless it asks for another number itself. `warm`
    spares it the imports (see `tests/forks.py`), with `keras` also that of Keras.
    """
    environment = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": "8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }
    python = interpreter(keras) if warm else sys.executable
    with tempfile.TemporaryFile() as file:
        ended = subprocess.run(
            [python, *arguments],
            cwd=folder,
            env=environment,
            input=given.encode(),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=timeout,
        ).returncode
        file.seek(0)
        text = file.read().decode()
    assert ended == status, f"python {' '.join(arguments)} failed:\n{text}"
    return text
