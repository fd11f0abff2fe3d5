"""What workers, servers and the coordinator tell each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from replicax._src.training import ParameterTree
from replicax._src.variable import Change, Scatter, Variable

Key = int
"""The number of an array on the servers: of a variable without parts, or of a part."""


@final
class Assignment(NamedTuple):
    """A change of a whole array."""

    key: Key
    how: Change
    value: np.ndarray


@final
class RowChange(NamedTuple):
    """A change of some rows of an array."""

    key: Key
    how: Scatter
    rows: np.ndarray
    values: np.ndarray


@final
class Gradient(NamedTuple):
    """The gradient of an array, or of some of its rows, each of which is there once.

    Attributes:
      position: of the variable among those of the optimizer.
      key: of the array.
      values: the gradient.
      rows: the numbers of the rows that it is for; None for all.
    """

    position: int
    key: Key
    values: np.ndarray
    rows: np.ndarray | None = None


@final
class Update(NamedTuple):
    """One step of an optimizer, as far as one server is concerned."""

    optimizer: str
    gradients: list[Gradient]


@final
class Push(NamedTuple):
    """All that one server is to do after a step.

    Attributes:
      token: which update it is; one that comes again is not carried out again.
      read_at: how many updates the server had made when the values were read; None if none were.
      changes: what happens first.
      updates: what happens then.
    """

    token: tuple[str, int] | None
    read_at: int | None
    changes: list[Assignment | RowChange]
    updates: list[Update]


@final
class Pulled(NamedTuple):
    """What a server answers to one who reads.

    Attributes:
      updates: how many updates it has made.
      values: the arrays that have changed since, with their versions.
      rows: the rows that were asked for.
    """

    updates: int
    values: dict[Key, tuple[int, np.ndarray]]
    rows: list[np.ndarray]


@final
class Exchange(NamedTuple):
    """What a worker tells and asks a server in one call.

    Attributes:
      pushes: what is done first.
      wanted: the versions that the worker has of arrays that it wants to read.
      rows: the rows that it wants to read.
    """

    pushes: list[Push]
    wanted: dict[Key, int]
    rows: list[tuple[Key, np.ndarray]]


@final
class Part(NamedTuple):
    """One array that an optimizer updates, and its own part of the state, by label."""

    position: int
    key: Key
    slots: dict[str, Key]


@final
class OptimizerSpec(NamedTuple):
    """What a server has to know of an optimizer.

    Attributes:
      transformation: of optax, or a `ForeignRule`.
      constraints: of all variables, by position.
      tree: how the transformation sees the variables, if not as a list.
      parts: the arrays of this server.
      shared: the state that belongs to no variable, by label.
    """

    transformation: Any
    constraints: list[Callable[..., Any] | None]
    tree: ParameterTree | None
    parts: list[Part]
    shared: dict[str, Key]


@final
class KnownOptimizer(NamedTuple):
    """What is known of an optimizer whose state is on servers.

    Attributes:
      server_name: by which the servers know it.
      variables: those that it updates.
      counting: the servers with state that belongs to no variable, such as a count of steps. They
        take part in each update, also in one without gradients for them.
    """

    server_name: str
    variables: Sequence[Variable]
    counting: tuple[int, ...]


@final
class LostError(Exception):
    """A server does not have what it is asked for: it was started again, and is empty.

    Attributes:
      server: its number.
      keys: what is missing; nothing, if it has not been told of an optimizer yet.
    """

    def __init__(self, server: int, keys: list[Key]) -> None:
        super().__init__(server, keys)
        self.server = server
        self.keys = keys
