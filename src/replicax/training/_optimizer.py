"""`Optimizer`: any optax transformation, with its state in variables of the strategy.

`apply_gradients` does what the four steps of `tf.distribute` do: the replicas meet, their gradients
are added up by one `batch_reduce_to`, and the variables are updated where they live. In place of
one `extended.update` per variable there is one compiled program for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from replicax import _tree
from replicax._errors import WrongContextError
from replicax._typing import Tracer
from replicax.context import (
    default_strategy,
    get_replica_context,
    get_strategy,
    has_strategy,
    is_compiling,
)
from replicax.values import ArrayLike, Mirrored, PerReplica, is_leaf, select_replica
from replicax.variables import (
    UPDATING,
    Variable,
    VariableAggregation,
    active_interceptors,
)


class Optimizer:
    """Updates variables with an optax transformation, the same on every replica.

    Gradients are *summed* over the replicas, so the loss is to be divided by the global batch size:
    use `rx.nn.compute_average_loss`. Transformations that look at all gradients at once, such as
    `optax.clip_by_global_norm`, see the summed ones.

    >>> import optax, replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     w = rx.Variable(1.0)
    ...     optimizer = rx.Optimizer(optax.sgd(0.1))
    >>> def step():
    ...     loss, gradients = rx.value_and_grad(lambda: w * w, [w])
    ...     optimizer.apply_gradients(zip(gradients, [w]))
    >>> strategy.run(step)
    >>> w.numpy()  # 1 - 0.1 * (2 + 2)
    array(0.6, dtype=float32)

    Args:
      transformation: an optax `GradientTransformation`, or anything with `init` and `update`.
      name: for the names of its variables.
    """

    def __init__(self, transformation: Any, name: str = "optimizer"):
        if not callable(getattr(transformation, "init", None)) or not callable(
            getattr(transformation, "update", None)
        ):
            raise TypeError(
                "rx.Optimizer takes an optax transformation such as optax.adam(1e-3); got "
                f"{transformation!r}."
            )
        self._transformation = transformation
        self._name = name
        self._built: _Built | None = None
        self._initial_slots: Any = None  # set by a checkpoint: what the state will start from
        self._iterations = _state_variable(
            jnp.zeros((), jnp.int32),
            name=f"{name}/iterations",
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
        )

    # ------------------------------------------------------------------ state

    def build(self, variables: Any) -> None:
        """Makes the optimizer's state for these variables; otherwise the first update does.

        Args:
          variables: any nested structure with Variables as leaves. All belong to one strategy.
        """
        leaves = _variables_of(variables)
        if self._built is not None:
            self._positions(leaves)
            return
        context = get_replica_context()
        if context is None:
            self._build(leaves)
            return

        def build_once(_: Any) -> None:
            self._build(leaves)

        context._meet(("build", id(self)), "Optimizer.build", None, build_once)

    def _build(self, variables: list[Variable]) -> None:
        if self._built is None:
            strategy = _common_strategy(variables)
            with strategy.scope():
                self._built = _Built(
                    *(self._transformation, variables, strategy, self._name, self._iterations),
                    self._initial_slots,
                )
            if self._initial_slots is not None:
                self._initial_slots.made(self)
                self._initial_slots = None

    @property
    def iterations(self) -> Variable:
        """A variable that counts the updates made."""
        return self._iterations

    @property
    def variables(self) -> list[Variable]:
        """The optimizer's own variables: `iterations`, then the state."""
        return [self._iterations, *([] if self._built is None else self._built.state)]

    def _checkpoint_children(self) -> dict[str, Any]:
        return {"iterations": self._iterations}

    def _slots(self) -> list[tuple[Variable | None, int | None, str, Variable]]:
        """For checkpoints: each part of the state, whose it is, and what it is called."""
        return [] if self._built is None else self._built.slots()

    def _reset_slots(self) -> None:
        """Makes the state what it was when it was made."""
        if self._built is not None:
            self._built.reset()

    @property
    def learning_rate(self) -> Any:
        """The learning rate as a variable, if it is a hyperparameter in the state; can be set.

        Make the transformation with `optax.inject_hyperparams(optax.adam)(learning_rate=1e-3)`.
        """
        return self._hyperparameter("learning_rate")

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self._hyperparameter("learning_rate").assign(value)

    def _hyperparameter(self, name: str) -> Variable:
        if self._built is None:
            raise AttributeError(
                f"The optimizer has no state yet, so its {name} cannot be read or set. Call "
                "optimizer.build(variables) first, and make the optimizer with "
                f"optax.inject_hyperparams(optax.adam)({name}=...)."
            )
        found = self._built.hyperparameters.get(name)
        if found is None:
            raise AttributeError(
                f"The {name} of this optimizer is fixed inside its optax transformation. To read "
                f"and set it, make the optimizer with optax.inject_hyperparams(optax.adam)({name}="
                "...)."
            )
        return found

    # ------------------------------------------------------------------ updates

    def apply(self, grads: Any, variables: Any) -> None:
        """`apply_gradients` for gradients and variables in two structures of the same shape."""
        pairs: list[tuple[Any, Any]] = []
        try:
            _tree.map_together(
                lambda variable, gradient: pairs.append((gradient, variable)),
                [variables, grads],
                is_leaf,
            )
        except _tree.StructureMismatch:
            raise ValueError(
                f"The gradients are {_tree.describe(grads)}, but the variables are "
                f"{_tree.describe(variables)}. Pass the structure that rx.value_and_grad returned "
                "for these variables."
            ) from None
        self.apply_gradients(pairs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        skip_aggregation: bool = False,
        *,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> None:
        """Updates the variables.

        In replica context the gradients of all replicas are summed first. In cross-replica context
        per-replica gradients are summed, and plain or mirrored ones taken as they are.

        Args:
          grads_and_vars: `(gradient, variable)` pairs; a gradient of None leaves its variable, and
            the variable's state, as they are.
          name: kept for ported code.
          skip_aggregation: the gradients are the same on all replicas already.
          skip_gradients_aggregation: TensorFlow's name of `skip_aggregation`.
          experimental_aggregate_gradients: an older one, with the opposite meaning.
        """
        reduced = skip_aggregation or skip_gradients_aggregation
        reduced = reduced or not experimental_aggregate_gradients
        gradients, variables = _split_pairs(grads_and_vars)
        context = get_replica_context()
        if context is None:
            self._build(variables)
            self._apply(gradients, variables)
            return

        def apply_merged(merged: Any) -> None:
            _check_same_variables(merged[1])
            self._build(variables)
            self._apply([_merged(gradient, reduced) for gradient in merged[0]], variables)

        what = f"apply_gradients of {len(variables)} variables"
        context._meet(("apply_gradients", id(self)), what, (gradients, variables), apply_merged)

    def _apply(self, gradients: list[Any], variables: list[Variable]) -> None:
        """The update itself, in cross-replica context."""
        traced = any(isinstance(g, Tracer) for g in gradients) and not is_compiling()
        if active_interceptors() or traced:
            raise WrongContextError(
                "apply_gradients was called inside a function that is being differentiated or "
                "compiled (rx.value_and_grad, jax.grad, jax.jit, ...). Apply the gradients after "
                "that function has returned them."
            )
        if all(gradient is None for gradient in gradients):
            names = ", ".join(variable.name for variable in variables)
            raise ValueError(
                f"No gradients provided for any variable: {names}. Check that the loss reads them, "
                "and that they are trainable."
            )
        positions = self._positions(variables)
        assert self._built is not None
        built = self._built
        summed = built.summed(gradients, variables)
        by_position: list[Any] = [None] * len(built.variables)
        for position, variable, gradient in zip(positions, variables, summed, strict=True):
            if gradient is not None:
                by_position[position] = variable._laid_out(_checked(gradient, variable))
        built.update(by_position)

    def _positions(self, variables: list[Variable]) -> list[int]:
        assert self._built is not None
        known = {id(variable): index for index, variable in enumerate(self._built.variables)}
        try:
            return [known[id(variable)] for variable in variables]
        except KeyError:
            strange = next(v.name for v in variables if id(v) not in known)
            raise ValueError(
                f"The optimizer was built for other variables: {strange!r} is not among them. Call "
                "optimizer.build(variables) with all the variables before the first update, or "
                "make an optimizer for each set."
            ) from None


class _Built:
    """The state of an optimizer for a list of variables, and the program that updates them."""

    def __init__(
        self,
        transformation: Any,
        variables: list[Variable],
        strategy: Any,
        name: str,
        iterations: Variable,
        initial_slots: Any = None,
    ):
        self.variables = variables
        self.iterations = iterations
        self.strategy = strategy
        self._transformation = transformation
        initial = transformation.init([variable._array() for variable in variables])
        paths, self._treedef = jax.tree_util.tree_flatten_with_path(initial)
        self._owners = _slot_owners(transformation, initial, len(variables))
        self._labels = _slot_labels([path for path, _ in paths], self._owners)
        leaves = [leaf for _, leaf in paths]
        if initial_slots is not None:
            leaves = [
                initial_slots(None if owner is None else variables[owner], owner, label, leaf)
                for leaf, owner, label in zip(leaves, self._owners, self._labels, strict=True)
            ]
        self.state = [
            self._make_slot(path, leaf, owner, name)
            for (path, _), leaf, owner in zip(paths, leaves, self._owners, strict=True)
        ]
        self.hyperparameters = {
            path[-1].key: slot
            for (path, _), slot in zip(paths, self.state, strict=True)
            if len(path) > 1 and getattr(path[-2], "name", None) == "hyperparams"
        }
        self._program = jax.jit(self._updated, static_argnums=0)

    def _make_slot(self, path: Any, leaf: Any, owner: int | None, name: str) -> Variable:
        label = "/".join(str(part.name) for part in path if hasattr(part, "name"))
        primary = None if owner is None else self.variables[owner]
        prefix = name if primary is None else primary.name.removesuffix(":0")
        with self._colocated(primary):
            return _state_variable(leaf, name=f"{prefix}/{label or 'state'}")

    def slots(self) -> list[tuple[Variable | None, int | None, str, Variable]]:
        return [
            (None if owner is None else self.variables[owner], owner, label, slot)
            for owner, label, slot in zip(self._owners, self._labels, self.state, strict=True)
        ]

    def reset(self) -> None:
        initial = self._transformation.init([variable._array() for variable in self.variables])
        leaves = jax.tree_util.tree_leaves(initial)
        for slot, leaf in zip(self.state, leaves, strict=True):
            slot.assign(leaf)

    def _colocated(self, primary: Variable | None) -> contextlib.AbstractContextManager[Any]:
        extended = self.strategy.extended
        place = extended.non_slot_devices(self.variables) if primary is None else primary
        return extended.colocate_vars_with(place)

    def summed(self, gradients: list[Any], variables: list[Variable]) -> list[Any]:
        """Per-replica gradients summed to where their variables are; others as they are."""
        wanted = [i for i, gradient in enumerate(gradients) if isinstance(gradient, PerReplica)]
        if not wanted:
            return gradients
        pairs = [(gradients[i], variables[i]) for i in wanted]
        result = list(gradients)
        with self.strategy.scope():
            reduced = self.strategy.extended.batch_reduce_to("SUM", pairs)
        for index, gradient in zip(wanted, reduced, strict=True):
            result[index] = gradient
        return result

    def update(self, gradients: list[Any]) -> None:
        with UPDATING:  # no compiled function may take the values meanwhile
            self._update(gradients)

    def _update(self, gradients: list[Any]) -> None:
        present = tuple(gradient is not None for gradient in gradients)
        # Inside rx.function this is a part of its program, and no program of its own.
        program = self._updated if is_compiling() else self._program
        new_values, new_state, new_count = program(
            present,
            [gradient for gradient in gradients if gradient is not None],
            [variable._whole for variable in self.variables],
            [slot._whole for slot in self.state],
            self.iterations._whole,
        )
        for variable, value, changed in zip(self.variables, new_values, present, strict=True):
            if changed:
                variable._set_whole(value, exclusive=True)
        for slot, value in zip(self.state, new_state, strict=True):
            slot._set_whole(value, exclusive=True)
        self.iterations._set_whole(new_count, exclusive=True)

    def _updated(
        self,
        present: tuple[bool, ...],
        gradients: list[jax.Array],
        values: list[jax.Array],
        state: list[jax.Array],
        count: jax.Array,
    ) -> tuple[list[jax.Array], list[jax.Array], jax.Array]:
        """The traced program: one step of the transformation for all variables."""
        given = iter(gradients)
        # A variable without a gradient takes part as a zero, and its results are dropped.
        complete = [
            next(given).astype(value.dtype) if there else jnp.zeros_like(value)
            for there, value in zip(present, values, strict=True)
        ]
        old_state = jax.tree_util.tree_unflatten(self._treedef, state)
        updates, new_tree = self._transformation.update(complete, old_state, values)
        new_values = [
            _constrained(variable, (value + update).astype(value.dtype))
            for variable, value, update in zip(self.variables, values, updates, strict=True)
        ]
        new_state = [
            jnp.asarray(new, old.dtype) if owner is None or present[owner] else old
            for new, old, owner in zip(
                jax.tree_util.tree_leaves(new_tree), state, self._owners, strict=True
            )
        ]
        return new_values, new_state, count + 1


def _state_variable(value: Any, **kwargs: Any) -> Variable:
    return Variable(value, trainable=False, **kwargs)


def _constrained(variable: Variable, value: jax.Array) -> jax.Array:
    return value if variable.constraint is None else variable.constraint(value)


def _slot_owners(transformation: Any, state: Any, count: int) -> list[int | None]:
    """For each leaf of the state, the variable that it belongs to, or None."""
    import optax  # loaded with the first optimizer, not with replicax

    try:
        labels = optax.tree_utils.tree_map_params(
            transformation,
            lambda leaf, index: index,
            state,
            list(range(count)),
            transform_non_params=lambda leaf: -1,
        )
    except Exception:  # a hand-written transformation that optax cannot look into
        return [None] * len(jax.tree_util.tree_leaves(state))
    return [None if label < 0 else label for label in jax.tree_util.tree_leaves(labels)]


def _slot_labels(paths: list[Any], owners: list[int | None]) -> list[str]:
    """The places of the leaves in the state, without the numbers of their variables."""

    def label(path: Any, owner: int | None) -> str:
        places = [i for i, part in enumerate(path) if getattr(part, "idx", None) == owner]
        number = places[-1] if owner is not None and places else None
        parts = (
            str(getattr(part, "name", getattr(part, "key", getattr(part, "idx", part))))
            for i, part in enumerate(path)
            if i != number
        )
        return "/".join(parts) or "state"

    labels = [label(path, owner) for path, owner in zip(paths, owners, strict=True)]
    if len(set(zip(owners, labels, strict=True))) < len(labels):  # of an unusual transformation
        return [jax.tree_util.keystr(path) for path in paths]
    return labels


def _variables_of(variables: Any) -> list[Variable]:
    leaves, _ = _tree.flatten(variables, is_leaf)
    for leaf in leaves:
        if not isinstance(leaf, Variable):
            raise TypeError(
                f"An optimizer updates rx.Variables; got {_tree.describe(leaf)}. Make the "
                "parameters with rx.Variable(...)."
            )
    if not leaves:
        raise ValueError("There are no variables to optimize. Pass at least one rx.Variable.")
    return [leaf._root for leaf in leaves]


def _split_pairs(grads_and_vars: Any) -> tuple[list[Any], list[Variable]]:
    pairs = list(grads_and_vars) if isinstance(grads_and_vars, Iterable) else [grads_and_vars]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise TypeError(
            "apply_gradients takes (gradient, variable) pairs: "
            "optimizer.apply_gradients(zip(gradients, variables))."
        )
    variables = _variables_of([variable for _, variable in pairs])
    if len({id(variable) for variable in variables}) != len(variables):
        raise ValueError(
            "A variable is given twice to apply_gradients. Add its gradients up and pass it once."
        )
    return [gradient for gradient, _ in pairs], variables


def _common_strategy(variables: Sequence[Variable]) -> Any:
    strategies = {id(v.distribute_strategy): v.distribute_strategy for v in variables}
    if len(strategies) > 1:
        listing = ", ".join(f"{v.name}: {v.distribute_strategy!r}" for v in variables[:4])
        raise ValueError(
            f"The variables of an optimizer must belong to one strategy; got {listing}. Make them "
            "all in the same `with strategy.scope():`."
        )
    strategy = next(iter(strategies.values())) or default_strategy()
    if has_strategy() and get_strategy() is not strategy:
        raise ValueError(
            f"Variable {variables[0].name!r} does not belong to {get_strategy()!r}, which is "
            "current, so its updates would not be distributed. Make it inside "
            "`with strategy.scope():`."
        )
    return strategy


def _merged(gradient: Any, skip_aggregation: bool) -> Any:
    """The gradients of all replicas for one variable, as one value; None if there are none."""
    if not isinstance(gradient, PerReplica):  # one replica, or none of a traced program has any
        return gradient._array() if isinstance(gradient, ArrayLike) else gradient
    if gradient._is_traced:
        return gradient._buffers.first if skip_aggregation else gradient
    parts = gradient.values
    missing = [part is None for part in parts]
    if all(missing):
        return None
    if any(missing):
        raise ValueError(
            "A variable has a gradient on some replicas and None on others (None on replicas "
            f"{[i for i, m in enumerate(missing) if m]}). Every replica must compute the same "
            "gradients; use a gradient of zeros where there is nothing to learn."
        )
    arrays = [part._array() if isinstance(part, ArrayLike) else part for part in parts]
    return arrays[0] if skip_aggregation else PerReplica(arrays)


def _checked(gradient: Any, variable: Variable) -> Any:
    if not isinstance(gradient, Mirrored | jax.Array):
        gradient = jnp.asarray(gradient)
    if gradient.shape != variable.shape:
        raise ValueError(
            f"The gradient of variable {variable.name!r} has shape {gradient.shape}, but the "
            f"variable has shape {variable.shape}. Pair each gradient with its own variable."
        )
    return gradient


def _check_same_variables(merged: list[Any]) -> None:
    if any(isinstance(each, PerReplica) for each in merged):
        count = next(each._count for each in merged if isinstance(each, PerReplica))
        listing = "; ".join(
            f"replica {i}: {[v.name for v in select_replica(i, merged)]}" for i in range(count)
        )
        raise ValueError(
            f"The replicas gave apply_gradients different variables. {listing}. Pass the same "
            "variables on every replica."
        )
