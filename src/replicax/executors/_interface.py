"""What an executor is: something that calls a function once per replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from replicax._typing import Device

ReplicaCall = tuple[tuple[Any, ...], dict[str, Any]]


class Executor(Protocol):
    """Runs a replica function on every replica. Neither executor asks which strategy called it."""

    def execute(
        self,
        strategy: Any,
        devices: Sequence[Device],
        fn: Callable[..., Any],
        calls: Sequence[ReplicaCall],
    ) -> list[Any]:
        """What `fn(*args, **kwargs)` returned on each replica, for one `(args, kwargs)` each."""
        ...
