"""The state of an optimizer whose variables are on servers: it is there, and so is the update."""

from __future__ import annotations

import uuid
from collections import defaultdict
from typing import Any, final

import numpy as np

from replicax._src._typing import override
from replicax._src.parameter_servers._messages import (
    Assignment,
    Gradient,
    OptimizerSpec,
    Part,
    Push,
    Update,
)
from replicax._src.parameter_servers._packing import packed
from replicax._src.parameter_servers._parts import gradients_of, pieces_of
from replicax._src.parameter_servers._variable import Spec
from replicax._src.training import OptimizerState
from replicax._src.values import array_here
from replicax._src.variable import Change, Variable


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
        self.server_name = f"{name}-{uuid.uuid4().hex[:8]}"
        shared: dict[str, Spec] = {}
        own: dict[int, dict[str, list[Spec]]] = defaultdict(dict)
        for _, owner, label, slot in self.slots():
            specs = [piece.spec for piece in pieces_of(slot)]
            if owner is None:
                shared[label] = specs[0]
            else:
                own[owner][label] = specs
        parts: dict[int, list[Part]] = defaultdict(list)
        for position, variable in enumerate(variables):
            pieces = pieces_of(variable)
            for index, piece in enumerate(pieces):
                slots = {
                    label: specs[index if len(specs) == len(pieces) else 0].key
                    for label, specs in own[position].items()
                }
                for server in piece.spec.servers:
                    parts[server].append(Part(position, piece.spec.key, slots))
        constraints = [variable.constraint for variable in variables]
        everywhere = {label: spec.key for label, spec in shared.items()}
        view = strategy.extended.view
        view.build(
            self.server_name,
            {
                server: packed(
                    OptimizerSpec(transformation, constraints, tree, found, everywhere),
                    strategy.extended.strategy_id,
                    "The optimizer",
                )
                for server, found in parts.items()
            },
        )

    @override
    def update(self, gradients: list[Any]) -> None:
        """One step, from the process of the coordinator."""
        found: dict[int, list[Gradient]] = defaultdict(list)
        for position, gradient in enumerate(gradients):
            if gradient is not None:
                array = np.asarray(array_here(gradient))
                for spec, each in gradients_of(self.variables[position], position, array):
                    for server in spec.servers:
                        found[server].append(each)
        (count,) = pieces_of(self.iterations)
        one = Assignment(count.spec.key, Change.ADD, np.ones((), count.dtype))
        servers = {*found, *count.spec.servers}
        pushes = {
            server: Push(
                None,
                None,
                [one] if server in count.spec.servers else [],
                [Update(self.server_name, found[server])] if server in found else [],
            )
            for server in servers
        }
        self.strategy.extended.view.push(pushes)
