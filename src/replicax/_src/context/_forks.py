"""Children that were forked from a process in which JAX runs: JAX's threads are not in them."""

from __future__ import annotations

import os

from replicax._src._errors import WrongContextError
from replicax._src._jax_internals import backends_started


class _Process:
    lost_threads = False  # those of JAX, in a fork


def _in_child() -> None:
    _Process.lost_threads = backends_started()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def require_threads(what: str) -> None:
    """Raises where JAX would wait forever."""
    if _Process.lost_threads:
        raise WrongContextError(
            f"{what} was called in a process that was forked after JAX had started its devices. "
            "JAX's threads are not in the child, and it would wait for them forever. Start "
            'processes with multiprocessing.get_context("spawn"), or fork before JAX is used.'
        )
