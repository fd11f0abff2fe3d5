"""The shares of replicas on devices that are not here: their shapes, from one row of a batch."""

from __future__ import annotations

from typing import final

import numpy as np

from replicax._src._typing import override
from replicax._src.data._elements import Structure
from replicax._src.data.distributed._placing import HostShares, Shares
from replicax._src.data.distributed._splitting import Step, Steps
from replicax._src.devices import supposed
from replicax._src.planning import note_batch


@final
class PlannedShares(HostShares):
    """Computes one row of a step; arrays of the shares have the right shapes, and no memory."""

    def __init__(self, rows: HostShares):
        """
        Args:
          rows: what computes them all, where that has to be.
        """
        self._rows = rows
        self._supposed = supposed()

    @override
    def of_rows(self, step: Step) -> Shares:
        if step.apart is not None or len(step.rows) == 0:
            return self._rows.of_rows(step)
        element = step.rows.select(slice(0, 1)).stacked()
        structure = Structure(element)
        sizes = [self._supposed.rows_for(size) for size in step.sizes]
        note_batch(sum(sizes))
        return Shares(
            structure,
            [[_nothing(leaf, size) for size in sizes] for leaf in structure.leaves(element)],
        )

    @override
    def of_elements(self, step: Step) -> Shares | None:
        shares = self._rows.of_elements(step)
        if shares is None or self._supposed.batch_factor == 1:
            return shares
        rows = self._supposed.rows_for
        columns = shares.columns
        return Shares(
            shares.structure,
            [[_nothing(leaf, rows(len(leaf))) for leaf in each] for each in columns],
        )


@final
class FirstSteps(Steps):
    """No more than some steps of a data set."""

    def __init__(self, steps: Steps, count: int):
        self._steps = steps
        self._left = count

    @override
    def next_step(self) -> Step | None:
        if self._left == 0:
            return None
        self._left -= 1
        return self._steps.next_step()

    @override
    def close(self) -> None:
        self._steps.close()


def _nothing(row: np.ndarray, size: int) -> np.ndarray:
    if not isinstance(row, np.ndarray) or row.dtype.kind in "OSU":
        return np.repeat(np.asarray(row)[:1], size, axis=0)
    return np.broadcast_to(np.zeros((), row.dtype), (size, *row.shape[1:]))
