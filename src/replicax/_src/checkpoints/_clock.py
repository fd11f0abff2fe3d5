"""When a manager last kept a checkpoint for good: known to the next one, after a restart."""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import final

from replicax._src._whole_file import whole_file
from replicax._src.checkpoints._manifest import open_regular
from replicax._src.checkpoints._names import LAST_KEPT
from replicax._src.checkpoints._problems import DamagedCheckpointError

_MOST_BYTES = 64


@final
class Clock:
    """The time of the last checkpoint that was kept, in a file beside the checkpoints.

    Before one is kept, it is the time at which the first manager was made.

    Attributes:
      last_kept: in seconds since 1970.
    """

    def __init__(self, directory: str, name: str):
        """
        Args:
          directory: of the checkpoints.
          name: what their names start with.
        """
        self._path = os.path.join(directory, name + LAST_KEPT)
        found = self._read()
        self._is_written = found is not None
        self.last_kept = time.time() if found is None else found

    def start(self) -> None:
        """Lets the next manager know of this one's time, if there was none before."""
        if not self._is_written:
            self.set(self.last_kept)

    def set(self, moment: float) -> None:
        """Makes `moment` the time, also for the next manager."""
        self.last_kept = moment
        with contextlib.suppress(OSError):  # a clock that starts again is no failure of a save
            with whole_file(self._path, self._path + ".new") as file:
                file.write(f"{moment!r}\n".encode())
            self._is_written = True

    def _read(self) -> float | None:
        try:
            with open(open_regular(*os.path.split(self._path)), "rb") as file:
                moment = float(file.read(_MOST_BYTES))
        except (OSError, ValueError, DamagedCheckpointError):
            return None
        return moment if math.isfinite(moment) and moment <= time.time() else None
