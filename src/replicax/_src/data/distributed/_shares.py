"""The rows of a step, computed: what each replica gets, in arrays on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from replicax._src.data._blocks import copied
from replicax._src.data._elements import ElementSpec, ShapesDiffer, Structure, aligned
from replicax._src.data.distributed._splitting import Step


class Shares(NamedTuple):
    """For each leaf of an element, the parts of the replicas."""

    structure: Structure
    columns: list[Sequence[Any]]


@final
class HostShares:
    """Computes the rows of a step, in new arrays: nobody else holds or changes them."""

    def __init__(self, empty_like: Callable[[], Any]):
        """
        Args:
          empty_like: the spec of an element, for a step in which nobody ever had rows.
        """
        self._empty_like = empty_like
        self._nothing: Shares | None = None  # one replica's share of a step without rows

    def of_rows(self, step: Step) -> Shares:
        """Returns the rows of each replica, as one element each."""
        if step.apart is not None:
            parts = step.apart
            own = [[copied(part, aligned) for part in column] for column in parts.leaves]
            return Shares(parts.structure, list[Sequence[Any]](own))
        if len(step.rows) == 0:
            return self._empty(len(step.sizes))
        try:
            element = step.rows.stacked(aligned)
        except ShapesDiffer as error:
            raise ValueError(
                "The rows of a batch must have one shape and dtype, but they differ: "
                f"{error.descriptions}. Make them alike in map(), or use padded_batch()."
            ) from None
        structure = Structure(element)
        leaves = structure.leaves(element)
        if self._nothing is None:
            self._nothing = Shares(structure, [[_no_rows(leaf)] for leaf in leaves])
        if len(step.sizes) == 1:
            return Shares(structure, [[leaf] for leaf in leaves])
        slices: list[slice] = []
        start = 0
        for size in step.sizes:
            slices.append(slice(start, start + size))
            start += size
        return Shares(structure, [[leaf[where] for where in slices] for leaf in leaves])

    def of_elements(self, step: Step) -> Shares | None:
        """Returns the one element of each replica, as it is; one without rows where there is none.

        None if elements have no rows, so that there cannot be one without.
        """
        if len(step.rows) == 0:
            return self._empty(len(step.sizes))
        elements = [copied(element, aligned) for element in step.rows.rows()]
        structure = Structure(elements[0])
        single = (np.ndim(leaf) == 0 for leaf in structure.leaves(elements[0]))
        if not all(step.sizes) and any(single):
            return None
        columns: list[Sequence[Any]] = []
        for column in structure.columns(elements):
            parts = iter(column)
            columns.append([next(parts) if size else _no_rows(column[0]) for size in step.sizes])
        return Shares(structure, columns)

    def _empty(self, replicas: int) -> Shares:
        if self._nothing is None:
            self._nothing = _nothing_like(self._empty_like())
        structure, columns = self._nothing
        return Shares(structure, [[column[0]] * replicas for column in columns])


def _no_rows(leaf: np.ndarray) -> np.ndarray:
    return np.empty((0, *leaf.shape[1:]), leaf.dtype)


def _nothing_like(spec: ElementSpec) -> Shares:
    structure = Structure(spec)
    columns: list[Sequence[Any]] = []
    for leaf in structure.leaves(spec):
        rest = [size or 0 for size in (leaf.shape or ())[1:]]
        columns.append([np.empty((0, *rest), leaf.dtype)])
    return Shares(structure, columns)
