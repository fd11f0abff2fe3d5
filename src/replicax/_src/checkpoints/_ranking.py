"""Which checkpoints are the best, by a metric that was saved with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, final

from replicax._src.checkpoints._manifest import Manifest


@final
class Ranking:
    """Ranks checkpoints by a metric.

    Args:
      metric: its name among the metrics that are saved.
      mode: "min" if less is better, "max" if more is.
    """

    def __init__(self, metric: str, mode: Literal["min", "max"] | None):
        if mode not in ("min", "max"):
            raise ValueError(
                f'`best_mode` must say which values of {metric!r} are better: "min" for a loss, '
                f'"max" for an accuracy; got {mode!r}.'
            )
        self.metric = metric
        self._sign = 1.0 if mode == "max" else -1.0

    def require(self, metrics: Mapping[str, float]) -> None:
        """Raises `ValueError` if metrics were given, and not the one that counts."""
        if metrics and self.metric not in metrics:
            raise ValueError(
                f"`metrics` has no {self.metric!r}, the manager's `best_metric`; it has "
                f"{', '.join(map(repr, metrics))}. Give it, or no metrics at all."
            )

    def key(self, manifest: Manifest) -> tuple[bool, float, int]:
        """Returns a key to sort by, the best last: of equal ones, the later.

        One without the metric, or with NaN, is worse than all others.
        """
        value = manifest.metrics.get(self.metric, math.nan)
        is_number = not math.isnan(value)
        return is_number, self._sign * value if is_number else 0.0, manifest.sequence

    def is_ranked(self, manifest: Manifest) -> bool:
        """Returns whether a checkpoint has a value of the metric."""
        return self.key(manifest)[0]


def as_metrics(given: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns metrics as plain numbers: of numbers, arrays of one, and variables."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f'`metrics` must be a dict of numbers, such as {{"loss": 0.5}}; got {given!r}.'
        )
    metrics: dict[str, float] = {}
    for name, value in given.items():
        read = getattr(value, "numpy", None)
        try:
            metrics[str(name)] = float(value if read is None else read())
        except (TypeError, ValueError):
            raise TypeError(
                f"`metrics` must have one number for each name; {name!r} is {value!r}. Reduce what "
                "replicas have computed first, with strategy.reduce."
            ) from None
    return metrics
