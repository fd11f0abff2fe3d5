"""What `Estimator.predict` makes of the predictions for a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def selected(predictions: Any, keys: list[str] | None) -> Any:
    """Those of the predictions that the user wants."""
    if not keys:
        return predictions
    if not isinstance(predictions, dict):
        raise ValueError(
            f"`predict_keys` names {keys}, but model_fn returned predictions that are no "
            "dictionary. Leave it out, or return predictions={'name': ...}."
        )
    found = {name: value for name, value in predictions.items() if name in keys}
    if not found:
        raise ValueError(
            f"None of predict_keys={keys} is among the predictions: {', '.join(predictions)}."
        )
    return found


def rows_of(predictions: Any) -> Iterator[Any]:
    """The predictions of each row."""
    if not isinstance(predictions, dict):
        yield from predictions
        return
    lengths = {name: value.shape[0] if value.ndim else None for name, value in predictions.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        raise ValueError(
            f"The predictions do not have the same number of rows: {lengths}. Return arrays with a "
            "row for each row of the features, or use predict(..., yield_single_examples=False)."
        )
    for row in range(next(iter(lengths.values())) or 0):
        yield {name: value[row] for name, value in predictions.items()}
