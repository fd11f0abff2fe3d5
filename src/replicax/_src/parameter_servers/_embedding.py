"""Embeddings: the rows of a table that a step needs, as a variable of their own.

Only these rows come from the servers, each once; their gradients go back as rows.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import ArrayInput, override
from replicax._src.context import world
from replicax._src.parameter_servers._messages import Gradient
from replicax._src.parameter_servers._sharded import ShardedVariable
from replicax._src.parameter_servers._variable import AtServer, ServerVariable, Spec, checked_rows
from replicax._src.values import OneBuffer, Storage, array_here
from replicax._src.variable import Variable


@final
@jax.tree_util.register_pytree_node_class
class Rows(Variable):
    """The rows of a table that `rx.nn.embedding_lookup` has found, in the order of the ids.

    A variable of this worker, with a value of the shape of the ids and that of a row. Use it in
    the loss, differentiate with respect to it, and give it to the optimizer in the place of the
    table.

    Attributes:
      table: the variable that they are rows of.
    """

    def __init__(self, table: Variable, shape: tuple[int, ...], number: int):
        name = f"{table.name.removesuffix(':0')}/rows_{number}"
        self._look = jax.ShapeDtypeStruct((*shape, *table.shape[1:]), table.dtype)
        super().__init__(jnp.zeros(self._look.shape, table.dtype), name=name)
        self.table = table
        self._rows = np.zeros(0, np.int64)
        self._inverse = np.zeros(0, np.int64)

    @property
    @override
    def _template(self) -> Any:
        return self._look

    def stand_for(self, rows: np.ndarray, inverse: np.ndarray, read: Callable[[], None]) -> None:
        """Begins a new step.

        Args:
          rows: the numbers of the rows.
          inverse: which of them each id means.
          read: calls `hold`, when somebody wants the value.
        """
        self._rows = rows
        self._inverse = inverse
        self._read_rows = read
        self._store(AtServer(self))

    def hold(self, values: np.ndarray) -> None:
        """Takes the rows of this step."""
        self._store(OneBuffer(jnp.asarray(values[self._inverse].reshape(self.shape))))

    def load(self) -> Storage:
        """Returns storage with the value."""
        self._read_rows()
        return self._stored

    def gradients(self, position: int, gradient: np.ndarray) -> Iterator[tuple[Spec, Gradient]]:
        """Yields what the servers are told: for each row, the sum of its gradients."""
        width = int(np.prod(self.table.shape[1:], dtype=np.int64))
        each = gradient.reshape(len(self._inverse), width)
        order = np.argsort(self._inverse, kind="stable")
        starts = np.searchsorted(self._inverse[order], np.arange(len(self._rows)))
        sums = np.add.reduceat(each[order], starts, axis=0) if len(starts) else each[:0]
        sums = sums.reshape(len(self._rows), *self.table.shape[1:])
        if isinstance(self.table, ShardedVariable):
            for piece, rows, mine in self.table.split_rows(self._rows):
                yield piece.spec, Gradient(position, piece.spec.key, sums[mine], rows)
        else:
            assert isinstance(self.table, ServerVariable)
            yield self.table.spec, Gradient(position, self.table.spec.key, sums, self._rows)


def embedding_lookup(
    params: ArrayInput, ids: ArrayInput, max_norm: float | None = None, name: str | None = None
) -> Any:
    """Returns the rows of a table with the given numbers.

    Of an array or a variable of this process they are an array. Of a variable on parameter servers,
    in a function on a worker, they are a variable: only these rows are read, and an optimizer that
    is given the gradient for them updates these rows of the table, and no others.

    >>> import jax.numpy as jnp, replicax as rx
    >>> rx.nn.embedding_lookup(jnp.array([[1., 2.], [3., 4.], [5., 6.]]), [2, 0, 2])
    Array([[5., 6.],
           [1., 2.],
           [5., 6.]], dtype=float32)

    Args:
      params: the table: an array or a variable, of which the first dimension is that of the rows.
      ids: integers of any shape.
      max_norm: rows with a larger norm are scaled down to it. Not for tables on servers.
      name: kept for ported code.
    """
    params = getattr(params, "__rx_variable__", params)  # of Keras's
    if isinstance(params, list | tuple) and any(hasattr(part, "shape") for part in params):
        raise TypeError(
            f"embedding_lookup takes one table; got a {type(params).__name__} of {len(params)} "
            "arrays or variables. Pass the table itself, not its parts; make one of arrays with "
            "jnp.concatenate(parts)."
        )
    if isinstance(params, ServerVariable | ShardedVariable):
        if max_norm is not None:
            raise ValueError(
                "embedding_lookup of a table on parameter servers takes no max_norm. Give the "
                "variable a `constraint`, or scale the rows in the loss."
            )
        return params.distribute_strategy.extended.look_up(params, ids)
    array = jnp.asarray(array_here(params))
    found = jnp.take(array, jnp.asarray(array_here(ids)), axis=0)
    if max_norm is None:
        return found
    axes = tuple(range(found.ndim - array.ndim + 1, found.ndim))
    norms = jnp.sqrt(jnp.sum(found * found, axis=axes, keepdims=True))
    return found * (max_norm / jnp.maximum(norms, max_norm))


def unique_rows(table: Variable, ids: ArrayInput) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
    """Returns the shape of ids, the distinct rows, and which of these each id means."""
    world().refuse_in_program(
        lambda: RuntimeError(
            f"rx.nn.embedding_lookup of {table.name!r} inside a compiled function: its rows are on "
            "servers, and a program cannot ask for them. Look them up before, in the function that "
            "is scheduled, and pass what you get to the compiled one: step(rows, labels)."
        )
    )
    places = checked_rows(ids, table.shape, table.name)
    rows, inverse = np.unique(places.reshape(-1), return_inverse=True)
    return places.shape, rows, inverse.reshape(-1)
