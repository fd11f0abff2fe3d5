"""Keeps a process of tests small: what JAX has compiled is forgotten when it has become much.

A compiled program takes a few hundred kB, and JAX keeps thousands; the tests seldom run one again
in another test. The number of memory maps, of which a process may have 65,530, falls with it.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import jax

# A process of tests is to stay below 1.5 GB, and a single test may take some hundred MB.
LIMIT = 900 * 2**20
# Where much stays after all is forgotten, forgetting after each test would only take time.
ROOM = 300 * 2**20

_PAGE = os.sysconf("SC_PAGE_SIZE")
_RESIDENT = Path("/proc/self/statm")


def resident() -> int:
    """Returns how many bytes this process has in memory; 0 where the system does not say."""
    try:
        return int(_RESIDENT.read_bytes().split()[1]) * _PAGE
    except OSError:
        return 0


def forget() -> None:
    """Drops what JAX keeps of programs, and gives the memory back to the system."""
    jax.clear_caches()
    gc.unfreeze()  # what each test found
    gc.collect()
    if sys.platform == "linux":
        # Most of it lies between pieces in use, where `free` leaves it to the process.
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)


class Keeper:
    """Asked after each test; forgets when the process is too large."""

    def __init__(
        self,
        *,
        measure: Callable[[], int] = resident,
        forget: Callable[[], None] = forget,
    ) -> None:
        self._measure = measure
        self._forget = forget
        self._limit = LIMIT

    def look(self) -> None:
        """Forgets if the process has passed the limit, and sets the next one."""
        if self._measure() <= self._limit:
            return
        self._forget()
        self._limit = max(LIMIT, self._measure() + ROOM)
