"""`Optimizer`: any optax transformation, with its state in variables of the strategy.

`apply_gradients` does what the four steps of `tf.distribute` do: the replicas meet, their gradients
are added up by one `batch_reduce_to`, and the variables are updated where they live. In place of
one `extended.update` per variable there is one compiled program for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import jax.numpy as jnp

from replicax._src._errors import WrongContextError
from replicax._src._typing import PyTree
from replicax._src.collectives import CommunicationOptions, ReduceOp, ReduceOpLike, as_reduce_op
from replicax._src.context import (
    Frame,
    batch_reduction_of,
    default_strategy,
    entered,
    get_replica_context,
    get_strategy,
    has_strategy,
    meet_replicas,
    optimizer_state_of,
    scattered_sums,
    world,
)
from replicax._src.devices import PLAIN
from replicax._src.training._gradient_watch import show_gradients
from replicax._src.training._on_parts import Part
from replicax._src.training._optimizer_inputs import split_pairs, tree_of, variables_in
from replicax._src.training._optimizer_state import OptimizerState, checked, state_variable
from replicax._src.values import (
    Mirrored,
    PerReplica,
    array_here,
    first_component,
    is_being_computed,
    local_count,
    select_replica,
)
from replicax._src.variable import Variable, VariableAggregation, laid_out_like

_OPTIONS = CommunicationOptions()


class Optimizer:
    """Updates variables with an optax transformation, the same on every replica.

    Gradients are *summed* over the replicas, so the losses of the replicas must add up to the loss
    of the batch: use `rx.nn.share_of_mean`. With `gradients="MEAN"` they are averaged, which is
    right for a loss that is the mean over a replica's own rows, if all have equally many.
    Transformations that use all gradients at once, such as `optax.clip_by_global_norm`, get the
    summed (or averaged) ones.

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
      gradients: how those of the replicas are combined: `rx.distribute.ReduceOp.SUM` or `MEAN`, or
        their names.
    """

    def __init__(
        self,
        transformation: Any,
        name: str = "optimizer",
        *,
        gradients: ReduceOpLike = ReduceOp.SUM,
    ):
        if not callable(getattr(transformation, "init", None)) or not callable(
            getattr(transformation, "update", None)
        ):
            raise TypeError(
                "rx.Optimizer takes an optax transformation such as optax.adam(1e-3); got "
                f"{transformation!r}."
            )
        self._transformation = transformation
        self._name = name
        self._reduce_op = as_reduce_op(gradients)
        self._built: OptimizerState | None = None
        self._initial_slots: Any = None  # set by a checkpoint: what the state will start from
        self._iterations = state_variable(
            jnp.zeros((), jnp.int32),
            name=f"{name}/iterations",
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
            layout=PLAIN,  # rules are for the user's own variables
        )

    # ------------------------------------------------------------------ state

    def build(self, variables: PyTree) -> None:
        """Makes the optimizer's state for these variables; otherwise the first update does.

        Args:
          variables: any nested structure with Variables as leaves, all of one strategy. Those
            that are not trainable get no state.
        """
        leaves = variables_in(variables)
        if self._built is not None:
            self._positions(leaves)
            return
        context = get_replica_context()
        if context is None:
            self._build(leaves, variables)
            return

        def build_once(_: object) -> None:
            self._build(leaves, variables)

        meet_replicas(context, ("build", id(self._iterations)), "Optimizer.build", None, build_once)

    def _build(self, variables: list[Variable], structure: PyTree) -> None:
        if self._built is None:
            strategy = _common_strategy(variables)
            with strategy.scope():
                self._built = optimizer_state_of(strategy)(
                    *(self._transformation, variables, strategy, self._name, self._iterations),
                    self._initial_slots,
                    tree_of(structure, variables),
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
    def learning_rate(self, value: object) -> None:
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

    def apply(self, grads: PyTree, variables: PyTree) -> None:
        """`apply_gradients` for gradients and variables in two structures of the same shape.

        The transformation sees the variables in this structure, so that masks and labels of optax
        may have it, or go by paths. In it, None stands for what is not a trainable variable.
        """
        self.apply_gradients([(grads, variables)])

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

        In replica context the gradients of all replicas are summed first, or averaged if the
        optimizer was made so. In cross-replica context per-replica gradients are, and plain or
        mirrored ones taken as they are.

        Args:
          grads_and_vars: `(gradient, variable)` pairs; a gradient of None leaves its variable, and
            the variable's state, as they are. Also pairs of structures, as `apply` takes them. With
            an empty list nothing happens.
          name: kept for ported code.
          skip_aggregation: the gradients are the same on all replicas already.
          skip_gradients_aggregation: TensorFlow's name of `skip_aggregation`.
          experimental_aggregate_gradients: an older one, with the opposite meaning.
        """
        reduced = skip_aggregation or skip_gradients_aggregation
        reduced = reduced or not experimental_aggregate_gradients
        if isinstance(grads_and_vars, Sized) and not len(grads_and_vars):
            return  # as TensorFlow's; a zip or generator that was used up before is a mistake
        gradients, variables, structure = split_pairs(grads_and_vars)
        context = get_replica_context()
        if context is None:
            self._apply(variables, structure, False, (gradients, variables))
            return
        show_gradients(gradients, variables)
        apply = functools.partial(self._apply, variables, structure, reduced)
        what = f"apply_gradients of {len(variables)} variables"
        key = ("apply_gradients", id(self._iterations))  # of all, if each replica made one
        meet_replicas(context, key, what, (gradients, variables), apply)

    def _apply(
        self,
        variables: list[Variable],
        structure: PyTree,
        reduced: bool,
        merged: tuple[list[Any], list[Any]],
    ) -> None:
        """Applies the update, in cross-replica context.

        Args:
          variables: as one replica has them.
          structure: that in which the user gave them.
          reduced: whether the gradients are the same on all replicas already.
          merged: the gradients and the variables of all replicas.
        """
        _check_same_variables(merged[1])
        gradients = [_merged(gradient, reduced) for gradient in merged[0]]
        _check_gradients(gradients, variables)
        self._build(variables, structure)
        positions = self._positions(variables)
        assert self._built is not None
        built = self._built
        whole, in_parts = built.to_sum(gradients, variables, positions)
        new: list[Any] = [None] * len(built.variables)
        if whole or in_parts:
            with entered(Frame(built.strategy)):
                pairs = [(gradients[i], variables[i]) for i in whole]
                reduce = batch_reduction_of(built.strategy)
                totals = reduce(self._reduce_op, pairs, _OPTIONS) if whole else ()
                for i, total in zip(whole, totals, strict=True):
                    gradients[i] = total
                parts = scattered_sums(built.strategy, [(gradients[i], d) for i, d in in_parts])
                for (i, dim), part in zip(in_parts, parts, strict=True):
                    if self._reduce_op is ReduceOp.MEAN:
                        part = part / built.strategy.num_replicas_in_sync
                    gradients[i], new[positions[i]] = None, Part(part, dim)
        for position, variable, gradient in zip(positions, variables, gradients, strict=True):
            if gradient is not None:
                new[position] = laid_out_like(variable, checked(gradient, variable))
        built.update(new)

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


