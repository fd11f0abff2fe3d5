"""Variants of one program, that differ in the shapes of their inputs, merged into one.

Replicas whose shares of a batch have different numbers of rows need different programs, and devices
run one. So the function is traced once for each distinct shape of a share. The merged program takes
inputs that are padded to the largest shape, and the number of the variant that this replica needs:

- What all variants compute alike (the optimizer's update, for example) is computed once.
- What they compute in different ways is a `lax.switch`. Each branch cuts the padding off and uses
  the true shapes, so that means and normalizations are exact. Where the compiler divides the work
  of a replica over devices, all branches are computed, and one is picked: such devices meet in
  them.
- Collectives stand outside of the switches, since all replicas have to take part. They cut the
  variants into stages: one switch for each. What is needed later leaves a switch padded again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from replicax._src import _jax_internals
from replicax._src.functions._captured import Shape
from replicax._src.functions._flat_variant import (
    CannotMerge,
    FlatVariant,
    Key,
    Operation,
    Variant,
    key_of,
    number_of_constant,
)


def merge(
    variants: Sequence[Variant],
    which: jax.Array,
    inputs: Sequence[jax.Array],
    may_branch: bool = True,
) -> tuple[list[Any], list[list[Shape]], list[bool]]:
    """Traces the merged program.

    Args:
      variants: in the order that `which` counts them in.
      which: the number of the variant that this replica needs.
      inputs: padded to the largest shape that a variant has for them.
      may_branch: whether replicas may take different ways; if not, each computes all variants.

    Returns:
      The outputs, padded likewise; for each of them its shape in each variant, and whether all
      variants compute it alike.

    Raises:
      CannotMerge: the variants do not meet in the same collectives, or have side effects.
    """
    merging = _Merging([FlatVariant(each) for each in variants], which, inputs, may_branch)
    return merging.outputs()


@dataclasses.dataclass
class _Slot:
    """A value that leaves a switch: of each variant another one, padded to one shape."""

    shape: Shape
    dtype: Any
    value: Any = None


class _Merging:
    """The merged program, while it is traced."""

    def __init__(
        self,
        variants: Sequence[FlatVariant],
        which: jax.Array,
        inputs: Sequence[jax.Array],
        may_branch: bool,
    ):
        self._variants = variants
        self._may_branch = may_branch
        self._which = which
        self._inputs = inputs
        self._common: dict[Hashable, Any] = {}  # by number: what all variants have computed alike
        self._numbers: dict[Hashable, int] = {}
        # For each variant: where its own values are.
        self._slots: list[dict[Key, _Slot]] = [{} for _ in variants]
        self._last_use = [each.last_uses() for each in variants]
        self._number_what_is_given()

    def outputs(self) -> tuple[list[Any], list[list[Shape]], list[bool]]:
        variants = self._variants
        stages = [list(each.stages()) for each in variants]
        if len({len(each) for each in stages}) > 1:
            raise CannotMerge("not all replicas take part in the same collectives")
        done = [0] * len(variants)
        for own in zip(*stages, strict=True):
            done = [before + len(operations) + 1 for before, (operations, _) in zip(done, own)]
            meeting = [collective for _, collective in own if collective is not None]
            self._stage([operations for operations, _ in own], meeting, done)
        wanted = list(zip(*(each.outputs for each in variants), strict=True))
        shapes = [
            [variant.shape(atom) for variant, atom in zip(variants, atoms)] for atoms in wanted
        ]
        values = self._found(wanted, [[]] * len(variants), [[]] * len(variants))
        return values, shapes, [self._is_common(atoms) for atoms in wanted]

    # ------------------------------------------------------------------ stages

    def _stage(
        self,
        operations: Sequence[list[Operation]],
        meeting: Sequence[Operation],
        done: Sequence[int],
    ) -> None:
        """Computes up to the next collective, and that.

        Args:
          operations: of each variant.
          meeting: the collective at the end, of each variant; at the very end there is none.
          done: how many operations of each variant are behind it then.
        """
        for variant, own in zip(self._variants, operations, strict=True):
            for operation in own:
                self._number(variant, operation)
        alike = set.intersection(*({each.number for each in own} for own in operations)) - {None}
        apart: list[list[Operation]] = []
        for variant, own in zip(self._variants, operations, strict=True):
            apart.append([each for each in own if not self._compute_once(variant, each, alike)])
        live = [
            [key for operation in own for key in operation.results if last_use[key] >= behind]
            for own, last_use, behind in zip(apart, self._last_use, done, strict=True)
        ]
        values = self._found(_operands_of(meeting), apart, live)
        if meeting:
            self._meet(meeting, values)

    def _found(
        self,
        wanted: Sequence[tuple[Key | Literal, ...]],
        operations: Sequence[list[Operation]],
        live: Sequence[Sequence[Key]],
    ) -> list[Any]:
        """Returns the wanted values: those that all variants have, and of others by a switch.

        Arguments as for `_switch`, which is left out if there is nothing for it to do.
        """
        values: list[Any] = [self._shared(atoms) for atoms in wanted]
        missing = [index for index, value in enumerate(values) if value is None]
        if missing or any(operations):
            found = self._switch(operations, [wanted[index] for index in missing], live)
            for index, value in zip(missing, found, strict=True):
                values[index] = value
        return values

    def _number(self, variant: FlatVariant, operation: Operation) -> None:
        """Gives an operation its number, if its operands have one."""
        operands = [variant.number(each) for each in operation.operands]
        if None in operands:
            return
        equation = operation.equation
        key = (equation.primitive, key_of(equation.params), tuple(operands))
        operation.number = self._numbers.setdefault(key, len(self._numbers))
        for index, result in enumerate(operation.results):
            variant.numbers[result] = ("result", operation.number, index)

    def _compute_once(
        self, variant: FlatVariant, operation: Operation, alike: set[Hashable]
    ) -> bool:
        """Returns whether the operation is the same in all variants; it is computed then."""
        names = [variant.numbers[result] for result in operation.results]
        if operation.number in alike:
            if all(name in self._common for name in names):
                return True
            operands = [self._common_value(variant, each) for each in operation.operands]
            if all(each is not None for each in operands):
                results = _jax_internals.carry_out(operation.equation, operands)
                self._common.update(zip(names, results, strict=True))
                return True
        for result in operation.results:
            variant.numbers[result] = None
        return False

    def _meet(self, group: Sequence[Operation], operands: Sequence[Any]) -> None:
        """Adds a collective, of all variants at once."""
        looks = {
            (
                each.equation.primitive,
                key_of(each.equation.params),
                tuple((variant.shape(key), variant.dtype(key)) for key in each.operands),
            )
            for variant, each in zip(self._variants, group, strict=True)
        }
        if len(looks) > 1:
            raise CannotMerge("what replicas exchange differs in shape")
        results = _jax_internals.carry_out(group[0].equation, operands)
        number = len(self._numbers)
        self._numbers["collective", number] = number
        for index, value in enumerate(results):
            name = ("result", number, index)
            self._common[name] = value
            for variant, each in zip(self._variants, group, strict=True):
                variant.numbers[each.results[index]] = name

    # ------------------------------------------------------------------ switches

    def _switch(
        self,
        operations: Sequence[list[Operation]],
        wanted: Sequence[tuple[Key | Literal, ...]],
        live: Sequence[Sequence[Key]],
    ) -> list[Any]:
        """Returns what variants compute in different ways.

        Args:
          operations: of each variant.
          wanted: values that are needed next; of each the atoms of all variants.
          live: the keys that are needed later, of each variant.

        Returns:
          The wanted values, padded; they are kept as slots too.
        """
        slots = [self._new_slot(atoms) for atoms in wanted]
        atoms_of = [[atoms[index] for atoms in wanted] for index in range(len(self._variants))]
        for index, keys in enumerate(live):
            known = {atom for atom in atoms_of[index] if not isinstance(atom, Literal)}
            keys = [key for key in keys if key not in known]
            self._assign_slots(index, keys, slots, atoms_of)

        def branch(index: int) -> Any:
            variant = self._variants[index]

            def compute() -> list[Any]:
                values: dict[Key, Any] = {}
                for operation in operations[index]:
                    operands = [self._own(index, each, values) for each in operation.operands]
                    results = _jax_internals.carry_out(operation.equation, operands)
                    values.update(zip(operation.results, results, strict=True))
                return [
                    _zeros(slot)
                    if atom is None
                    else _padded(self._own(index, atom, values), variant.shape(atom), slot)
                    for atom, slot in zip(atoms_of[index], slots, strict=True)
                ]

            return compute

        branches = [branch(k) for k in range(len(self._variants))]
        if self._may_branch:
            found = jax.lax.switch(self._which, branches)
        else:
            by_slot = zip(*(compute() for compute in branches), strict=True)
            found = [jax.lax.select_n(self._which, *values) for values in by_slot]
        for position, (slot, value) in enumerate(zip(slots, found, strict=True)):
            slot.value = value
            for index, atoms in enumerate(atoms_of):
                atom = atoms[position]
                if atom is not None and not isinstance(atom, Literal):
                    self._slots[index][atom] = slot
        return found[: len(wanted)]

    def _new_slot(self, atoms: Sequence[Key | Literal]) -> _Slot:
        looks = [(each.shape(atom), each.dtype(atom)) for each, atom in zip(self._variants, atoms)]
        shapes = [shape for shape, _ in looks]
        if len({(len(shape), dtype) for shape, dtype in looks}) > 1:
            raise CannotMerge("a value has another dtype or number of dimensions on some replicas")
        return _Slot(tuple(map(max, zip(*shapes, strict=True))), looks[0][1])

    def _assign_slots(
        self,
        index: int,
        keys: Sequence[Key],
        slots: list[_Slot],
        atoms_of: list[list[Any]],
    ) -> None:
        """Finds a slot for each of a variant's values: a free one of its kind, or a new one."""
        variant = self._variants[index]
        for atoms in atoms_of:
            atoms += [None] * (len(slots) - len(atoms))
        free = [position for position, atom in enumerate(atoms_of[index]) if atom is None]
        for key in keys:
            shape, dtype = variant.shape(key), variant.dtype(key)
            for position in free:
                slot = slots[position]
                if slot.dtype == dtype and len(slot.shape) == len(shape):
                    slot.shape = tuple(map(max, slot.shape, shape))
                    free.remove(position)
                    break
            else:
                position = len(slots)
                slots.append(_Slot(shape, dtype))
                for atoms in atoms_of:
                    atoms.append(None)
            atoms_of[index][position] = key

    # ------------------------------------------------------------------ values

    def _own(self, index: int, atom: Key | Literal, values: dict[Key, Any]) -> Any:
        """Returns a value of one variant, in its branch of a switch: with its true shape."""
        if not isinstance(atom, Literal):
            if atom in values:
                return values[atom]
            if slot := self._slots[index].get(atom):
                return _cut(slot.value, self._variants[index].shape(atom))
        return self._common_value(self._variants[index], atom, is_own=True)

    def _common_value(
        self, variant: FlatVariant, atom: Key | Literal, is_own: bool = False
    ) -> Any | None:
        """Returns a value that all variants have; None if there is none.

        Args:
          variant: one of them.
          atom: its name there.
          is_own: whether what the variant alone has will do.
        """
        if isinstance(atom, Literal):
            return atom.val
        number = variant.numbers[atom]
        if number is not None and number in self._common:
            return self._common[number]
        source = variant.given.get(atom)
        if source is None:
            return None
        if not isinstance(source, int):
            return source
        value = self._inputs[source]
        if value.shape != variant.shape(atom):
            return _cut(value, variant.shape(atom)) if is_own else None
        return value

    def _shared(self, atoms: Sequence[Key | Literal]) -> Any | None:
        """Returns the value behind the atoms of all variants, if it is the same; otherwise None."""
        slots = [
            None if isinstance(key, Literal) else own.get(key)
            for own, key in zip(self._slots, atoms, strict=True)
        ]
        if slots[0] is not None and all(slot is slots[0] for slot in slots):
            shapes = {each.shape(key) for each, key in zip(self._variants, atoms, strict=True)}
            return slots[0].value if shapes == {slots[0].shape} else None
        return self._common_value(self._variants[0], atoms[0]) if self._is_common(atoms) else None

    def _is_common(self, atoms: Sequence[Key | Literal]) -> bool:
        """Returns whether all variants compute the value behind their atoms alike."""
        pairs = zip(self._variants, atoms, strict=True)
        numbers = {variant.number(atom) for variant, atom in pairs}
        return len(numbers) == 1 and None not in numbers

    def _number_what_is_given(self) -> None:
        """Numbers constants, and the inputs that have one shape in all variants."""
        shapes: dict[int, set[Shape]] = {}
        for variant in self._variants:
            for key, source in variant.given.items():
                if isinstance(source, int):
                    shapes.setdefault(source, set()).add(variant.shape(key))
        for variant in self._variants:
            for key, source in variant.given.items():
                if not isinstance(source, int):
                    variant.numbers[key] = ("constant", number_of_constant(source))
                elif len(shapes[source]) == 1:
                    variant.numbers[key] = ("input", source)


def _operands_of(group: Sequence[Operation]) -> list[tuple[Key | Literal, ...]]:
    """Returns the operands of a collective, of each those of all variants."""
    if len({len(each.operands) for each in group}) > 1:
        raise CannotMerge("replicas exchange different numbers of values")
    return list(zip(*(each.operands for each in group), strict=True))


def _padded(value: Any, own: Shape, slot: _Slot) -> Any:
    if not isinstance(value, jax.Array):
        value = jnp.asarray(value, slot.dtype)
    if own == slot.shape:
        return value
    start = (0,) * len(own)
    return jax.lax.dynamic_update_slice(_zeros(slot), value, start)


def _cut(value: Any, shape: Shape) -> Any:
    return value if value.shape == shape else jax.lax.slice(value, (0,) * len(shape), shape)


def _zeros(slot: _Slot) -> Any:
    if jnp.issubdtype(slot.dtype, jax.dtypes.prng_key):
        return _jax_internals.zero_keys(slot.shape, slot.dtype)
    return jnp.zeros(slot.shape, slot.dtype)
