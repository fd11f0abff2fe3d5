"""`DistributedValues`: one component per replica, behind one object."""

# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import jax
import numpy as np

from replicax._src import _html
from replicax._src.context import EACH, world
from replicax._src.devices import short_name
from replicax._src.values._storage import Storage


class DistributedValues:
    """Base of everything that holds one value per replica.

    `PerReplica` values may differ from replica to replica; `Mirrored` ones are the same on all;
    variables made in a strategy's scope are the third kind. Pass them to `strategy.run`, which
    hands each replica its component; combine them with `strategy.reduce` or `strategy.gather`;
    look at them with `strategy.experimental_local_results`.
    """

    _structure_leaf: ClassVar[bool] = True  # `strategy.run` and friends do not look inside
    _passed_whole: ClassVar[bool] = False  # variables reach a replica function as they are
    _laid_out_over: Any = None  # (mesh, array, is weak): what a program was given for it

    def __init__(self, values: Iterable[Any]):
        if type(self) is DistributedValues:
            raise TypeError(
                "DistributedValues is a base class. Make a rx.distribute.PerReplica or "
                "rx.distribute.Mirrored, or use strategy.experimental_distribute_values_from_"
                "function, which makes one value on each replica."
            )
        unordered = (str, bytes, set, frozenset, dict)
        if isinstance(values, unordered) or not isinstance(values, Iterable):
            raise TypeError(
                f"{type(self).__name__} takes a list or tuple with one value per replica; got "
                f"{values!r}."
            )
        self._values: tuple[Any, ...] | None = tuple(values)
        self._buffers: Any = None  # ReplicaBuffers, or TracedBuffers while it is computed
        if not self._values:
            raise ValueError(f"{type(self).__name__} needs at least one value, for one replica.")

    @classmethod
    def _from_buffers(cls, buffers: Storage) -> Self:
        new = cls.__new__(cls)
        new._values = None
        new._buffers = buffers
        return new

    @property
    def values(self) -> tuple[Any, ...]:
        """The components of this process's replicas, in replica order."""
        if self._values is not None:
            return self._values
        components = self._buffers.components
        if not self._is_traced:  # there it is a collective, each time
            self._values = components
        return components

    @property
    def _count(self) -> int:
        """How many components there are here; other workers have their own."""
        return len(self._buffers.mesh.devices if self._values is None else self._values)

    def _component(self, replica_id: Any) -> Any:
        if replica_id is EACH and not self._is_traced:
            return world().component_for_each(self)
        components: Any = self._values
        if components is not None:
            return components[replica_id]
        assert self._buffers is not None
        return self._buffers.component(replica_id)

    @property
    def _is_traced(self) -> bool:
        return self._buffers is not None and self._buffers.is_traced

    def __repr__(self) -> str:
        if not self._passed_whole and self._is_traced:
            return f"{type(self).__name__}:{{ on each replica: {self._buffers.local!r} }}"
        rows = ",\n".join(
            textwrap.indent(f"{index}: {value!r}", "  ") for index, value in enumerate(self.values)
        )
        return f"{type(self).__name__}:{{\n{rows}\n}}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """For notebooks: which device holds what."""
        if self._is_traced:
            return f"<code>{html.escape(repr(self))}</code>"
        rows = [(index, *_described(value)) for index, value in enumerate(self.values)]
        title = f"{type(self).__name__}: {self._count} component(s)"
        return _html.table(title, ("replica", "device", "what", "value"), rows)


def _described(value: object) -> tuple[str, str, str]:
    if isinstance(value, jax.Array):
        kind = f"{value.dtype}{list(value.shape)}"
        devices = sorted(value.devices(), key=lambda each: each.id)
        if len(devices) > 1:
            kind += f" in parts of {list(value.sharding.shard_shape(value.shape))}"
        names = ", ".join(short_name(device) for device in devices)
        return names, kind, _html.short(np.asarray(value))
    return "", type(value).__name__, _html.short(value)