def _check_gradients(gradients: list[Any], variables: list[Variable]) -> None:
    """Refuses gradients that JAX is tracing, and an update without any."""

    def in_traced_function() -> WrongContextError:
        return WrongContextError(
            "apply_gradients was called inside a function that is being differentiated or "
            "compiled (rx.value_and_grad, jax.grad, jax.jit, ...). Apply the gradients after "
            "that function has returned them."
        )

    here = world()
    if here.substitutions:
        raise in_traced_function()
    for gradient in gradients:
        here.refuse_traced(gradient, in_traced_function)
    if all(gradient is None for gradient in gradients):
        names = ", ".join(variable.name for variable in variables)
        raise ValueError(
            f"No gradients provided for any variable: {names}. Check that the loss reads them, "
            "and that they are trainable."
        )


def _merged(gradient: object, skip_aggregation: bool) -> Any:
    """Returns the gradients of all replicas for one variable as one value; None without any."""
    if not isinstance(gradient, PerReplica):  # one replica, or none of a traced program has any
        return gradient if isinstance(gradient, Mirrored) else array_here(gradient)
    if is_being_computed(gradient):
        return first_component(gradient) if skip_aggregation else gradient
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
    return array_here(parts[0]) if skip_aggregation else gradient


def _check_same_variables(merged: list[Any]) -> None:
    if any(isinstance(each, PerReplica) for each in merged):
        count = next(local_count(each) for each in merged if isinstance(each, PerReplica))
        listing = "; ".join(
            f"replica {i}: {[v.name for v in select_replica(i, merged)]}" for i in range(count)
        )
        raise ValueError(
            f"The replicas gave apply_gradients different variables. {listing}. Pass the same "
            "variables on every replica."
        )
