"""JAX's persistent compilation cache, for every process of a job.

JAX lets process 0 alone write, and expects the others to find its entries. On CPU they cannot: the
key contains a fingerprint of the topology, and the topology of a CPU client lists only the devices
of its own process. (Elsewhere they do, but only on a shared file system.) So here every process
writes what it compiled. `jax_share_binary_between_hosts` is no way out: it uses the same keys, so
that all but the first process wait for a program that never comes.

Entries appear whole, by a rename, and one that is not whole is not read and is replaced: workers
are killed at any moment, and JAX would keep such an entry and complain forever.

Reaches into JAX's private API, and does nothing where that is not as expected (0.10 to 0.12 are):
the cache is then as good as JAX makes it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

from jax._src import compilation_cache as _compilation_cache
from jax._src import compiler as _compiler
from jax._src import config as _config
from jax._src import distributed as _distributed
from jax._src.lru_cache import LRUCache as _LRUCache

from replicax._src._whole_file import whole_file

_WRITE_ARGUMENTS = ["cache_key", "compile_time_secs", "module_name", "backend", "executable"]
# While it is written, an entry is called so. Nobody writes one for an hour: it was killed.
_UNFINISHED = re.compile(r".+-cache\.[0-9a-f]{32}")
_LEFT_OVER_SECONDS = 3600.0


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Inside the block nothing is kept in the cache, or read from it.

    For programs of devices that are not here: JAX keeps them, and cannot read them back.
    """
    is_used = _compilation_cache.is_cache_used
    _compilation_cache.is_cache_used = lambda backend: False
    try:
        yield
    finally:
        _compilation_cache.is_cache_used = is_used


@functools.cache
def let_every_process_write() -> None:
    """Lets all processes write to the cache; call it before the first compilation.

    Does nothing where no cache directory is set.
    """
    write_of_first = _compiler._cache_write
    if list(inspect.signature(write_of_first).parameters)[:5] != _WRITE_ARGUMENTS:
        return

    def write(
        cache_key: str, seconds: float, name: str, backend: Any, executable: Any, *callbacks: Any
    ) -> None:
        if not _distributed.global_state.process_id:
            write_of_first(cache_key, seconds, name, backend, executable, *callbacks)
            return
        # Before JAX 0.11, programs that call back into Python name an address of this process.
        if seconds < _config.persistent_cache_min_compile_time_secs.value or any(callbacks):
            return
        # As JAX does: a program that cannot be kept is compiled again next time.
        with contextlib.suppress(Exception):
            _compilation_cache.put_executable_and_time(
                cache_key, name, executable, backend, int(seconds)
            )

    _compiler._cache_write = write
    make_cache = _compilation_cache.get_file_cache

    def make_cache_of_whole_entries(path: str) -> Any:
        made = make_cache(path)
        if made is None or type(made[0]) is not _LRUCache or made[0].eviction_enabled:
            return made
        if "://" in path:  # a bucket; its objects appear whole
            return made
        return _WholeEntries(made[0]), made[1]

    _compilation_cache.get_file_cache = make_cache_of_whole_entries
    _compilation_cache.reset_cache()  # if it was opened already, then not by the function above


def open_again() -> None:
    """Lets the next compilation open the cache that is set then."""
    _compilation_cache.reset_cache()


class _WholeEntries:
    """JAX's directory of compiled programs, in which an entry is whole or not there."""

    def __init__(self, cache: _LRUCache):
        self._cache = cache
        self._path = cache._path
        self._swept = False

    def get(self, key: str) -> bytes | None:
        value = self._cache.get(key)
        if value is None:
            return None
        try:
            _compilation_cache.decompress_executable(value)  # which checks; a few milliseconds
        except Exception:
            return None
        return value

    def put(self, key: str, value: bytes) -> None:
        if not self._swept:
            self._swept = True
            self._remove_left_overs()
        if self.get(key) is not None:  # of another worker, which has compiled the same
            return
        entry = os.path.join(os.fspath(self._path), f"{key}-cache")
        # On a shared file system, process numbers are not enough to tell writers apart.
        unfinished = f"{entry}.{uuid.uuid4().hex}"
        with (
            contextlib.suppress(OSError),  # no space, no permission
            whole_file(entry, unfinished, durable=False) as file,
        ):
            file.write(value)

    def _remove_left_overs(self) -> None:
        """Removes what workers have begun that were killed then."""
        old = time.time() - _LEFT_OVER_SECONDS
        with contextlib.suppress(OSError), os.scandir(os.fspath(self._path)) as files:
            for file in files:
                if _UNFINISHED.fullmatch(file.name):
                    with contextlib.suppress(OSError):  # another worker was faster
                        if file.stat().st_mtime < old:
                            os.unlink(file.path)
