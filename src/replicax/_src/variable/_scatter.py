"""Changes of single rows or items: `variable.scatter_add(...)` and its companions.

In replica context the replicas' changes are combined by the variable's aggregation, as
TensorFlow's are: those of all replicas are carried out (`SUM`; `MEAN` divides the values by the
number of replicas first), or the first replica's.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, Self, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._arrays import as_array
from replicax._src._typing import ArrayInput, Tracer, override
from replicax._src.variable._conversion import converted


@final
class IndexedSlices(NamedTuple):
    """Some rows of an array: `values[i]` is for the row `indices[i]`.

    What `variable.scatter_add` and its companions take.

    >>> import replicax as rx
    >>> v = rx.Variable([1.0, 2.0, 3.0])
    >>> _ = v.scatter_add(rx.IndexedSlices(values=[10.0, 20.0], indices=[0, 2]))
    >>> v.numpy()
    array([11.,  2., 23.], dtype=float32)

    Attributes:
      values: the rows.
      indices: their numbers, of one shape with the first dimensions of `values`.
      dense_shape: kept for ported code.
    """

    values: Any
    indices: Any
    dense_shape: Any = None


@final
class Scatter(enum.Enum):
    """How items are changed; written as the last part of the methods' names."""

    ADD = "add"
    SUB = "sub"
    UPDATE = "update"
    MIN = "min"
    MAX = "max"
    MUL = "mul"
    DIV = "div"

    @override
    def __str__(self) -> str:
        return f"scatter_{self.value}"

    @property
    def repeats(self) -> bool:
        """Whether changes of all replicas can be carried out one after the other, in any order."""
        return self not in (Scatter.UPDATE, Scatter.MIN, Scatter.MAX)

    def of(self, old: jax.Array, indices: jax.Array, values: jax.Array) -> jax.Array:
        """Returns `old` with the items at `indices`, along the last dimension, changed."""
        places = old.at[_places(indices)]
        if self is Scatter.ADD:
            return places.add(values)
        if self is Scatter.SUB:
            return places.subtract(values)
        if self is Scatter.UPDATE:
            return places.set(values)
        if self is Scatter.MIN:
            return places.min(values)
        if self is Scatter.MAX:
            return places.max(values)
        if self is Scatter.MUL:
            return places.multiply(values)
        # Also of integers, and where a place comes twice.
        ones: jax.Array = jnp.ones_like(old)  # pyright: ignore[reportUnknownMemberType]
        return jax.lax.div(old, ones.at[_places(indices)].multiply(values))


