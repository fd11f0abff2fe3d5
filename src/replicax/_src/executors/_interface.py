"""What an executor is: something that runs a function on every replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from replicax._src._typing import Device


class Executor(Protocol):
    """Runs a replica function on every replica. Neither executor asks which strategy called it."""

    def run(
        self,
        strategy: Any,
        devices: tuple[Device, ...],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """What `fn(*args, **kwargs)` returned on the replicas, merged into one structure."""
        ...
