"""Which arrays on which servers a variable is, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from replicax._src.parameter_servers._embedding import Rows
from replicax._src.parameter_servers._messages import Gradient
from replicax._src.parameter_servers._sharded import ShardedVariable
from replicax._src.parameter_servers._variable import ServerVariable, Spec
from replicax._src.variable import Variable


def pieces_of(variable: Variable) -> list[ServerVariable]:
    """Returns the variables without parts that a variable consists of."""
    if isinstance(variable, ShardedVariable):
        return variable.variables
    assert isinstance(variable, ServerVariable)
    return [variable]


def server_numbers(variable: Variable) -> set[int]:
    """Returns the servers that hold a variable, or parts of it."""
    return {server for each in pieces_of(variable) for server in each.spec.servers}


def table_of(variable: Variable) -> Variable:
    """Returns the table that rows are of; of another variable, itself."""
    return variable.table if isinstance(variable, Rows) else variable


def summed(gradients: Sequence[Gradient]) -> Gradient:
    """Returns the sum of gradients of one array, some of which may be for rows alone."""
    first, *others = gradients
    if not others:
        return first
    whole = [each.values for each in gradients if each.rows is None]
    some = [(each.rows, each.values) for each in gradients if each.rows is not None]
    if whole:
        values = np.array(sum(whole[1:], start=whole[0]))
        for rows, of_rows in some:
            values[rows] += of_rows  # each row is there once
        return first._replace(values=values, rows=None)
    rows = np.unique(np.concatenate([each for each, _ in some]))
    values = np.zeros((len(rows), *first.values.shape[1:]), first.values.dtype)
    for each, of_rows in some:
        values[np.searchsorted(rows, each)] += of_rows
    return first._replace(values=values, rows=rows)


def gradients_of(
    variable: Variable, position: int, gradient: np.ndarray
) -> Iterator[tuple[Spec, Gradient]]:
    """Yields what the servers are told of the gradient of a variable."""
    if isinstance(variable, Rows):
        yield from variable.gradients(position, gradient)
    elif isinstance(variable, ShardedVariable):
        for piece, part in variable.split_whole(gradient):
            yield piece.spec, Gradient(position, piece.spec.key, part)
    else:
        assert isinstance(variable, ServerVariable)
        yield variable.spec, Gradient(position, variable.spec.key, gradient)
