"""`ServerVariable`: a variable whose value is on a server.

In the process of the coordinator it is read and changed there at each use. On a worker a step has
a view of it: read from the server once, changed here, with what is to be done to the server noted.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import ArrayInput, Device, override
from replicax._src.collectives import default_device
from replicax._src.context import world
from replicax._src.devices import ReplicaMesh
from replicax._src.parameter_servers._messages import Key
from replicax._src.values import Mirrored, OneBuffer, Storage, array_here
from replicax._src.variable import (
    Change,
    Holder,
    Scatter,
    Variable,
    VariableAggregation,
    VariableSynchronization,
)


@final
class Spec(NamedTuple):
    """All that a process has to know of a variable on the servers.

    Attributes:
      key: the number of its array.
      servers: those that hold it; all of them are changed, and the first one is read.
      name: of the variable.
      shape: of the value.
      dtype: of the value.
      trainable: whether optimizers should change it.
      constraint: applied by optimizers.
      synchronization: as it was asked for.
      aggregation: as it was asked for.
    """

    key: Key
    servers: tuple[int, ...]
    name: str
    shape: tuple[int, ...]
    dtype: Any
    trainable: bool
    constraint: Callable[..., Any] | None
    synchronization: VariableSynchronization
    aggregation: VariableAggregation


class View(Protocol):
    """How a process sees the variables on the servers: see `_coordinator_view`, `_worker_view`."""

    strategy: Any

    @property
    def holder(self) -> Holder | None:
        """The processes that can write the values, if this one may ask them to."""
        ...

    def start(self, variable: ServerVariable, value: np.ndarray) -> None:
        """Creates the value of a new variable on its servers."""
        ...

    def load(self, variable: ServerVariable) -> Storage:
        """Returns storage with the value of a variable."""
        ...

    def stored(self, variable: ServerVariable, storage: Storage) -> Storage:
        """Takes note that a program has written a variable; returns what it has from now on."""
        ...

    def change(self, variable: ServerVariable, how: Change, value: np.ndarray) -> None:
        """Changes a variable, eagerly."""
        ...

    def change_in_program(
        self, variable: ServerVariable, how: Change, value: jax.Array, update: Callable[[], None]
    ) -> None:
        """Changes a variable in a program that is being traced; `update` does it here."""
        ...

    def change_rows(
        self, variable: ServerVariable, how: Scatter, rows: np.ndarray, values: np.ndarray
    ) -> None:
        """Changes rows of a variable, eagerly."""
        ...

    def rows(self, variable: ServerVariable, rows: np.ndarray) -> np.ndarray:
        """Returns rows of a variable."""
        ...

    def dropped(self, spec: Spec) -> None:
        """Takes note that nobody has a variable any more."""
        ...


class Loads(Protocol):
    """A variable that can read its value from servers."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    def load(self) -> Storage:
        """Returns storage with the value."""
        ...


@final
class AtServer(Storage):
    """The storage of a variable whose value is not here: it is read when somebody asks for it."""

    __slots__ = ("_variable",)
    is_settled: ClassVar[bool] = False
    exclusive = False
    mesh = None

    def __init__(self, variable: Loads):
        self._variable = variable

    @property
    @override
    def kind(self) -> type[Storage]:
        return OneBuffer

    @override
    def component(self, replica_id: object) -> Any:
        return self.settled().component(replica_id)

    @property
    @override
    def assembled(self) -> Any:
        return self.settled().assembled

    @property
    @override
    def look(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self._variable.shape, self._variable.dtype)

    @override
    def settled(self) -> Storage:
        return self._variable.load()


