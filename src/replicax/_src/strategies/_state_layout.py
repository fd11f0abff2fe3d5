"""`StateLayout`: which state a strategy cuts over logical devices, and which over replicas."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from replicax._src._typing import Device, PyTree
from replicax._src.devices import (
    PLAIN,
    Layout,
    ReplicaMesh,
    checked_parts,
    plan_of,
    supposed,
    whole_numbers,
)
from replicax._src.variable import Variable, mesh_of

_CHOICES = ("nothing", "optimizer", "everything")


@dataclasses.dataclass(frozen=True)
class StateLayout:
    """Which parts of a model's state each device keeps; the training step stays the same.

    Without a `StateLayout`, every device has a copy of every variable. The `layout` argument of a
    variable takes precedence over the rules.

    >>> import jax.numpy as jnp, replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(
    ...     ["CPU:0", "CPU:1", "CPU:2", "CPU:3"],
    ...     state_layout=rx.distribute.StateLayout(over_replicas="everything"))
    >>> with strategy.scope():
    ...     w = rx.Variable(jnp.zeros((1024, 256)), name="w")
    >>> w.layout
    Layout(parts=(), replica_dim=0)

    Attributes:
      over_replicas: what is cut over the replicas. "nothing"; "optimizer": the state of optimizers
        (known as ZeRO-1): gradients are summed part by part, each replica updates its part, and
        the new parameters are gathered; "everything": the parameters as well (ZeRO-3), which are
        gathered where a step uses them.
      rules: layouts over the logical devices of a replica by name: a dictionary, or pairs, of a
        regular expression and a layout as `rx.Variable` takes it. The first one that is found in
        the name applies.
      min_size: variables with fewer elements are not cut over the replicas, nor are those with no
        dimension that the number of replicas divides.
    """

    over_replicas: str = "nothing"
    rules: Mapping[str, Sequence[int]] | Sequence[tuple[str, Sequence[int]]] = ()
    min_size: int = 4096

    def __post_init__(self) -> None:
        if self.over_replicas not in _CHOICES:
            raise ValueError(
                f"StateLayout: `over_replicas` must be one of {', '.join(map(repr, _CHOICES))}; "
                f"got {self.over_replicas!r}."
            )
        if not isinstance(self.min_size, int | np.integer) or self.min_size < 0:
            raise ValueError(f"StateLayout: `min_size` counts elements; got {self.min_size!r}.")
        pairs = self.rules.items() if isinstance(self.rules, Mapping) else self.rules
        try:
            rules = tuple(
                (re.compile(pattern), whole_numbers(parts, f"the rule {pattern!r}", "layout"))
                for pattern, parts in pairs
            )
        except (TypeError, ValueError, re.error) as error:
            raise ValueError(
                "StateLayout: `rules` is a dictionary from regular expressions to layouts, for "
                f"example {{'ffn/in': [1, 4]}}; got {self.rules!r} ({error})."
            ) from None
        object.__setattr__(self, "_compiled", rules)
        texts = tuple((pattern.pattern, parts) for pattern, parts in rules)
        object.__setattr__(self, "rules", texts)  # one that can be hashed

    def of_variable(
        self, mesh: ReplicaMesh, asked: object, is_mirrored: bool, name: str, shape: tuple[int, ...]
    ) -> Layout:
        """Returns the layout of a new variable.

        Args:
          mesh: the devices of the replicas.
          asked: its own `layout`; None if it has none.
          is_mirrored: whether its copies are equal; others are each replica's own.
          name: of the variable.
          shape: of the variable.
        """
        what = f"Variable {name!r}"
        if isinstance(asked, Layout):
            return _checked(asked, mesh, is_mirrored, what, shape)
        if asked is None:
            rules: Any = self._compiled  # type: ignore[attr-defined]
            for pattern, parts in rules:
                if pattern.search(name.removesuffix(":0")):
                    asked, what = parts, f"{what}, by the rule {pattern.pattern!r}"
                    break
        parts: tuple[int, ...] = ()
        if asked is not None:
            parts = checked_parts(shape, asked, mesh.logical_devices, what, "layout")
            parts = parts if mesh.logical_devices > 1 else ()
        if is_mirrored and self.over_replicas == "everything":
            return Layout(parts, self._replica_dim(mesh, shape, parts))
        return Layout(parts)

    def rule(
        self, mesh: ReplicaMesh, asked: object, is_mirrored: bool
    ) -> Callable[[str, tuple[int, ...]], Layout]:
        """Returns what chooses the layout of a new variable, given its name and shape."""
        return functools.partial(self.of_variable, mesh, asked, is_mirrored)

    def of_slot(self, primary: Variable, shape: tuple[int, ...]) -> Layout:
        """Returns the layout of a part of an optimizer's state that belongs to `primary`."""
        mesh: ReplicaMesh | None = mesh_of(primary)
        if mesh is None:
            return PLAIN
        parts, dim = (), None
        if shape == primary.shape:
            parts, dim = primary.layout.parts, primary.layout.replica_dim
        if dim is not None:
            return Layout(parts, dim)
        if self.over_replicas == "nothing":
            return Layout(parts)
        return Layout(parts, self._replica_dim(mesh, shape, parts))

    def _replica_dim(
        self, mesh: ReplicaMesh, shape: tuple[int, ...], parts: tuple[int, ...]
    ) -> int | None:
        """Returns the first dimension that can be cut: its parts lie in one piece."""
        elements = 1
        for size in shape:
            elements *= size
        if mesh.size == 1 or elements < max(self.min_size, 1):
            return None
        return fitting_dim(shape, parts, mesh.size)


