"""Trees of arrays as trees of variables, and back; and objects that stand for a variable.

The structure is the user's: parameters of Flax linen or Haiku, an Equinox module, nested lists.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.context import has_strategy, let_libraries_join
from replicax._src.values import is_leaf
from replicax._src.variable._policy import (
    VariableAggregation,
    VariableSynchronization,
    as_aggregation,
    as_synchronization,
)
from replicax._src.variable._variable import Variable


def variables(
    tree: Any,
    *,
    trainable: bool = True,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
    name: str | None = None,
) -> Any:
    """Returns the tree with an `rx.Variable` for each array, under the current strategy.

    For parameters that another library made: Flax linen, Haiku, Equinox, or by hand. Read them with
    `rx.arrays`; `rx.value_and_grad` and `rx.Optimizer` take the tree as it is.

    >>> import jax.numpy as jnp, replicax as rx
    >>> params = rx.variables({"dense": {"kernel": jnp.ones((2, 3)), "steps": jnp.zeros((), int)}})
    >>> params["dense"]["kernel"].name, params["dense"]["steps"].trainable
    ('dense/kernel:0', False)
    >>> rx.arrays(params)["dense"]["kernel"].shape
    (2, 3)

    Args:
      tree: any pytree. JAX and NumPy arrays become variables; everything else in it (functions,
        strings, Python numbers, None, variables) stays as it is.
      trainable: False for what optimizers should leave alone. Only floating-point and complex
        arrays are trainable in any case.
      synchronization: of all of them, as for `rx.Variable`; for batch statistics, "ON_READ".
      aggregation: of all of them; for batch statistics, "MEAN". Where the mean of whole numbers is
        asked for, the first replica's counts.
      name: goes before the names, which are the paths in the tree: "name/params/Dense_0/kernel".
        The rules of an `rx.distribute.StateLayout` go by them.

    Returns:
      A tree of the same structure.
    """
    synchronization = as_synchronization(synchronization)
    aggregation = as_aggregation(aggregation)
    if synchronization is VariableSynchronization.ON_READ:
        trainable = False

    def made(value: Any, path: str) -> Variable:
        inexact = jnp.issubdtype(value.dtype, jnp.inexact)
        combine = aggregation
        if combine is VariableAggregation.MEAN and not inexact:
            combine = VariableAggregation.ONLY_FIRST_REPLICA
        return Variable(
            value,
            trainable=trainable and bool(inexact),
            name=path or None,
            synchronization=synchronization,
            aggregation=combine,
        )

    def walk(node: object, path: str) -> Any:
        if is_array(node):
            return made(node, path)
        own_way = getattr(type(node), "__rx_variables__", None)
        if own_way is not None:  # of a library whose objects have state themselves
            return own_way(node, path)
        level = _tree.one_level(node, is_leaf)
        if level is None:
            return node
        children, rebuild, _ = level
        names = _keys(node, len(children))
        return rebuild([walk(c, f"{path}/{n}" if path else n) for c, n in zip(children, names)])

    return walk(tree, name or "")


def arrays(tree: PyTree) -> Any:
    """Returns the tree with the value of each variable in its place: what `rx.variables` was given.

    In replica context these are the replica's values, and inside `rx.value_and_grad` those to
    differentiate; elsewhere the values of all replicas, combined if they differ. Functions of the
    library take the result: `model.apply(rx.arrays(params), x)`, `rx.arrays(model)(x)`.

    >>> import jax.numpy as jnp, replicax as rx
    >>> rx.arrays(rx.variables({"bias": jnp.zeros(2)}))
    {'bias': Array([0., 0.], dtype=float32)}

    Args:
      tree: any pytree with Variables. What is no variable stays as it is.
    """
    if isinstance(tree, Variable):
        return tree._array()
    level = _tree.one_level(tree, _is_variable)
    if level is None:
        return tree
    children, rebuild, _ = level
    return rebuild([arrays(child) for child in children])


def assign(variables: PyTree, values: PyTree) -> None:
    """Assigns a tree of values to a tree of variables of the same structure.

    For state that a library's function returns, such as batch statistics. In replica context each
    variable's aggregation combines what the replicas give.

    >>> import jax.numpy as jnp, replicax as rx
    >>> statistics = rx.variables({"mean": jnp.zeros(2)}, trainable=False)
    >>> rx.assign(statistics, {"mean": jnp.ones(2)})
    >>> rx.arrays(statistics)
    {'mean': Array([1., 1.], dtype=float32)}

    Args:
      variables: any pytree with Variables. What is no variable is left as it is.
      values: the new values, where there are variables.
    """
    pairs: list[tuple[Any, Any]] = []
    try:
        _tree.map_together(lambda *pair: pairs.append(pair), [variables, values], is_variable_leaf)
    except _tree.StructureMismatch:
        raise ValueError(
            f"assign was given the variables {_tree.describe(variables)}, and for them the values "
            f"{_tree.describe(values)}. Both must have the same structure."
        ) from None
    for target, value in pairs:
        variable = variable_of(target)
        if variable is not None:
            variable.assign(value)


def variable_behind(value: object) -> Variable | None:
    """Returns the variable that an object is, or stands for (`__rx_variable__`); None if none.

    Parameters of other libraries stand for variables where they were made in a strategy's scope.
    """
    if isinstance(value, Variable):
        return value
    found = getattr(value, "__rx_variable__", None)
    return found if isinstance(found, Variable) else None


def variable_of(value: object) -> Variable | None:
    """Returns the same; the object may be the first that we see of its library, such as Keras."""
    found = variable_behind(value)
    if found is None and not is_no_value(value) and not has_strategy():
        let_libraries_join()
        found = variable_behind(value)
    return found


def is_variable_leaf(value: object) -> bool:
    """Returns whether a walk through sources and gradients stops here."""
    return is_leaf(value) or variable_behind(value) is not None


def is_array(value: object) -> bool:
    """Returns whether a leaf can be a variable; numbers of Python cannot, nor can text."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind not in "OSUMm"
    return isinstance(value, jax.Array)


def is_no_value(value: object) -> bool:
    """Returns whether a leaf of a module is not to be learnt: a function, text, setting, None."""
    return value is None or callable(value) or isinstance(value, str | bytes | int | float)


def _is_variable(value: object) -> bool:
    return isinstance(value, Variable)


def _keys(node: object, count: int) -> Sequence[str]:
    """Returns what the children of a node are called in it."""
    if isinstance(node, dict) and type(node) is dict:
        return [str(key) for key in node]
    paths = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda part: part is not node)[0]
    if len(paths) == count and all(len(path) == 1 for path, _ in paths):
        return [jax.tree_util.keystr(path, simple=True) for path, _ in paths]
    if dataclasses.is_dataclass(node):
        return [field.name for field in dataclasses.fields(node) if hasattr(node, field.name)]
    return [str(index) for index in range(count)]
