"""Who is shown the gradients that replicas give to optimizers: traps that look for wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

gradient_watchers: list[Callable[[Sequence[Any], Sequence[Any]], None]] = []
"""Called in replica context with this replica's gradients and the variables, before they meet."""


def show_gradients(gradients: Sequence[Any], variables: Sequence[Any]) -> None:
    """Shows them to all."""
    for watcher in gradient_watchers:
        watcher(gradients, variables)