def _places(indices: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(indices[:, column] for column in range(indices.shape[1]))


class Scattering:
    """The methods of variables that read and change single rows or items."""

    name: Any
    shape: Any
    dtype: Any
    value: Any
    assign: Any
    assign_add: Any
    assign_sub: Any

    # Rows.

    def scatter_add(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Self:
        """Adds the values of an `rx.IndexedSlices` to the rows that it names.

        In replica context the changes of all replicas are carried out (aggregation `SUM`), with
        the values divided by the number of replicas (`MEAN`), or the first replica's. So do the
        others; but `scatter_update`, `scatter_min` and `scatter_max` take the first replica's only.

        Returns the variable. `use_locking` and `name` are kept for ported code.
        """
        return self._scatter_rows(Scatter.ADD, sparse_delta)

    def scatter_sub(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Self:
        """Subtracts the values of an `rx.IndexedSlices`: see `scatter_add`."""
        return self._scatter_rows(Scatter.SUB, sparse_delta)

    def scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Self:
        """Sets the rows that an `rx.IndexedSlices` names: see `scatter_add`."""
        return self._scatter_rows(Scatter.UPDATE, sparse_delta)

    def scatter_min(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Self:
        """Makes rows the minimum of themselves and an `rx.IndexedSlices`: see `scatter_add`."""
        return self._scatter_rows(Scatter.MIN, sparse_delta)

    def scatter_max(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Self:
        """Makes rows the maximum of themselves and an `rx.IndexedSlices`: see `scatter_add`."""
        return self._scatter_rows(Scatter.MAX, sparse_delta)

    def scatter_mul(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Self:
        """Multiplies rows by the values of an `rx.IndexedSlices`: see `scatter_add`."""
        return self._scatter_rows(Scatter.MUL, sparse_delta)

    def scatter_div(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Self:
        """Divides rows by the values of an `rx.IndexedSlices`: see `scatter_add`."""
        return self._scatter_rows(Scatter.DIV, sparse_delta)

    def batch_scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Self:
        """Sets `v[i, ..., indices[i, ..., j]] = values[i, ..., j]` for an `rx.IndexedSlices`."""
        values, indices = _slices(sparse_delta, "batch_scatter_update")
        if indices.ndim == 0 or indices.shape[:-1] != self.shape[: indices.ndim - 1]:
            raise ValueError(
                f"batch_scatter_update of {self.name!r}, which has shape {self.shape}: `indices` "
                f"has shape {indices.shape}, but all of its dimensions except the last must be the "
                "variable's first."
            )
        grid = np.indices(indices.shape)[:-1]
        return self._scatter_nd(Scatter.UPDATE, jnp.stack([*grid, indices], axis=-1), values)

    def sparse_read(self, indices: ArrayInput, name: str | None = None) -> jax.Array:
        """Returns the rows with these numbers."""
        return self.gather_nd(_integers(indices, "sparse_read")[..., None])

    # Items.

    def scatter_nd_add(
        self, indices: ArrayInput, updates: ArrayInput, name: str | None = None
    ) -> Self:
        """Adds `updates[i]` at `indices[i]`, an index into the first dimensions."""
        return self._scatter_nd(Scatter.ADD, indices, updates)

    def scatter_nd_sub(
        self, indices: ArrayInput, updates: ArrayInput, name: str | None = None
    ) -> Self:
        """Subtracts `updates[i]` at `indices[i]`, an index into the first dimensions."""
        return self._scatter_nd(Scatter.SUB, indices, updates)

    def scatter_nd_update(
        self, indices: ArrayInput, updates: ArrayInput, name: str | None = None
    ) -> Self:
        """Sets what is at `indices[i]`, an index into the first dimensions, to `updates[i]`."""
        return self._scatter_nd(Scatter.UPDATE, indices, updates)

    def scatter_nd_min(
        self, indices: ArrayInput, updates: ArrayInput, name: str | None = None
    ) -> Self:
        """Makes what is at `indices[i]` the minimum of itself and `updates[i]`."""
        return self._scatter_nd(Scatter.MIN, indices, updates)

    def scatter_nd_max(
        self, indices: ArrayInput, updates: ArrayInput, name: str | None = None
    ) -> Self:
        """Makes what is at `indices[i]` the maximum of itself and `updates[i]`."""
        return self._scatter_nd(Scatter.MAX, indices, updates)

    def gather_nd(self, indices: ArrayInput, name: str | None = None) -> jax.Array:
        """Returns what is at these indices, which are along the last dimension of `indices`."""
        places = _integers(indices, "gather_nd")
        self._check_places(places, "gather_nd")
        return self.value()[tuple(jnp.moveaxis(places, -1, 0))]

    # How it is done.

    def _scatter_rows(self, how: Scatter, sparse_delta: IndexedSlices) -> Self:
        values, indices = _slices(sparse_delta, str(how))
        return self._scatter_nd(how, indices[..., None], values)

    def _scatter_nd(self, how: Scatter, indices: ArrayInput, updates: ArrayInput) -> Self:
        places = _integers(indices, str(how))
        self._check_places(places, str(how))
        values = converted(updates, how, self.name, self.dtype)
        depth = places.shape[-1]
        rest = self.shape[depth:]
        if values.shape not in ((), (*places.shape[:-1], *rest)):
            raise ValueError(
                f"{how} of {self.name!r}, which has shape {self.shape}: indices for "
                f"{places.shape[:-1]} places need values of shape {(*places.shape[:-1], *rest)}; "
                f"got {values.shape}."
            )
        count = int(np.prod(places.shape[:-1]))
        values = jnp.broadcast_to(values, (*places.shape[:-1], *rest)).reshape(count, *rest)
        self._scatter(how, places.reshape(count, depth), values)
        return self

    def _check_places(self, places: jax.Array, what: str) -> None:
        if places.ndim == 0 or not 0 < places.shape[-1] <= len(self.shape):
            raise ValueError(
                f"{what} of {self.name!r}, which has shape {self.shape}: the last dimension of "
                f"`indices` is an index into it; got indices of shape {places.shape}."
            )
        if isinstance(places, Tracer):
            return  # JAX leaves out what is not there
        sizes = np.array(self.shape[: places.shape[-1]])
        wrong = np.asarray(places)[np.any((places < 0) | (places >= sizes), axis=-1)]
        if len(wrong):
            raise IndexError(
                f"{what} of {self.name!r}, which has shape {self.shape}: the index "
                f"{wrong[0].tolist()} is outside of it."
            )

    def _scatter(self, how: Scatter, indices: jax.Array, values: jax.Array) -> None:
        """Changes a variable whose copies, if it has any, need not agree about it here."""
        if how in (Scatter.ADD, Scatter.SUB):
            zeros: jax.Array = jnp.zeros(self.shape, self.dtype)  # pyright: ignore[reportUnknownMemberType]
            delta = Scatter.ADD.of(zeros, indices, values)
            self.assign_add(delta) if how is Scatter.ADD else self.assign_sub(delta)
        else:
            self.assign(how.of(self.value(), indices, values))


def _slices(sparse_delta: IndexedSlices, what: str) -> tuple[Any, jax.Array]:
    if not hasattr(sparse_delta, "indices") or not hasattr(sparse_delta, "values"):
        raise TypeError(
            f"{what} takes an rx.IndexedSlices(values=..., indices=...); got {sparse_delta!r}."
        )
    return sparse_delta.values, _integers(sparse_delta.indices, what)


def _integers(indices: object, what: str) -> jax.Array:
    array = as_array(indices)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        if array.size == 0:
            return array.astype(jnp.int32)
        raise TypeError(f"{what}: `indices` must be integers; got {array.dtype}.")
    return array
