"""`ShardedVariable`: a variable whose rows are divided over several servers."""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import ArrayInput, Device, override
from replicax._src.collectives import default_device
from replicax._src.context import world
from replicax._src.devices import ReplicaMesh
from replicax._src.parameter_servers._shard_info import MadeInParts
from replicax._src.parameter_servers._variable import (
    AtServer,
    ServerVariable,
    View,
    checked_rows,
)
from replicax._src.values import Mirrored, OneBuffer, Storage, array_here
from replicax._src.variable import (
    Change,
    Holder,
    Scatter,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    holder_of,
)


def offsets_of(rows: int, parts: int) -> list[int]:
    """Returns where the parts begin, and where the last one ends: the first ones are larger."""
    parts = min(parts, rows)
    base, extra = divmod(rows, parts)
    return [0, *itertools.accumulate(base + (index < extra) for index in range(parts))]


@final
@jax.tree_util.register_pytree_node_class
class ShardedVariable(Variable):
    """A variable in parts. Made by the strategy, never directly.

    It is read and assigned as one. `sparse_read`, `scatter_add` and the like, and
    `rx.nn.embedding_lookup`, move only the rows that they need.
    """

    def __init__(
        self,
        view: View,
        make_part: Callable[[int, str, np.ndarray], ServerVariable],
        offsets: Callable[[tuple[int, ...], Any], list[int]],
        **kwargs: Any,
    ):
        """
        Args:
          view: that of this process.
          make_part: makes a part, of its number, name and first value.
          offsets: where the parts begin, of a shape and dtype.
          **kwargs: those of `rx.Variable`.
        """
        self._make_part = make_part
        self._choose_offsets = offsets
        super().__init__(**kwargs, strategy=view.strategy)

    @override
    def _start(self, mesh: ReplicaMesh | None, value: jax.Array) -> None:
        self._device: Device = default_device()
        host = np.asarray(value)
        name = self.name.removesuffix(":0")
        self._offsets = self._choose_offsets(value.shape, value.dtype)
        self._pieces = [
            self._make_part(index, f"{name}/part_{index}", host[start:stop])
            for index, (start, stop) in enumerate(itertools.pairwise(self._offsets))
        ]
        del self._make_part, self._choose_offsets

    @classmethod
    def of_parts(
        cls, view: View, pieces: Sequence[ServerVariable], offsets: list[int], common: Sequence[Any]
    ) -> ShardedVariable:
        """Returns a variable whose parts are there already."""
        new = object.__new__(cls)
        new._device = default_device()
        new._pieces = list(pieces)
        new._offsets = offsets
        new._init_common(*common, view.strategy)
        return new

    @classmethod
    def part_by_part(
        cls,
        view: View,
        make_part: Callable[[int, str, Any], ServerVariable],
        offsets: list[int],
        values: MadeInParts,
        *,
        name: str | None = None,
        trainable: bool | None = None,
        constraint: Callable[..., Any] | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        **_: object,
    ) -> ShardedVariable:
        """Returns a new variable, of which only one part at a time has been here.

        Args:
          view: that of this process.
          make_part: makes a part, of its number, name and first value.
          offsets: where the parts begin.
          values: of the parts.
          name: that of `rx.Variable`, as all that follow.
          trainable: likewise.
          constraint: likewise.
          synchronization: likewise.
          aggregation: likewise.
        """
        new = object.__new__(cls)
        new._device = default_device()
        new._init_common(name, trainable, constraint, synchronization, aggregation, view.strategy)
        new._offsets = offsets
        new._pieces = [
            make_part(index, f"{name or 'Variable'}/part_{index}", values.part(start, stop))
            for index, (start, stop) in enumerate(itertools.pairwise(offsets))
        ]
        return new

    def _init_common(self, *args: Any) -> None:
        super()._init_common(*args)

    @property
    def common(self) -> tuple[Any, ...]:
        """What another process makes it of, beside its parts."""
        return (
            self.name.removesuffix(":0"),
            self.trainable,
            self.constraint,
            self.synchronization,
            self.aggregation,
        )

    @property
    def variables(self) -> list[ServerVariable]:
        """The parts, as variables of their own."""
        return list(self._pieces)

    @property
    def offsets(self) -> list[int]:
        """The number of the first row of each part, and the number of all rows."""
        return list(self._offsets)

    @property
    @override
    def _holder(self) -> Holder | None:
        return holder_of(self._pieces[0])

    @property
    @override
    def device(self) -> str:
        """The servers that hold the parts."""
        return ", ".join(piece.device for piece in self._pieces)

    @property
    def _template(self) -> Any:
        first = self._pieces[0]
        return jax.ShapeDtypeStruct((self._offsets[-1], *first.shape[1:]), first.dtype)

    # Its value.

    @property
    def _stored(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return AtServer(self)

    def assembled(self) -> jax.Array:
        """Returns all rows."""
        return jnp.concatenate([piece.held.assembled for piece in self._pieces])

    def load(self) -> Storage:
        """Returns storage with all rows."""
        return OneBuffer(self.assembled())

    @override
    def _settled(self) -> Storage:
        return self.load()

    @override
    def _store(self, storage: Storage) -> None:
        array = storage.assembled
        for piece, (start, stop) in zip(self._pieces, itertools.pairwise(self._offsets)):
            piece.assign(array[start:stop])
        storage.leave()

    @override
    def _update(self, how: Change, value: jax.Array | Mirrored) -> None:
        array = array_here(value)
        for piece, (start, stop) in zip(self._pieces, itertools.pairwise(self._offsets)):
            piece.change(how, array[start:stop])

    @override
    def _read(self) -> jax.Array:
        return jnp.concatenate([piece.read_value() for piece in self._pieces])

    # Rows.

    def split_rows(self, rows: np.ndarray) -> Iterator[tuple[ServerVariable, np.ndarray, Any]]:
        """Yields parts that have some of the rows, their numbers there, and which these are."""
        owners = np.searchsorted(self._offsets, rows, side="right") - 1
        for index, piece in enumerate(self._pieces):
            mine = np.flatnonzero(owners == index)
            if len(mine):
                yield piece, rows[mine] - self._offsets[index], mine

    def split_whole(self, array: np.ndarray) -> Iterator[tuple[ServerVariable, np.ndarray]]:
        """Yields each part with its rows of an array."""
        for piece, (start, stop) in zip(self._pieces, itertools.pairwise(self._offsets)):
            yield piece, array[start:stop]

    @override
    def _scatter(self, how: Scatter, indices: jax.Array, values: jax.Array) -> None:
        def eagerly() -> None:
            if indices.shape[1] > 1:
                super(ShardedVariable, self)._scatter(how, indices, values)
                return
            host = np.asarray(values)
            for piece, rows, mine in self.split_rows(np.asarray(indices)[:, 0]):
                piece.scatter_rows(how, rows, host[mine])

        def in_program() -> None:
            super(ShardedVariable, self)._scatter(how, indices, values)

        world().pick(eagerly, in_program)()

    @override
    def sparse_read(self, indices: ArrayInput, name: str | None = None) -> jax.Array:
        """Returns the rows with these numbers; only they are read from the servers."""
        return world().pick(self._sparse_read, super().sparse_read)(indices)

    def _sparse_read(self, indices: ArrayInput) -> jax.Array:
        places = checked_rows(indices, self.shape, self.name)
        flat = places.reshape(-1)
        found = np.empty((len(flat), *self.shape[1:]), self.dtype)
        for piece, rows, mine in self.split_rows(flat):
            found[mine] = piece.read_rows(rows)
        return jnp.asarray(found.reshape(*places.shape, *self.shape[1:]))

    @override
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise TypeError(
            f"Variable {self.name!r} is on parameter servers, and cannot be copied. Make another "
            "one from its value: rx.Variable(variable.read_value())."
        )
