"""What checkpoints may do with the state of an optimizer, which users are not to see."""

from __future__ import annotations

from typing import Any, Protocol

import jax

from replicax._src.training._optimizer import Optimizer
from replicax._src.training._optimizer_inputs import split_pairs as split_pairs
from replicax._src.variable import Variable


class InitialSlots(Protocol):
    """Values that the state of an optimizer is to start from."""

    def __call__(
        self, owner: Variable | None, position: int | None, label: str, new: jax.Array
    ) -> jax.Array:
        """Returns what a part of the state starts from, in the place of `new`."""
        ...

    def made(self, optimizer: Optimizer) -> None:
        """Is told that the optimizer has its state."""
        ...


def slots_of(optimizer: Optimizer) -> list[tuple[Variable | None, int | None, str, Variable]]:
    """Returns each part of the state: whose it is, that one's position, its label, its variable."""
    return optimizer._slots()


def reset_slots(optimizer: Optimizer) -> None:
    """Makes the state what it was when it was made."""
    optimizer._reset_slots()


def start_slots_from(optimizer: Optimizer, slots: InitialSlots) -> None:
    """Lets the state start from these values, when the optimizer makes it."""
    optimizer._initial_slots = slots


def state_of(optimizer: Optimizer) -> Any:
    """Returns what an optimizer keeps for its variables; None if it was not built yet."""
    return optimizer._built
