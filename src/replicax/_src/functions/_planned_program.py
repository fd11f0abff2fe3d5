"""A program for devices that are not here: it is compiled, and gives shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
from jax.sharding import Sharding, SingleDeviceSharding

from replicax._src._planned_arrays import PlannedArray, shapes_only
from replicax._src._typing import PyTree, override
from replicax._src.devices import PlannedDevices, plan_of
from replicax._src.functions._arguments import Arguments
from replicax._src.functions._explanation import Report
from replicax._src.functions._place import Place
from replicax._src.functions._program import Program
from replicax._src.planning import Argument, Plan, compiled_plan, note, note_call, postpone
from replicax._src.variable import Variable, copies_differ


class _Lowered(NamedTuple):
    """A program that is ready to be compiled, and what it takes."""

    program: Any
    arguments: list[Argument]


@final
class PlannedProgram(Program):
    """A program that is compiled at its first call, and never runs."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._found: dict[Any, _Lowered] = {}
        self._plans: dict[Any, Plan] = {}

    @property
    def _devices(self) -> PlannedDevices:
        found = plan_of(self.place.devices[0])
        assert found is not None
        return found

    @override
    def _called(self, *args: Any, **kwargs: Any) -> Any:
        with shapes_only(self.place.devices[0]):
            return super()._called(*args, **kwargs)

    @override
    def _call(
        self, done: list[Any], run: Callable[..., Any], written: list[Any], inputs: PyTree
    ) -> None:
        lowered = self._lowered(run, inputs)
        if self.creates:  # the next call is of another program, which has the variables as inputs
            postpone(self.run.__name__, functools.partial(self._planned, run, lowered))
        else:
            self._planned(run, lowered)
        note_call()
        results, in_place, elsewhere, token = lowered.program.out_info
        layouts = self._layouts if self.mesh is not None else [None] * len(in_place)
        done.append(
            (
                [PlannedArray.like(each, self._whole) for each in results],
                [PlannedArray.like(e, self._place(layout)) for e, layout in zip(in_place, layouts)],
                [PlannedArray.like(each, self._whole) for each in elsewhere],
                PlannedArray.like(token, self._whole),
            )
        )

    @property
    def _whole(self) -> Sharding:
        if self.mesh is None:
            return SingleDeviceSharding(self.place.devices[0])
        return self.mesh.replicated

    def _place(self, layout: Any) -> Sharding:
        return self._whole if self.mesh is None else self.mesh.sharding(layout)

    def _look(self, array: Any) -> jax.ShapeDtypeStruct:
        sharding = array.sharding if isinstance(array, PlannedArray) else self._whole
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    def _look_of(self, variable: Variable) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            variable.shape, variable.dtype, sharding=self._place(variable.layout)
        )

    def _lowered(self, run: Any, inputs: PyTree) -> _Lowered:
        """Returns a program of this one, as the compiler takes it."""
        found = self._found.get(run)
        if found is not None:
            return found
        variables = self._state.variables()
        only_read = [held.alive() for held in self._read]
        written = [self._look_of(each) for each in variables]
        read = [self._look_of(each) for each in only_read]
        given = jax.tree.map(self._look, inputs)
        rest = [self._look(each) for each in self._rest]
        everyone = [*variables, *only_read]
        arguments = [
            Argument(kind, variable.name, look)
            for kind, variable, look in zip(_kinds(everyone), everyone, [*written, *read])
        ]
        arguments += [Argument("input", "", each) for each in jax.tree.leaves((given, rest))]
        lowered = _Lowered(run.lower(written, read, given, rest), arguments)
        self._found[run] = lowered
        return lowered

    def _planned(self, run: Any, lowered: _Lowered) -> Plan:
        """Returns what a program needs."""
        found = self._plans.get(run)
        if found is not None:
            return found
        devices = self.place.devices if self.mesh is None else tuple(self.mesh.mesh.devices.flat)
        logical = 1 if self.mesh is None else self.mesh.logical_devices
        plan = compiled_plan(
            self.run.__name__, lowered.program, lowered.arguments, self._devices, devices, logical
        )
        self._plans[run] = plan
        note(plan)
        return plan

    @override
    def report(self, arguments: Arguments) -> Report:
        lowered = self._lowered(self.run, arguments.laid_out(self.place))
        plan = self._planned(self.run, lowered)
        return self._report(plan.flops, plan.peak, plan)


def program_class(place: Place) -> type[Program]:
    """Returns the class of programs for a place."""
    return Program if plan_of(place.devices[0]) is None else PlannedProgram


def _kinds(variables: list[Variable]) -> list[str]:
    """Returns what each variable of a program is."""
    shapes = {each.shape for each in variables if each.trainable and each.shape}

    def kind(variable: Variable) -> str:
        if variable.trainable:
            return "parameters"
        is_slot = variable.shape in shapes and not copies_differ(variable)
        return "optimizer" if is_slot else "variables"

    return [kind(each) for each in variables]
