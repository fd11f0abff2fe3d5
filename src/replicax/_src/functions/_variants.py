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
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from replicax._src import _jax_internals
from replicax._src.devices import REPLICA_AXIS
from replicax._src.functions._agreement import has_collective, is_collective
from replicax._src.functions._captured import Shape

_MOST_COMPARED = 65_536  # items of a constant
_INLINED = ("jaxpr", "call_jaxpr")  # parameters of operations that call a function


class CannotMerge(Exception):
    """The variants differ in more than shapes; the text says how."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A program for inputs of certain shapes.

    Attributes:
      program: the closed program.
      inputs: for each of its inputs, the position among those of the merged program, or a constant.
      outputs: the positions of those of its outputs that the merged program returns, in order.
    """

    program: ClosedJaxpr
    inputs: Sequence[int | jax.Array | np.ndarray]
    outputs: Sequence[int]


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
    merging = _Merging([_Flat(each) for each in variants], which, inputs, may_branch)
    return merging.outputs()


_Key: TypeAlias = int  # of a value in one variant


@dataclasses.dataclass
class _Operation:
    """An operation of a variant: of its program, or of a function that is called there."""

    equation: Any
    operands: list[_Key | Literal]
    results: list[_Key]
    number: Hashable = None  # the same for the same computation in another variant