def fitting_dim(shape: tuple[int, ...], parts: tuple[int, ...], replicas: int) -> int | None:
    """Returns the first dimension, of an array in parts, that can be cut over so many replicas."""
    cuts = parts or (1,) * len(shape)
    fitting = (dim for dim, size in enumerate(shape) if size % (replicas * cuts[dim]) == 0)
    return next(fitting, None)


class SplitOverLogical(StateLayout):
    """A layout in which variables that no rule is for are split over logical devices as well."""

    def of_variable(
        self, mesh: ReplicaMesh, asked: object, is_mirrored: bool, name: str, shape: tuple[int, ...]
    ) -> Layout:
        found = super().of_variable(mesh, asked, is_mirrored, name, shape)
        count = mesh.logical_devices
        if found.parts or asked is not None or not is_mirrored or math.prod(shape) < self.min_size:
            return found
        free = [dim for dim, size in enumerate(shape) if size % count == 0]
        free = [dim for dim in free if dim != found.replica_dim] or free
        if not free:
            return found
        largest = max(free, key=lambda dim: shape[dim])
        parts = tuple(count if dim == largest else 1 for dim in range(len(shape)))
        if found == Layout():
            return Layout(parts)
        return Layout(parts, self._replica_dim(mesh, shape, parts))


def layout_for(devices: tuple[Device, ...], layout: StateLayout) -> StateLayout:
    """Returns the layout of a strategy; on planned devices, with what is tried there."""
    if plan_of(devices[0]) is None:
        return layout
    tried = supposed()
    kind = StateLayout if tried.logical_devices is None else SplitOverLogical
    over_replicas = tried.over_replicas or layout.over_replicas
    return kind(over_replicas, layout.rules, layout.min_size)


def _checked(
    asked: Layout, mesh: ReplicaMesh, is_mirrored: bool, what: str, shape: tuple[int, ...]
) -> Layout:
    if asked.parts:
        checked_parts(shape, asked.parts, mesh.logical_devices, what, "layout.parts")
    dim = asked.replica_dim
    if dim is None:
        return asked
    if not is_mirrored:
        raise ValueError(
            f"{what} is each replica's own (synchronization ON_READ), so it cannot be cut over the "
            "replicas. Leave `layout.replica_dim` out, or make it with ON_WRITE."
        )
    cuts = asked.parts or (1,) * len(shape)
    if not 0 <= dim < len(shape) or shape[dim] % (mesh.size * cuts[dim]):
        raise ValueError(
            f"{what} of shape {shape} cannot be cut over {mesh.size} replicas in dimension {dim}: "
            "there must be such a dimension, and its size must be divisible."
        )
    return asked if mesh.size > 1 else Layout(asked.parts)


def as_state_layout(value: PyTree) -> StateLayout:
    if value is None:
        return StateLayout()
    if isinstance(value, StateLayout):
        return value
    raise TypeError(
        f"`state_layout` must be a rx.distribute.StateLayout, for example "
        f"rx.distribute.StateLayout(over_replicas='optimizer'); got {value!r}."
    )
