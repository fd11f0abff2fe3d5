"""`Guard`: a small process that outlives the launcher by a moment, and ends what is left then.

When a launcher is killed, the kernel kills its workers (Linux), but not what they have started:
readers of data, for example. The guard holds a pipe from the launcher, on which it hears which
groups of processes there are. The pipe closes when the launcher ends, however it ends.

A launcher that leads by a lease can also be stopped, or held up, while another leads by now. So it
gives the guard a time limit with each renewal, and workers that outlive it are ended.

It also removes folders that the launcher has made for its workers, which nobody else would.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import final

# `+12` is a group that may live, and `-12` is one that is gone, whose number may be another's soon.
# `=8.0` is a time limit in seconds, in place of the one before.
_PROGRAM = """
import math, os, select, shutil, signal, sys, time
clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
groups, limit, rest = set(), math.inf, b""
def end_all():
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass
while True:
    if select.select([0], [], [], None if limit == math.inf else 0.25)[0]:
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\\n")
        for line in lines:
            if line[:1] == b"=":
                limit = time.clock_gettime(clock) + float(line[1:])
            else:
                (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    elif time.clock_gettime(clock) > limit:
        end_all()
        limit = math.inf
end_all()
folders = sys.argv[1:]
for attempt in range(20):
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    folders = [folder for folder in folders if os.path.lexists(folder)]
    if not folders:
        break
    time.sleep(0.1)  # a worker has written while it ended
"""
_NEEDED = ("LD_", "DYLD_", "PATH", "SYSTEMROOT")
_SECONDS_TO_END = 5.0


@final
class Guard:
    """Ends groups of processes when this process is gone.

    Args:
      folders: Which are removed then.
    """

    def __init__(self, folders: Sequence[str] = ()) -> None:
        # In a session of its own: what ends the launcher from its terminal must not end the guard.
        # It needs nothing of the environment but what finds the libraries of Python.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={name: text for name, text in os.environ.items() if name.startswith(_NEEDED)},
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        """Has a group of processes ended with us."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Forgets a group that is gone; to be called while its leader is not reaped."""
        self._tell(f"-{group}\n")

    def limit(self, seconds: float) -> None:
        """Has all groups ended so many seconds from now, unless told otherwise by then."""
        self._tell(f"={seconds}\n")

    def close(self) -> None:
        """Ends the guard, and what it still watches."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_SECONDS_TO_END)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # somebody has ended it: the job goes on without
            self._process.stdin.write(line.encode())
