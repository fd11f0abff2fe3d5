"""What an executor is: something that calls a function once per replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

ReplicaCall = tuple[tuple[Any, ...], dict[str, Any]]


class Executor(Protocol):
    """Runs a replica function on every replica. Neither executor asks which strategy called it."""

    def execute(
        self,
        strategy: Any,
        devices: Sequence[jax.Device],
        fn: Callable[..., Any],
        calls: Sequence[ReplicaCall],
    ) -> list[Any]:
        """What `fn(*args, **kwargs)` returned on each replica, for one `(args, kwargs)` each."""
        ...
