"""What an optimizer is given: variables in any structure, and gradients for them.

Inside, an optimizer has a list of variables. Transformations of optax may look at the structure
(masks, labels by path), so that it is kept where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.variable import Variable, is_no_value, is_variable_leaf, root_of, variable_of


class ParameterTree:
    """The structure in which the user has the variables; the others in it are None to optax."""

    def __init__(self, rebuild: Callable[[Sequence[Any]], Any], wanted: Sequence[bool]):
        self._rebuild = rebuild
        self._wanted = wanted
        leaves = jax.tree_util.tree_leaves_with_path(self.of(range(sum(wanted))))
        if not all(isinstance(leaf, int) for _, leaf in leaves):
            raise TypeError("it has nodes that JAX does not know")
        self.paths = [path for path, _ in sorted(leaves, key=lambda item: item[1])]

    def of(self, values: Sequence[Any]) -> Any:
        """Returns the values, which are for the variables, in the structure."""
        given = iter(values)
        return self._rebuild([next(given) if wanted else None for wanted in self._wanted])


def tree_of(structure: PyTree, variables: Sequence[Variable]) -> ParameterTree | None:
    """Returns the structure in which the user gave `variables`; None if optax is to see a list."""
    if is_variable_leaf(structure) or (
        isinstance(structure, list | tuple) and all(map(is_variable_leaf, structure))
    ):
        return None
    leaves, rebuild = _tree.flatten(structure, is_variable_leaf)
    known = {id(variable) for variable in variables}
    found = [variable_of(leaf) for leaf in leaves]
    wanted = [variable is not None and id(root_of(variable)) in known for variable in found]
    try:
        return ParameterTree(rebuild, wanted)
    except (TypeError, ValueError):  # JAX does not know such structures, or refuses the keys
        return None


def variables_in(structure: PyTree) -> list[Variable]:
    """Returns the trainable variables in a structure."""
    found = [_checked(leaf) for leaf in _tree.leaves_of(structure, is_variable_leaf)]
    variables = [root_of(variable) for variable in found if variable is not None]
    # Whoever names nothing else means those that are not trainable.
    variables = [variable for variable in variables if variable.trainable] or variables
    if not variables:
        raise ValueError("There are no variables to optimize. Pass at least one rx.Variable.")
    if len({id(variable) for variable in variables}) != len(variables):
        raise ValueError("A variable is given twice to Optimizer.build. Pass each one once.")
    return variables


def split_pairs(grads_and_vars: PyTree) -> tuple[list[Any], list[Variable], Any]:
    """Gradients, their variables, and the structure of these."""
    pairs = list(grads_and_vars) if isinstance(grads_and_vars, Iterable) else [grads_and_vars]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise TypeError(
            "apply_gradients takes (gradient, variable) pairs: "
            "optimizer.apply_gradients(zip(gradients, variables))."
        )
    if any(isinstance(variable, str) for _, variable in pairs):
        raise TypeError(
            "apply_gradients got names instead of variables, as from zip of two dictionaries. For "
            "a dictionary or another tree write optimizer.apply(gradients, variables)."
        )
    gradients: list[Any] = []
    variables: list[Variable] = []
    for gradient, variable in pairs:
        for g, v in _matched(gradient, variable):
            if v is not None and (g is not None or v.trainable):
                gradients.append(g)
                variables.append(root_of(v))
    if not variables:
        raise ValueError("There are no variables to optimize. Pass at least one rx.Variable.")
    if len({id(variable) for variable in variables}) != len(variables):
        raise ValueError(
            "A variable is given twice to apply_gradients. Add its gradients up and pass it once."
        )
    return gradients, variables, pairs[0][1] if len(pairs) == 1 else variables


def _matched(gradients: PyTree, variables: PyTree) -> list[tuple[Any, Variable | None]]:
    found: list[tuple[Any, Variable | None]] = []

    def match(variable: object, gradient: object) -> None:
        found.append((gradient, _checked(variable)))

    try:
        _tree.map_together(match, [variables, gradients], is_variable_leaf)
    except _tree.StructureMismatch:
        raise ValueError(
            f"The gradients are {_tree.describe(gradients)}, but the variables are "
            f"{_tree.describe(variables)}. Pass the structure that rx.value_and_grad returned "
            "for these variables."
        ) from None
    return found


def _checked(leaf: object) -> Variable | None:
    variable = variable_of(leaf)
    if variable is None and not is_no_value(leaf):
        raise TypeError(
            f"An optimizer updates rx.Variables; got {_tree.describe(leaf)}. Make the parameters "
            "with rx.Variable(...), or rx.variables(tree), in the strategy's scope."
        )
    return variable
