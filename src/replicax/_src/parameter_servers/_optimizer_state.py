"""The state of an optimizer whose variables are on servers: it is there, and so is the update."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, final

import jax
import numpy as np

from replicax._src._typing import override
from replicax._src.parameter_servers._messages import (
    Assignment,
    Gradient,
    KnownOptimizer,
    OptimizerSpec,
    Part,
    Push,
    Update,
)
from replicax._src.parameter_servers._packing import packed
from replicax._src.parameter_servers._parts import gradients_of, pieces_of
from replicax._src.parameter_servers._shard_info import ShardInfo
from replicax._src.parameter_servers._sharded import ShardedVariable
from replicax._src.parameter_servers._variable import Spec
from replicax._src.training import OptimizerState
from replicax._src.values import array_here
from replicax._src.variable import Change, Variable


def tell_servers(
    strategy: Any,
    spec: OptimizerSpec,
    name: str,
    variables: list[Variable],
    slots: Iterable[tuple[int | None, str, Variable]],
) -> KnownOptimizer:
    """Tells the servers of an optimizer whose state they have.

    Args:
      strategy: whose servers.
      spec: what they have to know, without `parts` and `shared`.
      name: of the optimizer.
      variables: those that it updates.
      slots: the state: the position of the variable that it belongs to or None, a label, itself.

    Returns:
      What workers have to know of it.
    """
    shared: dict[str, Spec] = {}
    own: dict[int, dict[str, list[Spec]]] = defaultdict(dict)
    for owner, label, slot in slots:
        specs = [piece.spec for piece in pieces_of(slot)]
        if owner is None:
            shared[label] = specs[0]
        else:
            own[owner][label] = specs
    parts: dict[int, list[Part]] = defaultdict(list)
    for position, variable in enumerate(variables):
        pieces = pieces_of(variable)
        for index, piece in enumerate(pieces):
            keys = {
                label: specs[index if len(specs) == len(pieces) else 0].key
                for label, specs in own[position].items()
            }
            for server in piece.spec.servers:
                parts[server].append(Part(position, piece.spec.key, keys))
    everywhere = {label: each.key for label, each in shared.items()}
    server_name = f"{name}-{uuid.uuid4().hex[:8]}"
    strategy.extended.view.build(
        server_name,
        {
            server: packed(
                spec._replace(parts=found, shared=everywhere),
                strategy.extended.strategy_id,
                "The optimizer",
            )
            for server, found in parts.items()
        },
    )
    return KnownOptimizer(server_name, variables, tuple(sorted(parts)) if shared else ())


@final
class _FirstValue:
    """What some state starts from."""

    def __init__(self, state: ServerOptimizerState, path: Any, owner: int | None):
        """
        Args:
          state: of the optimizer.
          path: which of it.
          owner: the position of the variable that it belongs to; None if it belongs to none.
        """
        self._state = state
        self._path = path
        self._position = owner or 0

    def __call__(self, shard_info: ShardInfo | None = None) -> Any:
        """Returns it for the part of the variable that begins where this one does, or the first."""
        variable = self._state.variables[self._position]
        piece = pieces_of(variable)[0]
        if shard_info is not None and isinstance(variable, ShardedVariable):
            piece = variable.variables[variable.offsets.index(shard_info.offset[0])]
        return self._state.first_value(self._path, self._position, piece.value())


@final
class ServerOptimizerState(OptimizerState):
    """The variables of the state; the servers are told of the transformation."""

    def __init__(
        self,
        transformation: Any,
        variables: list[Variable],
        strategy: Any,
        name: str,
        iterations: Variable,
        initial_slots: Any = None,
        tree: Any = None,
    ):
        super().__init__(transformation, variables, strategy, name, iterations, initial_slots, tree)
        self.known = tell_servers(
            strategy,
            OptimizerSpec(transformation, [v.constraint for v in variables], tree, [], {}),
            name,
            variables,
            [(owner, label, slot) for _, owner, label, slot in self.slots()],
        )

    @property
    def _is_by_part(self) -> bool:
        return any(isinstance(variable, ShardedVariable) for variable in self.variables)

    @override
    def _initial_whole(self) -> Any:
        # With variables in parts only what it is like: it is made part by part, so that this
        # process never needs room for all of a table.
        if not self._is_by_part:
            return super()._initial_whole()
        looks = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in self.variables]
        return jax.eval_shape(self._init, looks)

    @override
    def _slot_variable(self, leaf: Any, path: Any, owner: int | None, **kwargs: object) -> Variable:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return super()._slot_variable(leaf, path, owner, **kwargs)
        first = _FirstValue(self, path, owner)
        if owner is None:
            return super()._slot_variable(first(), path, owner, **kwargs)
        kwargs.update(shape=leaf.shape, dtype=leaf.dtype)
        return super()._slot_variable(first, path, owner, **kwargs)

    @override
    def reset(self) -> None:
        if not self._is_by_part:
            super().reset()
            return
        for slot, path, owner in zip(self.state, self._rule.paths, self._owners, strict=True):
            first = _FirstValue(self, path, owner)
            if isinstance(slot, ShardedVariable):
                for piece, start in zip(slot.variables, slot.offsets):
                    piece.assign(first(ShardInfo(piece.shape, (start,))))
            else:
                slot.assign(first())

    def first_value(self, path: Any, position: int, value: jax.Array) -> Any:
        """Returns what some state starts from, for a variable with this value."""
        alone = [value if index == position else None for index in range(len(self.variables))]
        found, _ = jax.tree_util.tree_flatten_with_path(self._init(alone))
        return next(leaf for at, leaf in found if at == path)

    @override
    def update(self, gradients: list[Any]) -> None:
        """Makes a step, from the process of the coordinator."""
        found: dict[int, list[Gradient]] = defaultdict(list)
        for position, gradient in enumerate(gradients):
            if gradient is not None:
                array = np.asarray(array_here(gradient))
                for spec, each in gradients_of(self.variables[position], position, array):
                    for server in spec.servers:
                        found[server].append(each)
        (count,) = pieces_of(self.iterations)
        one = Assignment(count.spec.key, Change.ADD, np.ones((), count.dtype))
        name, _, counting = self.known
        updating = {*found, *counting}
        pushes = {
            server: Push(
                None,
                None,
                [one] if server in count.spec.servers else [],
                [Update(name, found[server])] if server in updating else [],
            )
            for server in {*updating, *count.spec.servers}
        }
        self.strategy.extended.view.push(pushes)
