"""An optimizer on a server: it updates whole arrays, or some of their rows, with their state."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src.parameter_servers._messages import Gradient, Key, OptimizerSpec, Part
from replicax._src.training import UpdateRule, structured

if TYPE_CHECKING:
    from replicax._src.parameter_servers._server import Held

_SMALLEST = 64  # rows in one update are rounded up to a power of two, not below this


class Program(Protocol):
    """The compiled update of some arrays."""

    def __call__(
        self,
        gradients: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        states: Sequence[dict[str, np.ndarray]],
        shared: dict[str, np.ndarray],
    ) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
        """Returns new values, each one's new state, and what belongs to none of them."""
        ...


class ForeignRule(abc.ABC):
    """What an optimizer of another library does, in the place of a transformation of optax."""

    @abc.abstractmethod
    def program(self, positions: Sequence[int]) -> Program:
        """Returns the update of the variables at some positions."""


@final
class ServerOptimizer:
    """One optimizer, and the arrays of this server that it updates."""

    def __init__(self, spec: OptimizerSpec):
        self._spec = spec
        self._parts = {part.key: part for part in spec.parts}
        self._programs: dict[Any, Program] = {}

    def keys(self, given: Sequence[Key]) -> list[Key]:
        """Returns the keys of all arrays that take part in an update of the given ones."""
        given = list({*given, *(part.key for part in self._stand_in())})
        slots = [key for each in given for key in self._parts[each].slots.values()]
        return [*given, *slots, *self._spec.shared.values()]

    def apply(self, gradients: Sequence[Gradient], held: dict[Key, Held]) -> None:
        """Makes a step. What belongs to no variable, such as a count of steps, changes once.

        Also in a step without gradients for this server, so that it is the same on all servers.
        """
        shared = {label: held[key].array for label, key in self._spec.shared.items()}
        new_shared = shared
        given = [each for each in gradients if each.rows is None or len(each.rows)]
        for group in _groups(given):
            targets = [self._target(each, held) for each in group]
            positions = [each.position for each in group]
            new, new_state, new_shared = self._changed(targets, positions, shared)
            for target, value, slots in zip(targets, new, new_state, strict=True):
                target.write(value, slots)
        if not given:
            for part in self._stand_in():
                target = self._target(_without_effect(part, held[part.key].array), held)
                _, _, new_shared = self._changed([target], [part.position], shared)
        for label, value in new_shared.items():
            if value is not shared[label]:
                held[self._spec.shared[label]].array = value

    def _stand_in(self) -> list[Part]:
        """Returns an array for steps without gradients; none if there is nothing to change."""
        return self._spec.parts[:1] if self._spec.shared else []

    def _changed(
        self,
        targets: Sequence[_Whole | _SomeRows],
        positions: Sequence[int],
        shared: dict[str, np.ndarray],
    ) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
        """Returns what a step makes of values, of their state, and of what belongs to none."""
        values = [each.value for each in targets]
        program = self._program(tuple(positions), values)
        gradients = [each.gradient for each in targets]
        return program(gradients, values, [each.state for each in targets], shared)

    def _target(self, gradient: Gradient, held: dict[Key, Held]) -> _Whole | _SomeRows:
        value = held[gradient.key]
        state = {label: held[key] for label, key in self._parts[gradient.key].slots.items()}
        if gradient.rows is None:
            return _Whole(gradient.values, value, state)
        return _SomeRows(gradient.values, gradient.rows, value, state)

    def _program(self, positions: tuple[int, ...], values: Sequence[np.ndarray]) -> Program:
        key = (positions, tuple(value.shape for value in values))
        found = self._programs.get(key)
        if found is None and isinstance(self._spec.transformation, ForeignRule):
            found = self._programs[key] = self._spec.transformation.program(positions)
        if found is None:
            looks = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
            found = self._programs[key] = _Program(self._spec, positions, looks)
        return found


