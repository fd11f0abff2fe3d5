"""Programs take memory maps, of which Linux gives a process a limited number.

XLA on the CPU maps the code of each program a few times. Where Linux refuses (`vm.max_map_count`,
usually 65,530), XLA ends the process: "LLVM compilation error: Cannot allocate memory", or a check
that failed. Some thousand programs are enough. So we look now and then, and raise before.
"""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"
LOOK_EVERY = 32  # programs; to look takes up to 50 ms
_MAPS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")
_programs = itertools.count(1)


def _after_event(event: str, *_: object, **__: object) -> None:
    if event == COMPILED and next(_programs) % LOOK_EVERY == 0:
        require_memory_maps()


def require_memory_maps() -> None:
    """Raises if another thousand memory maps could end the process."""
    try:
        limit = int(_LIMIT.read_text())
        if _count() < 0.9 * limit:
            return
        gc.collect()  # functions that are no longer referenced take their programs with them
        count = _count()
    except OSError:  # not Linux
        return
    if count >= 0.9 * limit:
        raise RuntimeError(
            f"This process has {count} memory maps, and Linux allows {limit}: XLA would soon end "
            "it. Each compiled program takes several. Make an rx.function once, and not in a loop; "
            "call it with few different shapes and Python values; drop functions that are done and "
            "call jax.clear_caches(); or allow more: sysctl -w vm.max_map_count=262144."
        )


def _count() -> int:
    with _MAPS.open("rb") as lines:
        return sum(1 for _ in lines)


jax.monitoring.register_event_duration_secs_listener(_after_event)
