"""Shares of replicas, from the host to the devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import numpy as np

from replicax._src._jax_internals import explicit_transfers, put_on_one
from replicax._src._warnings import Line, warn
from replicax._src.data._blocks import copied
from replicax._src.data._elements import (
    ElementSpec,
    ShapesDiffer,
    Structure,
    aligned,
    leaves_with_names,
    plain,
)
from replicax._src.data.distributed._options import InputLayout
from replicax._src.data.distributed._splitting import Step
from replicax._src.devices import replica_mesh, replicas_on
from replicax._src.values import PerReplica, ReplicaBuffers, per_replica_type, value_of_buffers


@final
class Placement:
    """Puts the shares of a step on the devices, and makes per-replica values of them."""

    def __init__(self, layout: InputLayout, fetch: bool, integers_may_narrow: bool, line: Line):
        """
        Args:
          layout: who reads.
          fetch: whether to put them there; otherwise they stay on the host.
          integers_may_narrow: whether integers have 64 bits only by default.
          line: the user's line, to point at in warnings.
        """
        self._line = line
        self._devices = layout.devices
        self._wrap = layout.replicas > 1
        self._fetch = fetch
        self._mesh = replica_mesh(layout.devices) if replicas_on(layout.devices) > 1 else None
        self._type = per_replica_type(layout.devices)
        self._warn_of_integers = not integers_may_narrow

    def place(self, shares: Shares) -> Any:
        """Returns a structure like an element, of arrays or per-replica values."""
        with explicit_transfers():
            return self._all_placed(shares)

    def _all_placed(self, shares: Shares) -> Any:
        structure, columns = shares
        placed: list[Any] = []
        for index, column in enumerate(columns):
            leaf = column[0]
            if self._fetch and leaf_can_be_placed(leaf):
                wanted = _on_device(leaf.dtype)
                if wanted is None:
                    raise TypeError(
                        f"element{_name_of(shares, index)} is {leaf.dtype}, which JAX does not "
                        "have. Convert it in map(), for example to float32."
                    )
                if leaf.dtype != wanted:
                    name = _name_of(shares, index)
                    column = [self._narrowed(part, wanted, name) for part in column]
                placed.append(self._placed(column))
            else:
                column = [plain(part) for part in column]
                placed.append(self._type(column) if self._wrap else column[0])
        return structure.build(placed)

    def _placed(self, column: Sequence[Any]) -> Any:
        mesh = self._mesh
        if mesh is None:
            array = put_on_one(np.asarray(column[0]), self._devices[0])
            return PerReplica([array]) if self._wrap else array
        shape = column[0].shape
        even = all(part.shape == shape for part in column)
        if even and shape and 0 not in shape:
            buffers = ReplicaBuffers(mesh, assembled=mesh.assemble_from_host(column))
            return value_of_buffers(self._type, buffers)
        parts = [put_on_one(np.asarray(part), to) for part, to in zip(column, self._devices)]
        return self._type(parts)

    def _narrowed(self, part: np.ndarray, wanted: np.dtype, name: str) -> np.ndarray:
        if part.dtype.kind in "iu":
            info = np.iinfo(wanted)
            if part.size and (part.min() < info.min or part.max() > info.max):
                raise OverflowError(
                    f"element{name} holds {part.dtype} values from {part.min()} to {part.max()}, "
                    f"which do not fit the {wanted} that JAX has on the devices. Switch 64 bits "
                    'on with jax.config.update("jax_enable_x64", True), or map() them into range.'
                )
            if self._warn_of_integers:
                warn_of_narrowing(part.dtype, wanted, name, self._line)
        else:
            warn_of_narrowing(part.dtype, wanted, name, self._line)
        new = aligned(np.shape(part), wanted)
        new[...] = part
        return new


def _name_of(shares: Shares, index: int) -> str:
    element = shares.structure.build([column[0] for column in shares.columns])
    return leaves_with_names(element)[index][0]


def leaf_can_be_placed(leaf: object) -> bool:
    """Returns whether a leaf goes to the devices: numbers do, text stays on the host."""
    return isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "OSU"


_warned: set[Any] = set()


def _on_device(dtype: np.dtype) -> np.dtype | None:
    """Returns the dtype that JAX makes of `dtype`; None if there is none."""
    if dtype.itemsize < 8 and dtype.kind in "biufc":
        return dtype
    try:
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    except TypeError:
        return None


def warn_of_narrowing(dtype: np.dtype, wanted: np.dtype, name: str, line: Line) -> None:
    """Warns of each pair of dtypes once in the life of the process."""
    if (dtype, wanted) in _warned:
        return
    _warned.add((dtype, wanted))
    warn(
        f"element{name} of the data set is {dtype}, and becomes {wanted} on the devices: JAX has "
        f"64 bits only if asked. Make it {wanted} in the data set to say that you know, or switch "
        'them on with jax.config.update("jax_enable_x64", True). (This is said once.)',
        line,
    )


class Shares(NamedTuple):
    """For each leaf of an element, the parts of the replicas."""

    structure: Structure
    columns: list[Sequence[Any]]


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