@final
class _Whole:
    """An array that is updated as a whole, with its state."""

    def __init__(self, gradient: np.ndarray, held: Held, slots: dict[str, Held]):
        self.gradient = gradient
        self.value = held.array
        self.state = {label: slot.array for label, slot in slots.items()}
        self._held = held
        self._slots = slots

    def write(self, value: np.ndarray, state: dict[str, np.ndarray]) -> None:
        """Takes the new value, and the new state."""
        self._held.array = value
        for label, new in state.items():
            self._slots[label].array = new


@final
class _SomeRows:
    """Some rows of an array, with their state. So many that there are few programs."""

    def __init__(self, gradient: np.ndarray, rows: np.ndarray, held: Held, slots: dict[str, Held]):
        count = len(rows)
        size = max(_SMALLEST, 1 << (count - 1).bit_length())
        padded = np.zeros(size, rows.dtype)
        padded[:count] = rows
        self.gradient = np.zeros((size, *gradient.shape[1:]), gradient.dtype)
        self.gradient[:count] = gradient
        self.value = np.take(held.array, padded, axis=0)
        self._in_rows = {label for label in slots if slots[label].array.shape == held.array.shape}
        self.state = {
            label: np.take(slot.array, padded, axis=0) if label in self._in_rows else slot.array
            for label, slot in slots.items()
        }
        self._rows = rows
        self._held = held
        self._slots = slots

    def write(self, value: np.ndarray, state: dict[str, np.ndarray]) -> None:
        """Takes the new rows, and their new state."""
        count = len(self._rows)
        self._held.writable()[self._rows] = value[:count]
        for label, new in state.items():
            if label in self._in_rows:
                self._slots[label].writable()[self._rows] = new[:count]
            else:
                self._slots[label].array = new


def _without_effect(part: Part, array: np.ndarray) -> Gradient:
    """Returns a gradient of zeros for a part: where there are rows, for one of them."""
    if not array.shape or not len(array):
        return Gradient(part.position, part.key, np.zeros_like(array))
    zeros = np.zeros((1, *array.shape[1:]), array.dtype)
    return Gradient(part.position, part.key, zeros, np.zeros(1, np.int64))


def _groups(gradients: Sequence[Gradient]) -> list[list[Gradient]]:
    """Returns the gradients such that no group has two parts of one variable."""
    groups: list[list[Gradient]] = []
    for gradient in gradients:
        for group in groups:
            if all(each.position != gradient.position for each in group):
                group.append(gradient)
                break
        else:
            groups.append([gradient])
    return groups


@final
class _Program:
    """That of a transformation of optax."""

    def __init__(
        self,
        spec: OptimizerSpec,
        positions: Sequence[int],
        looks: Sequence[jax.ShapeDtypeStruct],
    ):
        everything: list[Any] = [None] * len(spec.constraints)
        for position, look in zip(positions, looks, strict=True):
            everything[position] = look
        self._positions = positions
        self._count = len(everything)
        initial = jax.eval_shape(
            lambda: spec.transformation.init(
                structured(
                    spec.tree,
                    [
                        None if look is None else jnp.zeros(look.shape, look.dtype)
                        for look in everything
                    ],
                )
            )
        )
        present = tuple(look is not None for look in everything)
        rule = UpdateRule(spec.transformation, spec.constraints, spec.tree, initial, present)
        self._places = list(zip(rule.owners, rule.labels, strict=True))
        self._run: Callable[..., Any] = jax.jit(functools.partial(rule, present))

    def __call__(
        self,
        gradients: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        states: Sequence[dict[str, np.ndarray]],
        shared: dict[str, np.ndarray],
    ) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
        order = {position: index for index, position in enumerate(self._positions)}
        everything: list[Any] = [None] * self._count
        for position, index in order.items():
            everything[position] = values[index]
        state = [
            shared[label] if owner is None else states[order[owner]][label]
            for owner, label in self._places
        ]
        in_order = [gradients[order[position]] for position in sorted(order)]
        found = self._run(in_order, everything, state)
        new_values, new_state = jax.tree_util.tree_map(np.asarray, found)
        own: list[dict[str, np.ndarray]] = [{} for _ in values]
        new_shared = dict(shared)
        for (owner, label), value in zip(self._places, new_state, strict=True):
            (new_shared if owner is None else own[order[owner]])[label] = value
        return [new_values[position] for position in self._positions], own, new_shared
