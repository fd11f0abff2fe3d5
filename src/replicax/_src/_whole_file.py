"""Files that are there whole or not at all: written beside, and then given their name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO

from replicax._src._local_path import naming


@contextlib.contextmanager
def whole_file(
    path: str,
    beside: str,
    descriptor: int | None = None,
    *,
    mode: int = 0o666,
    durable: bool = True,
) -> Iterator[IO[bytes]]:
    """Gives a file to write to, which has the name `path` when the block has ended.

    What had that name is replaced. If the block fails, it is as it was, and nothing else is left.

    Args:
      path: a link is replaced, and not what it leads to.
      beside: the name until then, in the same folder; what has it is lost.
      descriptor: of that file, if it is open already; it is closed.
      mode: who may read and write the file, if it is not open already.
      durable: whether it is to be there after a power cut too.
    """
    if descriptor is None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        descriptor = os.open(beside, flags, mode)
    process = os.getpid()
    try:
        with naming(path), open(descriptor, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        if os.getpid() == process:  # else it is that of a parent, which goes on
            with contextlib.suppress(OSError):
                os.unlink(beside)
        raise
