"""Shares of replicas, from rows on the host to arrays on the devices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from replicax.data._blocks import copied
from replicax.data._elements import ShapesDiffer, Structure, aligned, leaves_with_names
from replicax.devices import put, replica_mesh
from replicax.input._options import InputLayout
from replicax.input._splitting import Step
from replicax.values import PerReplica, ReplicaBuffers

Element = Any


class HostShares:
    """Computes the rows of a step, in new arrays: nobody else holds or changes them."""

    def __init__(self, empty_like: Callable[[], Element]):
        """
        Args:
          empty_like: what an element looks like, as specs, for a step in which nobody has rows.
        """
        self._empty_like = empty_like
        self._last: Element = None  # the last element that had rows, for its shapes

    def of_rows(self, step: Step) -> list[Element]:
        """The rows of each replica, as one element each."""
        if len(step.rows) == 0:
            return [self._nothing()] * len(step.sizes)
        try:
            element = self._last = step.rows.stacked(aligned)
        except ShapesDiffer as error:
            raise ValueError(
                "The rows of a batch must have one shape and dtype, but they differ: "
                f"{error.looks}. Make them alike in map(), or use padded_batch()."
            ) from None
        if len(step.sizes) == 1:
            return [element]
        structure = Structure(element)
        leaves = structure.leaves(element)
        shares: list[Element] = []
        start = 0
        for size in step.sizes:
            shares.append(structure.build([leaf[start : start + size] for leaf in leaves]))
            start += size
        return shares

    def of_elements(self, step: Step) -> list[Element]:
        """The one element of each replica, as it is; one without rows where there is none."""
        elements = iter(step.rows.rows())
        shares = [copied(next(elements), aligned) if size else None for size in step.sizes]
        full = next((share for share in shares if share is not None), None)
        if full is not None:
            self._last = full
        return [self._nothing() if share is None else share for share in shares]

    def _nothing(self) -> Element:
        if self._last is None:
            self._last = _zeros(self._empty_like())
        structure = Structure(self._last)
        return structure.build([_no_rows(leaf) for leaf in structure.leaves(self._last)])


def _no_rows(leaf: Any) -> np.ndarray:
    if not isinstance(leaf, np.ndarray) or leaf.ndim == 0:
        raise ValueError(
            "Some replicas have no element in the last step, and an empty one cannot be made of "
            f"elements without rows such as {leaf!r}. Batch the data set."
        )
    return np.empty((0, *leaf.shape[1:]), leaf.dtype)


def _zeros(spec: Any) -> Element:
    structure = Structure(spec)
    return structure.build(
        [
            np.empty((0, *[size or 0 for size in (leaf.shape or (0,))[1:]]), leaf.dtype)
            for leaf in structure.leaves(spec)
        ]
    )


class Placement:
    """Puts the shares of a step on the devices, and makes per-replica values of them."""

    def __init__(self, layout: InputLayout, fetch: bool, integers_may_narrow: bool):
        self._devices = layout.devices
        self._wrap = layout.replicas > 1
        self._fetch = fetch
        self._mesh = replica_mesh(layout.devices) if len(layout.devices) > 1 else None
        self._warn_of_integers = not integers_may_narrow

    def place(self, shares: list[Element]) -> Any:
        """A structure like an element, of arrays or per-replica values."""
        structure = Structure(shares[0])
        columns = list(zip(*[structure.leaves(share) for share in shares]))
        names = None
        placed: list[Any] = []
        for index, column in enumerate(columns):
            leaf = column[0]
            if self._fetch and leaf_can_be_placed(leaf):
                wanted = _on_device(leaf.dtype)
                if leaf.dtype != wanted:
                    names = names or [name for name, _ in leaves_with_names(shares[0])]
                    column = [self._narrowed(part, wanted, names[index]) for part in column]
                placed.append(self._placed(column))
            else:
                placed.append(PerReplica(column) if self._wrap else leaf)
        return structure.build(placed)

    def _placed(self, column: Sequence[Any]) -> Any:
        mesh = self._mesh
        if mesh is None:
            array = put(column[0], self._devices[0])
            return PerReplica([array]) if self._wrap else array
        shape = column[0].shape
        even = all(part.shape == shape for part in column)
        if even and shape and 0 not in shape:
            return PerReplica._from_buffers(
                ReplicaBuffers(mesh, assembled=mesh.assemble_from_host(column))
            )
        return PerReplica([put(part, device) for part, device in zip(column, self._devices)])

    def _narrowed(self, part: Any, wanted: Any, name: str) -> np.ndarray:
        if part.dtype.kind in "iu":
            info = np.iinfo(wanted)
            if part.size and (part.min() < info.min or part.max() > info.max):
                raise OverflowError(
                    f"element{name} holds {part.dtype} values from {part.min()} to {part.max()}, "
                    f"which do not fit the {wanted} that JAX has on the devices. Switch 64 bits "
                    'on with jax.config.update("jax_enable_x64", True), or map() them into range.'
                )
            if self._warn_of_integers:
                warn_of_narrowing(part.dtype, wanted, name)
        else:
            warn_of_narrowing(part.dtype, wanted, name)
        new = aligned(np.shape(part), wanted)
        new[...] = part
        return new


def leaf_can_be_placed(leaf: Any) -> bool:
    """Numbers can; text stays on the host."""
    return isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "OSU"


_warned: set[Any] = set()


def _on_device(dtype: np.dtype) -> np.dtype:
    if dtype.itemsize < 8:
        return dtype
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def warn_of_narrowing(dtype: Any, wanted: Any, name: str) -> None:
    """Once in the life of the process for each pair of dtypes."""
    if (dtype, wanted) in _warned:
        return
    _warned.add((dtype, wanted))
    warnings.warn(
        f"element{name} of the data set is {dtype}, and becomes {wanted} on the devices: JAX has "
        f"64 bits only if asked. Make it {wanted} in the data set to say that you know, or switch "
        'them on with jax.config.update("jax_enable_x64", True). (This is said once.)',
        stacklevel=2,
    )