class _Flat:
    """A variant as a list of operations. Calls of functions with collectives inside are inlined."""

    def __init__(self, variant: Variant):
        self.shapes: list[Shape] = []  # by key, as `dtypes` and `numbers`
        self.dtypes: list[Any] = []
        self.numbers: list[Hashable] = []
        self.given: dict[_Key, int | Any] = {}  # positions of inputs, and constants
        self.operations: list[_Operation] = []
        jaxpr = variant.program.jaxpr
        known: dict[Any, _Key | Literal] = {}
        for variable, source in zip(jaxpr.invars, variant.inputs, strict=True):
            known[variable] = key = self._new(variable)
            self.given[key] = source
        self._add(jaxpr, known)
        outputs = [_read(atom, known) for atom in jaxpr.outvars]
        self.outputs = [outputs[index] for index in variant.outputs]

    def shape(self, atom: _Key | Literal) -> Shape:
        return np.shape(atom.val) if isinstance(atom, Literal) else self.shapes[atom]

    def dtype(self, atom: _Key | Literal) -> Any:
        if isinstance(atom, Literal):
            aval: Any = atom.aval
            return aval.dtype
        return self.dtypes[atom]

    def _new(self, variable: Any) -> _Key:
        self.shapes.append(getattr(variable.aval, "shape", ()))
        self.dtypes.append(getattr(variable.aval, "dtype", None))
        self.numbers.append(None)
        return len(self.shapes) - 1

    def _add(self, jaxpr: Any, known: dict[Any, _Key | Literal]) -> None:
        for equation in jaxpr.eqns:
            if _jax_internals.has_side_effects(equation):
                raise CannotMerge("it has side effects, or assigns variables in a loop or a branch")
            operands = [_read(atom, known) for atom in equation.invars]
            if not is_collective(equation):
                if has_collective(equation):
                    known.update(self._inlined(equation, operands))
                    continue
                if _is_for_all_replicas(equation):
                    raise CannotMerge(f"replicas meet in a {equation.primitive.name}")
            results = [self._new(variable) for variable in equation.outvars]
            known.update(zip(equation.outvars, results, strict=True))
            self.operations.append(_Operation(equation, operands, results))

    def _inlined(
        self, equation: Any, operands: Sequence[_Key | Literal]
    ) -> dict[Any, _Key | Literal]:
        """Adds the operations of a function that is called, and returns where its results are."""
        name = equation.primitive.name
        called: Any = next(
            (equation.params[each] for each in _INLINED if each in equation.params), None
        )
        inner: Any = getattr(called, "jaxpr", called)
        is_call = called is not None and name not in ("scan", "shard_map")
        if not is_call or len(inner.invars) != len(operands):
            raise CannotMerge(f"replicas meet inside a {name}")
        known: dict[Any, _Key | Literal] = dict(zip(inner.invars, operands, strict=True))
        for variable, constant in zip(inner.constvars, getattr(called, "consts", ())):
            known[variable] = key = self._new(variable)
            self.given[key] = constant
        self._add(inner, known)
        outputs = [_read(atom, known) for atom in inner.outvars]
        return dict(zip(equation.outvars, outputs, strict=True))


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
        variants: Sequence[_Flat],
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
        self._slots: list[dict[_Key, _Slot]] = [{} for _ in variants]
        self._last_use = [_last_uses(each) for each in variants]
        self._number_what_is_given()

    def outputs(self) -> tuple[list[Any], list[list[Shape]], list[bool]]:
        variants = self._variants
        stages = [list(_stages(each)) for each in variants]
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
        operations: Sequence[list[_Operation]],
        meeting: Sequence[_Operation],
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
        apart: list[list[_Operation]] = []
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
        wanted: Sequence[tuple[_Key | Literal, ...]],
        operations: Sequence[list[_Operation]],
        live: Sequence[Sequence[_Key]],
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

    def _number(self, variant: _Flat, operation: _Operation) -> None:
        """Gives an operation its number, if its operands have one."""
        operands = [
            _number_of_literal(each) if isinstance(each, Literal) else variant.numbers[each]
            for each in operation.operands
        ]
        if None in operands:
            return
        equation = operation.equation
        key = (equation.primitive, _key_of(equation.params), tuple(operands))
        operation.number = self._numbers.setdefault(key, len(self._numbers))
        for index, result in enumerate(operation.results):
            variant.numbers[result] = ("result", operation.number, index)

    def _compute_once(self, variant: _Flat, operation: _Operation, alike: set[Hashable]) -> bool:
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

    def _meet(self, group: Sequence[_Operation], operands: Sequence[Any]) -> None:
        """Adds a collective, of all variants at once."""
        looks = {
            (
                each.equation.primitive,
                _key_of(each.equation.params),
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
        operations: Sequence[list[_Operation]],
        wanted: Sequence[tuple[_Key | Literal, ...]],
        live: Sequence[Sequence[_Key]],
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
                values: dict[_Key, Any] = {}
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

    def _new_slot(self, atoms: Sequence[_Key | Literal]) -> _Slot:
        looks = [(each.shape(atom), each.dtype(atom)) for each, atom in zip(self._variants, atoms)]
        shapes = [shape for shape, _ in looks]
        if len({(len(shape), dtype) for shape, dtype in looks}) > 1:
            raise CannotMerge("a value has another dtype or number of dimensions on some replicas")
        return _Slot(tuple(map(max, zip(*shapes, strict=True))), looks[0][1])

    def _assign_slots(
        self,
        index: int,
        keys: Sequence[_Key],
        slots: list[_Slot],
        atoms_of: list[list[Any]],
    ) -> None:
        """Finds a slot for each of a variant's values: a free one of its kind, or a new one."""
        variant = self._variants[index]
        for atoms in atoms_of:
            atoms += [None] * (len(slots) - len(atoms))
        free = [position for position, atom in enumerate(atoms_of[index]) if atom is None]
        for key in keys:
            shape, dtype = variant.shapes[key], variant.dtypes[key]
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

    def _own(self, index: int, atom: _Key | Literal, values: dict[_Key, Any]) -> Any:
        """Returns a value of one variant, in its branch of a switch: with its true shape."""
        if not isinstance(atom, Literal):
            if atom in values:
                return values[atom]
            if slot := self._slots[index].get(atom):
                return _cut(slot.value, self._variants[index].shapes[atom])
        return self._common_value(self._variants[index], atom, is_own=True)

    def _common_value(
        self, variant: _Flat, atom: _Key | Literal, is_own: bool = False
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
        if value.shape != variant.shapes[atom]:
            return _cut(value, variant.shapes[atom]) if is_own else None
        return value

    def _shared(self, atoms: Sequence[_Key | Literal]) -> Any | None:
        """Returns the value behind the atoms of all variants, if it is the same; otherwise None."""
        slots = [
            None if isinstance(key, Literal) else own.get(key)
            for own, key in zip(self._slots, atoms, strict=True)
        ]
        if slots[0] is not None and all(slot is slots[0] for slot in slots):
            shapes = {each.shape(key) for each, key in zip(self._variants, atoms, strict=True)}
            return slots[0].value if shapes == {slots[0].shape} else None
        return self._common_value(self._variants[0], atoms[0]) if self._is_common(atoms) else None

    def _is_common(self, atoms: Sequence[_Key | Literal]) -> bool:
        """Returns whether all variants compute the value behind their atoms alike."""
        numbers = {
            _number_of_literal(key) if isinstance(key, Literal) else each.numbers[key]
            for each, key in zip(self._variants, atoms, strict=True)
        }
        return len(numbers) == 1 and None not in numbers

    def _number_what_is_given(self) -> None:
        """Numbers constants, and the inputs that have one shape in all variants."""
        shapes: dict[int, set[Shape]] = {}
        for variant in self._variants:
            for key, source in variant.given.items():
                if isinstance(source, int):
                    shapes.setdefault(source, set()).add(variant.shapes[key])
        for variant in self._variants:
            for key, source in variant.given.items():
                if not isinstance(source, int):
                    variant.numbers[key] = ("constant", _number_of_constant(source))
                elif len(shapes[source]) == 1:
                    variant.numbers[key] = ("input", source)


def _stages(variant: _Flat) -> Iterator[tuple[list[_Operation], _Operation | None]]:
    """Operations, and the collective that follows them; after the last operations there is none."""
    operations: list[_Operation] = []
    for operation in variant.operations:
        if is_collective(operation.equation):
            yield operations, operation
            operations = []
        else:
            operations.append(operation)
    yield operations, None


def _is_for_all_replicas(equation: JaxprEqn) -> bool:
    """Returns whether an operation that is not known as a collective may be one all the same."""
    if equation.primitive.name == "axis_index":
        return False
    inner = [each for body in _jax_internals.subprograms(equation.params) for each in body.eqns]
    if inner:
        return any(map(_is_for_all_replicas, inner))
    return _jax_internals.mentions_axis([equation], REPLICA_AXIS)


def _operands_of(group: Sequence[_Operation]) -> list[tuple[_Key | Literal, ...]]:
    """Returns the operands of a collective, of each those of all variants."""
    if len({len(each.operands) for each in group}) > 1:
        raise CannotMerge("replicas exchange different numbers of values")
    return list(zip(*(each.operands for each in group), strict=True))


def _last_uses(variant: _Flat) -> list[float]:
    """For each key the position of the last operation that needs it; of outputs, beyond the end."""
    last: list[float] = [-1.0] * len(variant.shapes)
    for position, operation in enumerate(variant.operations):
        for atom in operation.operands:
            if not isinstance(atom, Literal):
                last[atom] = position
    for atom in variant.outputs:
        if not isinstance(atom, Literal):
            last[atom] = float("inf")
    return last


def _read(atom: Any, known: dict[Any, Any]) -> _Key | Literal:
    return atom if isinstance(atom, Literal) else known[atom]


def _number_of_literal(literal: Literal) -> Hashable:
    value = np.asarray(literal.val)
    return ("literal", str(value.dtype), value.shape, value.tobytes(), str(literal.aval))


def _number_of_constant(array: Any) -> Hashable:
    """Returns a key that the constant also has in other traces, with arrays of their own."""
    if array.size > _MOST_COMPARED or jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return id(array)
    value = np.asarray(array)
    return (str(value.dtype), value.shape, value.tobytes(), getattr(array, "weak_type", False))


def _key_of(parameters: dict[str, Any]) -> Hashable:
    # How a function is differentiated, in which each trace has objects of its own, is done with.
    is_call = "call_jaxpr" in parameters
    return tuple(
        (name, _key_of_parameter(value))
        for name, value in sorted(parameters.items())
        if not is_call or hasattr(value, "eqns") or isinstance(value, int | str)
    )


def _key_of_parameter(value: Any) -> Hashable:
    """Returns a key that the parameter of an operation also has in other traces."""
    if hasattr(value, "eqns"):  # a function that is called; constants are not in its text
        inner = [_key_of(each.params) for each in value.eqns if _calls_functions(each)]
        return (str(value), tuple(map(id, getattr(value, "consts", ()))), tuple(inner))
    if isinstance(value, tuple | list):
        return tuple(map(_key_of_parameter, value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def _calls_functions(equation: JaxprEqn) -> bool:
    return next(iter(_jax_internals.subprograms(equation.params)), None) is not None


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
