"""The first value of a variable with copies, until all workers have that of the first one."""

from __future__ import annotations

from typing import Any, final

import jax

from replicax._src._typing import override
from replicax._src.devices import Layout, ReplicaMesh
from replicax._src.values import Storage, UnsettledStorage, buffers_for, kind_for


@final
class Start(UnsettledStorage):
    """The storage of a new variable.

    Other workers make the same variable, perhaps from other values: the first worker's is the one
    that counts. They compare what they have for many variables at a time, at the end of the scope,
    or before, when one of them needs the value.
    """

    __slots__ = ("_begun", "_error", "_layout", "_look", "mesh", "value")

    def __init__(self, mesh: ReplicaMesh, layout: Layout, value: jax.Array):
        self.mesh = mesh
        self.value: Any = value
        self._layout = layout
        self._look = jax.ShapeDtypeStruct(value.shape, value.dtype)
        self._begun: Storage | None = None
        self._error: Exception | None = None

    def begin(self, value: jax.Array) -> None:
        """Lays out the value that the variable starts from."""
        if self._begun is None:
            array = self.mesh.spread(value, self._layout)
            self._begun = buffers_for(self.mesh, self._layout, array)
        self.value = None

    def fail(self, error: Exception) -> None:
        """Notes why there is no value: the workers have made different variables."""
        self._error, self.value = error, None

    @property
    def now(self) -> Storage:
        """The storage with the value, if that is known by now."""
        return self._begun or self

    @override
    def arrive(self) -> None:
        if self._begun is None and self._error is None:
            self.mesh.await_beginning(self)

    @override
    def settled(self) -> Storage:
        self.arrive()
        if self._begun is None:
            assert self._error is not None
            raise self._error
        return self._begun

    @property
    @override
    def kind(self) -> type[Storage]:
        return kind_for(self._layout)

    @property
    @override
    def exclusive(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.settled().exclusive

    @property
    @override
    def assembled(self) -> Any:
        return self.settled().assembled

    @property
    @override
    def look(self) -> jax.ShapeDtypeStruct:
        return self._look
