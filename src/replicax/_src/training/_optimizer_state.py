"""The state of an optimizer for a list of variables, and the program that updates them.

With state that is cut over the replicas (`rx.distribute.StateLayout`), a compiled step adds up of
each gradient only the part that a replica updates, and updates it there: see `_on_parts.py`.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from replicax._src.collectives import whole_of_parts
from replicax._src.context import EACH, layout_of_slot, world
from replicax._src.devices import Layout, append_result, token
from replicax._src.training._on_parts import Part, on_parts
from replicax._src.training._optimizer_inputs import ParameterTree
from replicax._src.training._update_rule import UpdateRule, slot_owners, structured
from replicax._src.values import Mirrored, PerReplica, component
from replicax._src.variable import (
    UPDATING,
    Variable,
    catch_up,
    mesh_of,
    note_lost,
    own_wholes,
    set_whole,
    whole_of,
)


class OptimizerState:
    """The variables of an optimizer's state, each belonging to one that it updates or to none."""

    def __init__(
        self,
        transformation: Any,
        variables: list[Variable],
        strategy: Any,
        name: str,
        iterations: Variable,
        initial_slots: Any = None,
        tree: ParameterTree | None = None,
    ):
        self.variables = variables
        self.iterations = iterations
        self.strategy = strategy
        self._transformation = transformation
        self._tree = tree  # how the transformation sees the variables, if not as a list
        initial = self._initial()
        constraints = [variable.constraint for variable in variables]
        self._rule = UpdateRule(transformation, constraints, tree, initial)
        self._owners, self._labels = self._rule.owners, self._rule.labels
        leaves = jax.tree_util.tree_leaves(initial)
        if initial_slots is not None:
            leaves = [
                initial_slots(None if owner is None else variables[owner], owner, label, leaf)
                for leaf, owner, label in zip(leaves, self._owners, self._labels, strict=True)
            ]
        self.state = [
            self._make_slot(path, leaf, owner, name)
            for path, leaf, owner in zip(self._rule.paths, leaves, self._owners, strict=True)
        ]
        # The dimension in which the update of each variable is divided over the replicas.
        self._dims = [self._dim(index) for index in range(len(variables))]
        self._is_cut = any(
            each.layout.replica_dim is not None for each in (*variables, *self.state)
        )
        self.hyperparameters = {
            path[-1].key: slot
            for path, slot in zip(self._rule.paths, self.state, strict=True)
            if len(path) > 1 and getattr(path[-2], "name", None) == "hyperparams"
        }
        self._communicates = any(
            not each.layout.is_plain for each in (*self.variables, *self.state)
        )
        self._program = jax.jit(
            lambda present, *arrays: (*self._updated(present, *arrays), token()),
            static_argnums=0,
            donate_argnums=3,
            out_shardings=self._places(),
        )

    def _places(self) -> Any:
        """Returns where the compiled update leaves its results; None for wherever they are."""
        if not self._communicates:
            return None
        places = [
            [mesh_of(each).sharding(each.layout) for each in group]
            for group in (self.variables, self.state)
        ]
        return (*places, None, None)

    def _slot_layout(self, primary: Variable, shape: tuple[int, ...]) -> Layout:
        return layout_of_slot(self.strategy, primary, shape)

    def _dim(self, index: int) -> int | None:
        """Returns the dimension in which a variable is cut, or else state of it that is like it."""
        variable = self.variables[index]
        alike = [
            slot
            for slot, owner in zip(self.state, self._owners, strict=True)
            if owner == index and slot.shape == variable.shape
        ]
        dims = (each.layout.replica_dim for each in (variable, *alike))
        return next((dim for dim in dims if dim is not None), None)

    def _make_slot(self, path: Any, leaf: jax.Array, owner: int | None, name: str) -> Variable:
        label = "/".join(str(part.name) for part in path if hasattr(part, "name"))
        primary = None if owner is None else self.variables[owner]
        prefix = name if primary is None else primary.name.removesuffix(":0")
        # Rules are for the user's own variables.
        layout = Layout() if primary is None else self._slot_layout(primary, leaf.shape)
        with self._colocated(primary):
            named = f"{prefix}/{label or 'state'}"
            return self._slot_variable(leaf, path, owner, name=named, layout=layout)

    def _slot_variable(self, leaf: Any, path: Any, owner: int | None, **kwargs: object) -> Variable:
        return state_variable(leaf, **kwargs)

    def slots(self) -> list[tuple[Variable | None, int | None, str, Variable]]:
        return [
            (None if owner is None else self.variables[owner], owner, label, slot)
            for owner, label, slot in zip(self._owners, self._labels, self.state, strict=True)
        ]

    def initial_of(self, values: list[Any]) -> Any:
        """Returns what the state starts from, for variables with these values."""
        return self._transformation.init(structured(self._tree, values))

    def _initial(self) -> Any:
        """Returns what the state starts from; where it is to be cut, it is made in parts."""
        return world().pick(self._initial_in_parts, self._initial_whole)()

    def _initial_whole(self) -> Any:
        return self.initial_of([variable.value() for variable in self.variables])

    def _initial_in_parts(self) -> Any:
        mesh = mesh_of(self.variables[0])
        if mesh is None or mesh.spans_workers:
            return self._initial_whole()
        for variable in self.variables:
            catch_up(variable)
        wholes = [whole_of(variable) for variable in self.variables]
        try:
            looks = jax.eval_shape(self.initial_of, wholes)
            positions = range(len(self.variables))
            owners = slot_owners(self._transformation, self._tree, positions, looks)
        except Exception:  # what JAX cannot trace is left to itself
            return self._initial_whole()
        leaves, structure = jax.tree_util.tree_flatten(looks)
        layouts = [
            Layout() if owner is None else self._slot_layout(self.variables[owner], leaf.shape)
            for leaf, owner in zip(leaves, owners, strict=True)
        ]
        if all(layout.is_plain for layout in layouts):
            return self._initial_whole()
        places = structure.unflatten([mesh.sharding(layout) for layout in layouts])
        results: list[Any] = []
        mesh.wait_for(wholes)
        program = jax.jit(
            lambda values: (self.initial_of(values), token()), out_shardings=(places, None)
        )
        mesh.call(program, results, wholes)
        return results[0][0]

    def reset(self) -> None:
        leaves = jax.tree_util.tree_leaves(self._initial())
        described = zip(self._rule.paths, self._owners, strict=True)
        for slot, leaf, (path, owner) in zip(self.state, leaves, described, strict=True):
            self._reset_slot(slot, leaf, path, owner)

    def _reset_slot(self, slot: Variable, leaf: Any, path: Any, owner: int | None) -> None:
        slot.assign(leaf)

    def _colocated(self, primary: Variable | None) -> contextlib.AbstractContextManager[Any]:
        extended = self.strategy.extended
        place = extended.non_slot_devices(self.variables) if primary is None else primary
        return extended.colocate_vars_with(place)

    def to_sum(
        self, gradients: list[Any], variables: list[Variable], positions: list[int]
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Returns which gradients are to be summed over the replicas, by their places.

        First those whose sum goes to where their variables are; then, in a program that divides
        the update over the replicas, those of which each gets its part, with the dimension.
        """
        divided = world().pick([None] * len(self._dims), self._dims)
        whole: list[int] = []
        in_parts: list[tuple[int, int]] = []
        for i, gradient in enumerate(gradients):
            if isinstance(gradient, PerReplica):
                dim = divided[positions[i]]
                if dim is None:
                    whole.append(i)
                else:
                    checked(component(gradient, EACH), variables[i])
                    in_parts.append((i, dim))
        return whole, in_parts

    def update(self, gradients: list[Any]) -> None:
        """Makes a step, with a gradient or None for each variable."""
        world().pick(self._update_eagerly, self._update_in_program)(gradients)

    def _update_eagerly(self, gradients: list[Any]) -> None:
        launch = append_result
        if self._communicates:
            self._wait_for_inputs(gradients)  # without the lock
            launch = self._launch
        done: list[Any] = []
        with UPDATING:  # no compiled function may take the values meanwhile
            present, *inputs = self._inputs(gradients, own_wholes)
            try:
                launch(done, functools.partial(self._program, present), inputs)
            except Exception as error:
                note_lost(error, self.state, inputs[2])
                raise
            finally:  # also if Ctrl-C came when the program had run: the old state is gone
                if done:
                    try:
                        self._store(present, *done[0][:3])
                    except KeyboardInterrupt:
                        self._store(present, *done[0][:3])
                        raise

    def _wait_for_inputs(self, gradients: list[Any]) -> None:
        given = [gradient for gradient in gradients if gradient is not None]
        before: list[Any] = []
        while True:
            with UPDATING:
                arrays = _wholes([*self.variables, *self.state])
            try:
                mesh_of(self.variables[0]).wait_for([*given, *arrays])
                return
            except RuntimeError:  # a program of another thread may have written into them
                if before and all(map(operator.is_, before, arrays)):
                    raise
                before = arrays

    def _update_in_program(self, gradients: list[Any]) -> None:
        if self._is_cut:
            self._update_parts(gradients)
        else:
            inputs = self._inputs(gradients, _wholes)
            self._store(inputs[0], *self._updated(*inputs))

    def _inputs(
        self, gradients: list[Any], state_of: Callable[[list[Variable]], list[Any]]
    ) -> tuple[tuple[bool, ...], *tuple[Any, ...]]:
        """Returns which variables have gradients, and the arrays that the program takes."""
        return (
            tuple(gradient is not None for gradient in gradients),
            [gradient for gradient in gradients if gradient is not None],
            [whole_of(variable) for variable in self.variables],
            state_of(self.state),
            whole_of(self.iterations),
        )

    def _store(
        self,
        present: tuple[bool, ...],
        new_values: list[jax.Array],
        new_state: list[jax.Array],
        new_count: jax.Array,
    ) -> None:
        """Gives variables and state the values that the program computed."""
        for variable, value, changed in zip(self.variables, new_values, present, strict=True):
            if changed:
                set_whole(variable, value, exclusive=True)
        for slot, value in zip(self.state, new_state, strict=True):
            set_whole(slot, value, exclusive=True)
        set_whole(self.iterations, new_count, exclusive=True)

    def _launch(self, done: list[Any], program: Callable[..., Any], inputs: Sequence[Any]) -> None:
        """Appends the results of a program that communicates, and takes its turn."""
        mesh_of(self.variables[0]).call(program, done, *inputs, what="apply_gradients")

    def _update_parts(self, gradients: list[Any]) -> None:
        """In a program whose replicas have parts of the state: each updates its own."""
        given = [i for i, gradient in enumerate(gradients) if gradient is not None]
        present = tuple(gradient is not None for gradient in gradients)
        cut = [slot.layout.replica_dim for slot in self.state]
        inputs = [
            *(_as_part(each) for each in gradients if each is not None),
            *(_part_of(each) for each in self.variables),
            *(_part_of(each) for each in self.state),
            Part(whole_of(self.iterations)),
        ]
        looks = [
            *(_look(self.variables[i], gradients[i]) for i in given),
            *(_look(each) for each in (*self.variables, *self.state, self.iterations)),
        ]
        count, parameters = len(given), len(self.variables)

        def updated(*arrays: jax.Array) -> list[jax.Array]:
            values, state, iterations = self._updated(
                present,
                list(arrays[:count]),
                list(arrays[count : count + parameters]),
                list(arrays[count + parameters : -1]),
                arrays[-1],
            )
            return [*values, *state, iterations]

        results = on_parts(
            updated, looks, inputs, [*self._dims, *cut, None], mesh_of(self.variables[0])
        )
        for variable, value, dim, changed in zip(
            self.variables, results[:parameters], self._dims, present, strict=True
        ):
            if changed:
                _set_part(variable, value, dim)
        for slot, value, dim in zip(self.state, results[parameters:-1], cut, strict=True):
            _set_part(slot, value, dim)
        set_whole(self.iterations, results[-1])

    def _updated(
        self,
        present: tuple[bool, ...],
        gradients: list[jax.Array],
        values: list[jax.Array],
        state: list[jax.Array],
        count: jax.Array,
    ) -> tuple[list[jax.Array], list[jax.Array], jax.Array]:
        """Returns values, state and count after a step for all variables; it is traced."""
        return *self._rule(present, gradients, values, state), count + 1


def _wholes(variables: Sequence[Variable]) -> list[Any]:
    return [whole_of(variable) for variable in variables]


def _look(variable: Variable, gradient: object = None) -> jax.ShapeDtypeStruct:
    """Returns the look of a whole variable, or of its gradient, which may be of another dtype."""
    dtype = variable.dtype if gradient is None else _as_part(gradient).value.dtype
    return jax.ShapeDtypeStruct(variable.shape, dtype)


def _as_part(gradient: object) -> Part:
    return gradient if isinstance(gradient, Part) else Part(gradient)


def _part_of(variable: Variable) -> Part:
    """Returns what each replica has of a variable in a program."""
    dim = variable.layout.replica_dim
    if dim is None:
        return Part(whole_of(variable))
    return Part(world().part_of(variable), dim)


def _set_part(variable: Variable, value: jax.Array, dim: int | None) -> None:
    """Sets a variable to what each replica has of its new value."""
    if variable.layout.replica_dim is not None:
        world().set_part(variable, value)
    else:
        set_whole(variable, value if dim is None else whole_of_parts(value, dim))


def state_variable(value: object, **kwargs: Any) -> Variable:
    return Variable(value, trainable=False, **kwargs)


def checked(gradient: object, variable: Variable) -> Any:
    if not isinstance(gradient, Mirrored | jax.Array):
        gradient = jnp.asarray(gradient)
    if gradient.shape != variable.shape:
        raise ValueError(
            f"The gradient of variable {variable.name!r} has shape {gradient.shape}, but the "
            f"variable has shape {variable.shape}. Pair each gradient with its own variable."
        )
    return gradient
