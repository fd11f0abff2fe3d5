"""`checkpoints_iterator`: new checkpoints of a directory as they come, for who evaluates them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from replicax._src.checkpoints._latest import latest_checkpoint
from replicax._src.checkpoints._paths import as_path

_POLL_SECONDS = 1.0


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields the path of the latest checkpoint, again whenever there is a newer one.

    Those that come while the user is busy are passed over, but for the last.

    Args:
      checkpoint_dir: where another program saves.
      min_interval_secs: how long to wait at least between two of them.
      timeout: seconds to wait for a newer one; None: for ever.
      timeout_fn: called after each `timeout`; the end if it returns True. Without it, the end.
    """
    directory = as_path(checkpoint_dir, "checkpoint_dir")
    last: str | None = None
    while True:
        began = time.monotonic()
        path = _next(directory, last, timeout)
        if path is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        last = path
        yield path
        time.sleep(max(0.0, min_interval_secs - (time.monotonic() - began)))


def _next(directory: str, last: str | None, timeout: float | None) -> str | None:
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        path = latest_checkpoint(directory) if os.path.isdir(directory) else None
        if path is not None and path != last:
            return path
        left = _POLL_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(_POLL_SECONDS, left))
