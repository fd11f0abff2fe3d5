"""How the value of a variable gets into a program, and out of it."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, final

import jax

from replicax._src.devices import put
from replicax._src.functions._place import Place
from replicax._src.functions._retry import NotOneProgram, OtherDevicesNeeded
from replicax._src.variable import (
    SyncOnReadVariable,
    Variable,
    devices_of,
    mesh_of,
    own_storage,
    settled_storage,
)


@final
class Passage(enum.Enum):
    """How the value of a variable gets into a program, and out of it."""

    WHOLE = enum.auto()
    """As it lies on the program's devices."""
    VALUE = enum.auto()
    """From other devices, and to them."""
    COPY = enum.auto()
    """That of the one replica that the program is for."""
    EMPTY = enum.auto()
    """Not at all: it has no items, which programs for several devices cannot take."""


@dataclasses.dataclass(eq=False)
class Entry:
    """A variable in a program.

    Attributes:
      variable: the variable.
      passage: how it gets in and out.
      value: its value now; of a variable that is cut over the replicas, each one's part.
      cut: the dimension in which it is.
      ref: the mutable cell that has the value instead, if an inner function (the body of a loop,
        a branch) assigns it.
      is_read_inside: whether an inner function has read it without one.
      written: whether the program changes it.
      gathered: what replicas have a part of, put together for all.
    """

    variable: Variable
    passage: Passage
    value: Any
    cut: int | None = None
    ref: Any = None
    is_read_inside: bool = False
    written: bool = False
    gathered: Any = None


def passage_of(variable: Variable, place: Place) -> Passage:
    """Returns how a variable gets into a program that runs at `place`.

    Raises:
      OtherDevicesNeeded: the program must be for the variable's devices.
      NotOneProgram: no program can have it.
    """
    if place.by_value:
        return Passage.VALUE
    mesh = mesh_of(variable)
    if place.mesh is not None and 0 in variable.shape:
        return Passage.EMPTY
    if place.replica is not None and mesh is not None and mesh.size > 1:
        return Passage.COPY
    if mesh is place.mesh:
        return Passage.WHOLE
    if place.mesh is None and place.replica is None:
        assert mesh is not None
        if not mesh.is_one_device:
            raise OtherDevicesNeeded(mesh.devices)
        return Passage.WHOLE
    if isinstance(variable, SyncOnReadVariable) and mesh is not None and mesh.size > 1:
        raise NotOneProgram(
            f"variable {variable.name!r} has copies on other devices than the function's"
        )
    return Passage.VALUE


def array_for(variable: Variable, passage: Passage, place: Place) -> jax.Array:
    """Returns the variable's value, as a program takes it."""
    if passage is Passage.WHOLE:
        if place.mesh is not None or devices_of(variable) == place.devices:
            return own_storage(variable).assembled
    if passage is Passage.COPY:
        return settled_storage(variable).component(place.replica)
    value = settled_storage(variable).component(0)
    if place.mesh is None:
        return put(value, place.devices[0])
    return place.mesh.spread(value)
