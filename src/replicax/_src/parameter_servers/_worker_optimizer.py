"""An optimizer on a worker: gradients go to the servers, which have the state and do the work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import PyTree
from replicax._src.context import world
from replicax._src.parameter_servers._messages import Gradient, Key, KnownOptimizer
from replicax._src.parameter_servers._parts import gradients_of, summed, table_of
from replicax._src.parameter_servers._variable import ServerVariable, Spec
from replicax._src.parameter_servers._worker_view import Mailbox, WorkerView
from replicax._src.training import split_pairs
from replicax._src.values import array_here
from replicax._src.variable import Variable


class NeedsBuildError(BaseException):
    """Internal: an optimizer has no state yet. The coordinator makes it; the function runs again.

    A BaseException, so that a user's `except Exception` does not catch it.
    """

    def __init__(self, number: int, structure: PyTree):
        super().__init__(number)
        self.number = number
        self.structure = structure


@final
class WorkerOptimizer:
    """What stands for an `rx.Optimizer` in functions on workers."""

    def __init__(
        self,
        view: WorkerView,
        number: int,
        iterations: ServerVariable,
        known: KnownOptimizer | None,
    ):
        """
        Args:
          view: that of this worker.
          number: by which the coordinator knows it.
          iterations: the count of updates.
          known: what is known of its state, if it was built.
        """
        self._view = view
        self._number = number
        self.iterations = iterations
        self._known: KnownOptimizer | None = None
        self._positions: dict[int, int] = {}
        self._mail: dict[int, tuple[Variable, Mailbox]] = {}  # by the variables' ids
        self._steps = Mailbox((), jnp.int32)
        self._counted = 0  # of these steps
        if known is not None:
            self.built(known)

    def built(self, known: KnownOptimizer) -> None:
        """Is told that the servers have its state."""
        self._known = known
        self._positions = {id(variable): index for index, variable in enumerate(known.variables)}

    def build(self, variables: PyTree) -> None:
        """Makes the state, on the servers, if it is not there yet."""
        if self._known is None:
            raise NeedsBuildError(self._number, variables)

    def apply(self, grads: PyTree, variables: PyTree) -> None:
        """`apply_gradients` for gradients and variables in two structures of the same shape."""
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
        """Sends gradients to the servers, which update the variables.

        There is one replica, so that nothing is aggregated.
        """
        if isinstance(grads_and_vars, Sized) and not len(grads_and_vars):
            return
        gradients, variables, structure = split_pairs(grads_and_vars)
        if self._known is None:
            tables = [table_of(variable) for variable in variables]
            if any(table is not variable for table, variable in zip(tables, variables)):
                structure = list({id(table): table for table in tables}.values())
            raise NeedsBuildError(self._number, structure)
        pairs = [
            (variable, array_here(gradient))
            for variable, gradient in zip(variables, gradients, strict=True)
            if gradient is not None
        ]
        if not pairs:
            names = ", ".join(variable.name for variable in variables)
            raise ValueError(
                f"No gradients provided for any variable: {names}. Check that the loss reads them, "
                "and that they are trainable."
            )
        for variable, gradient in pairs:
            self._check(variable, gradient)
        world().pick(self._apply_now, self._apply_in_program)(pairs)

    def _check(self, variable: Variable, gradient: jax.Array) -> None:
        if id(table_of(variable)) not in self._positions:
            raise ValueError(
                f"The optimizer was built for other variables: {variable.name!r} is not among "
                "them. Call optimizer.build(variables) with all the variables before the first "
                "update, or make an optimizer for each set."
            )
        if tuple(gradient.shape) != tuple(variable.shape):
            raise ValueError(
                f"The gradient of variable {variable.name!r} has shape {gradient.shape}, but the "
                f"variable has shape {variable.shape}. Pair each gradient with its own variable."
            )

    def _apply_now(self, pairs: Sequence[tuple[Variable, Any]]) -> None:
        self._view.collect()
        self._send([(variable, np.asarray(gradient)) for variable, gradient in pairs])

    def _apply_in_program(self, pairs: Sequence[tuple[Variable, Any]]) -> None:
        for variable, gradient in pairs:
            known = self._mail.get(id(variable))
            if known is None:
                box = Mailbox(variable.shape, variable.dtype)
                known = self._mail[id(variable)] = (variable, box)
            known[1].variable.assign(gradient)
        self._steps.variable.assign_add(1)

    def collect(self) -> None:
        """After a program: sends what it has left here."""
        if not self._steps.is_full:
            return
        before, self._counted = self._counted, int(self._steps.take())
        boxes = [(variable, box) for variable, box in self._mail.values() if box.is_full]
        pairs = [(variable, box.take()) for variable, box in boxes]
        if (steps := self._counted - before) > 1:
            raise RuntimeError(
                f"One call of a compiled function called apply_gradients {steps} times. Its "
                "variables are on servers, so that each update has to leave the program: compile "
                "one step, and call it several times from the function that is scheduled."
            )
        self._view.collect()
        self._send(pairs)

    def _send(self, pairs: Sequence[tuple[Variable, np.ndarray]]) -> None:
        found: dict[Key, tuple[Spec, list[Gradient]]] = {}
        for variable, gradient in pairs:
            position = self._positions[id(table_of(variable))]
            for spec, each in gradients_of(variable, position, gradient):
                found.setdefault(spec.key, (spec, []))[1].append(each)
        assert self._known is not None
        name, _, counting = self._known
        self._view.note_update(name, counting)
        for spec, gradients in found.values():  # several, if a table was looked up several times
            self._view.note_gradient(name, spec, summed(gradients))
        self._view.add_one(self.iterations)
        self._view.send()
