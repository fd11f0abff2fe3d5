"""One step of an optax transformation for a list of variables, as a function of arrays.

A variable of the list may be held elsewhere: None is in its place then, in all lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from replicax._src._typing import DTypeLike, KeyPath, PyTree
from replicax._src.training._optimizer_inputs import ParameterTree

Constraint = Callable[[jax.Array], Any] | None


@final
class UpdateRule:
    """What an optimizer does to values and state.

    Attributes:
      owners: for each part of the state, the position of the variable that it belongs to, or None.
      labels: what these parts are called, without the names of the variables.
      paths: where they are in the state.
    """

    def __init__(
        self,
        transformation: Any,
        constraints: Sequence[Constraint],
        tree: ParameterTree | None,
        initial: PyTree,
        here: Sequence[bool] | None = None,
    ):
        """
        Args:
          transformation: an optax `GradientTransformation`.
          constraints: of the variables.
          tree: how the transformation sees the variables, if not as a list.
          initial: what the state starts from, or arrays of its shapes.
          here: which variables are not held elsewhere; by default all.
        """
        self._transformation = transformation
        self._constraints = constraints
        self._tree = tree
        found, self._treedef = jax.tree_util.tree_flatten_with_path(initial)
        self.paths = [path for path, _ in found]
        positions = [i if here is None or here[i] else None for i in range(len(constraints))]
        self.owners = slot_owners(transformation, tree, positions, initial)
        self.labels = _slot_labels(self.paths, self.owners, None if tree is None else tree.paths)

    def __call__(
        self,
        present: tuple[bool, ...],
        gradients: Sequence[Any],
        values: Sequence[Any],
        state: Sequence[jax.Array],
    ) -> tuple[list[Any], list[jax.Array]]:
        """Returns the new values and the new state.

        Args:
          present: which variables have a gradient.
          gradients: of these.
          values: of all variables.
          state: the parts of the state.
        """
        given = iter(gradients)
        # A variable without a gradient takes part as a zero, and its results are dropped.
        complete = [
            next(given).astype(value.dtype)
            if there
            else None
            if value is None
            else jnp.zeros_like(value)
            for there, value in zip(present, values, strict=True)
        ]
        updates, new_tree = self._transformation.update(
            structured(self._tree, complete),
            jax.tree_util.tree_unflatten(self._treedef, state),
            structured(self._tree, values),
        )
        here = [None if value is None else i for i, value in enumerate(values)]
        order = jax.tree_util.tree_leaves(structured(self._tree, here))
        changes = dict(zip(order, jax.tree_util.tree_leaves(updates), strict=True))
        new_values = [
            None if value is None else self._constrained(i, value + changes[i], value.dtype)
            for i, value in enumerate(values)
        ]
        new_state = [
            jnp.asarray(new, old.dtype) if owner is None or present[owner] else old
            for new, old, owner in zip(
                jax.tree_util.tree_leaves(new_tree), state, self.owners, strict=True
            )
        ]
        return new_values, new_state

    def _constrained(self, position: int, value: jax.Array, dtype: DTypeLike) -> jax.Array:
        constraint = self._constraints[position]
        value = value.astype(dtype)
        return value if constraint is None else constraint(value)


def structured(tree: ParameterTree | None, values: Sequence[Any]) -> Any:
    """Returns values, which are for the variables, as the transformation sees them."""
    return list(values) if tree is None else tree.of(values)


def slot_owners(
    transformation: Any, tree: ParameterTree | None, positions: Sequence[int | None], state: PyTree
) -> list[int | None]:
    """Returns, for each leaf of the state, the variable that it belongs to, or None.

    `positions` are those of the variables, with None in the place of one that is elsewhere.
    """
    import optax  # loaded with the first optimizer, not with replicax

    def is_masked(leaf: object) -> bool:
        return isinstance(leaf, optax.MaskedNode)

    try:
        labels = optax.tree_utils.tree_map_params(
            transformation,
            lambda leaf, index: leaf if is_masked(leaf) else index,
            state,
            structured(tree, positions),
            transform_non_params=lambda leaf: -1,
            is_leaf=is_masked,
        )
    except Exception:  # a hand-written transformation that optax cannot look into
        return [None] * len(jax.tree_util.tree_leaves(state))
    return [None if label < 0 else label for label in jax.tree_util.tree_leaves(labels)]


def _slot_labels(
    paths: list[Any], owners: list[int | None], parameters: list[Any] | None = None
) -> list[str]:
    """Returns the places of the leaves in the state, without the places of their variables."""

    def label(path: KeyPath, owner: int | None) -> str:
        own = range(0) if owner is None else own_part(path, owner)
        parts = (
            str(getattr(part, "name", getattr(part, "key", getattr(part, "idx", part))))
            for i, part in enumerate(path)
            if i not in own
        )
        return "/".join(parts) or "state"

    def own_part(path: KeyPath, owner: int) -> range:
        wanted = (jax.tree_util.SequenceKey(owner),) if parameters is None else parameters[owner]
        for start in reversed(range(len(path) - len(wanted) + 1)):
            if tuple(path[start : start + len(wanted)]) == tuple(wanted):
                return range(start, start + len(wanted))
        return range(0)

    labels = [label(path, owner) for path, owner in zip(paths, owners, strict=True)]
    if len(set(zip(owners, labels, strict=True))) < len(labels):  # of an unusual transformation
        return [jax.tree_util.keystr(path) for path in paths]
    return labels