@jax.tree_util.register_pytree_node_class
class ServerVariable(Variable):
    """A variable on a parameter server. Made by the strategy, never directly."""

    _spec: Spec
    _device: Device

    def __init__(self, view: View, key: Key, servers: tuple[int, ...], **kwargs: Any):
        """
        Args:
          view: that of this process.
          key: the number of its array.
          servers: those that are to hold it.
          **kwargs: those of `rx.Variable`.
        """
        self._view = view
        self._key = key
        self._servers = servers
        super().__init__(**kwargs, strategy=view.strategy)

    @override
    def _start(self, mesh: ReplicaMesh | None, value: jax.Array) -> None:
        self._device = default_device()
        self._spec = Spec(
            self._key,
            self._servers,
            self.name,
            value.shape,
            value.dtype,
            self.trainable,
            self.constraint,
            self.synchronization,
            self.aggregation,
        )
        self._stored = AtServer(self)
        self._view.start(self, np.asarray(value))

    @classmethod
    def of_spec(cls, view: View, spec: Spec) -> ServerVariable:
        """Returns a variable that is on the servers already."""
        new = object.__new__(cls)
        new._view = view
        new._spec = spec
        new._device = default_device()
        new._init_common(
            spec.name.removesuffix(":0"),
            spec.trainable,
            spec.constraint,
            spec.synchronization,
            spec.aggregation,
            view.strategy,
        )
        new._stored = AtServer(new)
        return new

    def _init_common(self, *args: Any) -> None:
        super()._init_common(*args)

    @property
    def spec(self) -> Spec:
        """What other processes have to know of it."""
        return self._spec

    @property
    @override
    def _holder(self) -> Holder | None:
        return self._view.holder

    @property
    @override
    def device(self) -> str:
        """The server that holds the value."""
        return f"/job:ps/replica:0/task:{self._spec.servers[0]}/device:CPU:0"

    @property
    def _template(self) -> Any:
        return self._spec

    # Its value.

    def load(self) -> Storage:
        """Returns storage with the value."""
        return self._view.load(self)

    def keep(self, storage: Storage) -> None:
        """Makes `storage` what holds the value here."""
        super()._store(storage)

    def forget(self) -> None:
        """Forgets the value here: it is on the server alone."""
        super()._store(AtServer(self))

    @property
    def held(self) -> Storage:
        """What holds the value here."""
        return self._stored

    @override
    def _settled(self) -> Storage:
        stored = self._stored
        return stored if stored.is_settled else stored.settled()

    @override
    def _store(self, storage: Storage) -> None:
        kept = self._view.stored(self, storage)
        if kept is not self._stored:
            super()._store(kept)

    @override
    def _update(self, how: Change, value: jax.Array | Mirrored) -> None:
        def update() -> None:
            super(ServerVariable, self)._update(how, value)

        array = array_here(value)
        world().pick(
            lambda: self._view.change(self, how, np.asarray(array)),
            lambda: self._view.change_in_program(self, how, array, update),
        )()

    def change(self, how: Change, value: jax.Array) -> None:
        """Changes the value; `value` has its shape and dtype."""
        self._update(how, value)

    # Rows.

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Returns rows, which are there."""
        return self._view.rows(self, rows)

    def scatter_rows(self, how: Scatter, rows: np.ndarray, values: np.ndarray) -> None:
        """Changes rows, which are there."""
        self._view.change_rows(self, how, rows, values)

    @override
    def _scatter(self, how: Scatter, indices: jax.Array, values: jax.Array) -> None:
        def eagerly() -> None:
            if indices.shape[1] > 1:
                super(ServerVariable, self)._scatter(how, indices, values)
            else:
                self.scatter_rows(how, np.asarray(indices)[:, 0], np.asarray(values))

        def in_program() -> None:
            super(ServerVariable, self)._scatter(how, indices, values)

        world().pick(eagerly, in_program)()

    @override
    def sparse_read(self, indices: ArrayInput, name: str | None = None) -> jax.Array:
        """Returns the rows with these numbers; only they are read from the server."""
        return world().pick(self._sparse_read, super().sparse_read)(indices)

    def _sparse_read(self, indices: ArrayInput) -> jax.Array:
        places = checked_rows(indices, self.shape, self.name)
        rows = self.read_rows(places.reshape(-1))
        return jnp.asarray(rows.reshape(*places.shape, *self.shape[1:]))

    @override
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise TypeError(
            f"Variable {self.name!r} is on a parameter server, and cannot be copied. Make another "
            "one from its value: rx.Variable(variable.read_value())."
        )

    def __del__(self) -> None:
        spec = self.__dict__.get("_spec")
        if spec is not None:
            self._view.dropped(spec)


def checked_rows(indices: object, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Returns numbers of rows as an array; raises for those that are not there."""
    places = np.asarray(array_here(indices))
    if not np.issubdtype(places.dtype, np.integer):
        raise TypeError(f"A look-up in {name!r}: numbers of rows are integers; got {places.dtype}.")
    if places.size and (places.min() < 0 or places.max() >= shape[0]):
        wrong = places[(places < 0) | (places >= shape[0])].reshape(-1)[0]
        raise IndexError(
            f"A look-up in {name!r}, which has shape {shape}: there is no row {wrong}."
        )
    return places


def loaded(value: np.ndarray) -> OneBuffer:
    """Returns storage with a value that came from a server."""
    return OneBuffer(jnp.asarray(value))
