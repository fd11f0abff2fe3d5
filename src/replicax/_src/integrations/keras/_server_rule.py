"""A Keras optimizer on a parameter server: what it does to some variables, and to their state.

The state is in Keras's own variables, which the coordinator has made. Here an optimizer of the same
kind is built for stand-ins of the variables, in each trace, and asked for its update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import numpy as np
from keras.src import backend
from keras.src.optimizers.base_optimizer import BaseOptimizer

from replicax._src._typing import override
from replicax._src.parameter_servers import ForeignRule

COUNT = "0"  # the label of the number of updates: the first variable that an optimizer makes


@final
class OfVariable(NamedTuple):
    """What an optimizer has to know of a variable, beside its value.

    Attributes:
      constraint: applied after the update.
      decays: whether weight decay applies to it.
    """

    constraint: Callable[..., Any] | None
    decays: bool


@final
class KerasRule(ForeignRule):
    """What a Keras optimizer does."""

    def __init__(
        self, kind: type[BaseOptimizer], config: dict[str, Any], variables: Sequence[OfVariable]
    ):
        """
        Args:
          kind: its class.
          config: what one of this class is made of.
          variables: all of those that it updates.
        """
        self._kind = kind
        self._config = config
        self._variables = variables

    @override
    def program(self, positions: Sequence[int]) -> Any:
        """Returns the update of the variables at some positions."""
        return _Update(self, positions)

    def built(
        self, positions: Sequence[int], values: Sequence[Any]
    ) -> tuple[BaseOptimizer, list[tuple[int | None, str]]]:
        """Returns an optimizer for some values, and what its variables are.

        These are described by the place of the value that they belong to, or None, and a label.
        """
        optimizer = self._kind.from_config(dict(self._config))
        made = Slots()
        made.follow(optimizer)
        variables = [backend.Variable(value, name=f"v{i}") for i, value in enumerate(values)]
        decays: dict[int, bool] = {}
        for variable, position in zip(variables, positions, strict=True):
            variable.constraint = self._variables[position].constraint
            decays[id(variable)] = self._variables[position].decays
        optimizer.build(variables)
        optimizer._exclude_from_weight_decay_cache = decays
        places = {id(variable): i for i, variable in enumerate(variables)}
        return optimizer, made.described(optimizer, places)


@final
class Slots:
    """Takes note of which variables an optimizer makes for which others."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any, str]] = []  # what was made, for which, and its label

    def note(self, slot: Any, reference: Any, name: str | None) -> None:
        """`slot` is of `reference`."""
        label = name or "var"
        known = {label for _, of, label in self._made if of is reference}
        while label in known:
            label += "+"
        self._made.append((slot, reference, label))

    def follow(self, optimizer: BaseOptimizer) -> None:
        """Takes note of what this optimizer makes from now on."""
        original = optimizer.add_variable_from_reference

        def add(
            reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
        ) -> Any:
            slot = original(reference_variable, name, initializer)
            self.note(slot, reference_variable, name)
            return slot

        object.__setattr__(optimizer, "add_variable_from_reference", add)

    def described(
        self, optimizer: BaseOptimizer, places: dict[int, int]
    ) -> list[tuple[int | None, str]]:
        """Returns what the variables of the optimizer are.

        Args:
          optimizer: which has been built.
          places: of the variables that it updates, by their ids.
        """
        own = {id(slot): (places[id(of)], label) for slot, of, label in self._made}
        others = (str(number) for number in range(len(optimizer.variables)))
        return [own.get(id(v)) or (None, next(others)) for v in optimizer.variables]


@final
class _Update:
    """The compiled update of some variables."""

    def __init__(self, rule: KerasRule, positions: Sequence[int]):
        self._rule = rule
        self._positions = positions
        self._run = jax.jit(self._updated)

    def __call__(
        self,
        gradients: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        states: Sequence[dict[str, np.ndarray]],
        shared: dict[str, np.ndarray],
    ) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
        """Returns new values, each one's new state, and what belongs to none of them."""
        found = self._run(list(gradients), list(values), list(states), shared)
        return jax.tree_util.tree_map(np.asarray, found)

    def _updated(
        self, gradients: list[Any], values: list[Any], states: list[Any], shared: dict[str, Any]
    ) -> Any:
        optimizer, kinds = self._rule.built(self._positions, values)
        # The worker has counted this update already; the optimizer counts it itself.
        before = {**shared, COUNT: shared[COUNT] - 1}
        given = [before[label] if of is None else states[of][label] for of, label in kinds]
        gradients = [
            gradient.astype(value.dtype) for gradient, value in zip(gradients, values, strict=True)
        ]
        new_values, new = optimizer.stateless_apply(given, gradients, values)
        own: list[dict[str, Any]] = [{} for _ in values]
        after = dict(shared)
        for (of, label), value in zip(kinds, new, strict=True):
            (after if of is None else own[of])[label] = value
        after[COUNT] = shared[COUNT]
        return list(new_values), own, after
