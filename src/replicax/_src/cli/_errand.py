"""Folders that workers of one host find files in: what they are to do, and compiled programs.

An `Errand` is a file that the program of each worker reads, and one that it may leave behind. With
it a worker can be given a function in place of a script (`launch_function.py`).
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import final

# In the environment of a worker: the file to read, and the file to write.
PAYLOAD = "REPLICAX_PAYLOAD"
OUTCOME = "REPLICAX_OUTCOME"


@final
class Errand:
    """Hands a file to workers, and keeps those that they leave.

    Attributes:
      folder: Where they are, for this user alone.
    """

    def __init__(self, payload: bytes) -> None:
        self.folder = tempfile.mkdtemp(prefix="replicax-errand-")
        Path(self.folder, "payload").write_bytes(payload)

    def environment_of(self, rank: int) -> dict[str, str]:
        """Returns what a worker must be told; what one of the same rank left before is removed."""
        self._outcome(rank).unlink(missing_ok=True)
        return {PAYLOAD: os.path.join(self.folder, "payload"), OUTCOME: str(self._outcome(rank))}

    def outcome(self, rank: int) -> bytes | None:
        """Returns what a worker has left; None if it has left nothing."""
        try:
            return self._outcome(rank).read_bytes()
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Removes the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _outcome(self, rank: int) -> Path:
        return Path(self.folder, f"outcome-{rank}")


@final
class KeptPrograms:
    """Lets later generations find what the first one has compiled.

    Args:
      environment: Of the workers; it is told where, unless the user has said so.

    Attributes:
      folder: Where they are; None where the user has said it.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.folder: str | None = None
        if "JAX_COMPILATION_CACHE_DIR" in environment:
            return  # the user's own, which also other jobs may share
        # For this user's eyes only: JAX runs what it finds there.
        self.folder = tempfile.mkdtemp(prefix="replicax-programs-")
        environment["JAX_COMPILATION_CACHE_DIR"] = self.folder
        # Small programs count as well: there are many of them before the first step.
        for name, value in (("MIN_COMPILE_TIME_SECS", "0"), ("MIN_ENTRY_SIZE_BYTES", "-1")):
            environment.setdefault(f"JAX_PERSISTENT_CACHE_{name}", value)

    def close(self) -> None:
        """Removes the programs."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
