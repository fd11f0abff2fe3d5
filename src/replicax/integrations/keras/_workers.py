"""Several workers: all of them train, the first one prints and writes."""

from __future__ import annotations

from typing import Any


def arguments(strategy: Any, method: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` and the like on this worker."""
    layout = strategy.extended._input_layout
    if layout.workers == 1 or layout.worker == 0:
        return kwargs
    return {**kwargs, "verbose": 0}
