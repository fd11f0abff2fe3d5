"""`value_and_grad` and `grad`: what JAX has in place of TensorFlow's `GradientTape`.

The loss is a function of no arguments that reads variables. While it runs, JAX tracers stand for
those variables in the world of this thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.context import world
from replicax._src.devices import supposed
from replicax._src.functions import ByIdentity, LossCache
from replicax._src.training._substitution import GatheredValue, TracedValues, checked_loss
from replicax._src.values import is_leaf
from replicax._src.variable import (
    Variable,
    is_no_value,
    is_variable_leaf,
    root_of,
    variable_behind,
    variable_creator_scope,
)

Loss = TypeVar("Loss")  # with `has_aux`, the pair of the loss and the rest

_losses = LossCache()


def value_and_grad(
    loss_fn: Callable[[], Loss], variables: PyTree, has_aux: bool = False, compile: bool = False
) -> tuple[Loss, Any]:
    """Evaluates `loss_fn()` at once, and its gradients with respect to `variables`.

    In replica context the gradients are this replica's own; an `rx.Optimizer` adds them up over
    the replicas. Gradients flow through `all_reduce` and `all_gather`. Variables assigned inside
    the loss (moving averages, metrics) are assigned once.

    >>> import replicax as rx
    >>> w = rx.Variable(3.0)
    >>> rx.value_and_grad(lambda: w * w, [w])
    (Array(9., dtype=float32), [Array(6., dtype=float32)])

    Args:
      loss_fn: returns the loss, a scalar; with `has_aux`, a pair of the loss and anything else.
      variables: any nested structure with Variables as leaves, or objects that stand for one. A
        module may have functions, text and None among them: there is no gradient there.
      has_aux: whether `loss_fn` returns `(loss, aux)`.
      compile: compile the loss and its gradient. The rest of the replica function stays plain
        Python. Arrays that the loss captures (closure, globals, defaults, containers) are inputs of
        the compiled program, so that a new batch does not compile it again. Changing another value
        that it captures, also an attribute of your own objects, classes and modules, compiles it
        again. Side effects happen only when it is compiled. A loss with a collective in it runs as
        plain Python.

    Returns:
      `(loss, gradients)`, or `((loss, aux), gradients)`. The gradients have the structure of
      `variables`; where a variable is not trainable, or the loss does not read it, there is None.
    """
    if not callable(loss_fn):
        raise TypeError(
            f"value_and_grad takes a function of no arguments that returns the loss; got "
            f"{_tree.describe(loss_fn)}. Write rx.value_and_grad(lambda: loss(x, y), variables)."
        )
    if isinstance(variables, list):
        variables = list(variables)  # the loss may make variables and add them to the list
    leaves, rebuild = _tree.flatten(variables, is_variable_leaf)
    sources = [variable_behind(leaf) for leaf in leaves]
    for leaf, source in zip(leaves, sources, strict=True):
        if source is None and not (is_no_value(leaf) and any(s is not None for s in sources)):
            raise TypeError(
                f"value_and_grad differentiates with respect to rx.Variables; `variables` holds "
                f"{_no_variable(leaf)}"
            )
    found_roots = [None if source is None else root_of(source) for source in sources]
    roots = list({id(root): root for root in found_roots if root is not None}.values())
    wanted = [v for v in roots if v.trainable and jnp.issubdtype(v.dtype, jnp.inexact)]

    def evaluate(loss_fn: Callable[[], Any]) -> tuple[Any, list[Any]]:
        if leaves:
            return _evaluated(loss_fn, wanted, has_aux)
        with _no_late_variables():
            return _evaluated(loss_fn, wanted, has_aux)

    if compile or world().compiles_losses:
        key = (has_aux, tuple(map(ByIdentity, wanted)))
        result, found = _losses.call(loss_fn, evaluate, key, if_possible=not compile)
    else:
        result, found = evaluate(loss_fn)
    gradients = {id(variable): each for variable, each in zip(wanted, found, strict=True)}
    return result, rebuild([gradients.get(id(root)) for root in found_roots])


@contextlib.contextmanager
def _no_late_variables() -> Iterator[None]:
    """Around a loss that is differentiated with respect to nothing: it must not make variables."""
    made: list[str] = []

    def note(next_creator: Callable[..., Any], **arguments: object) -> Any:
        variable = next_creator(**arguments)
        if getattr(variable, "trainable", False):
            made.append(variable.name)
        return variable

    with variable_creator_scope(note):
        yield
    if made:
        raise ValueError(
            f"value_and_grad was given no variables, and the loss then made {', '.join(made[:3])}: "
            "a model that makes its variables when it is first called has none before. Call it "
            "once in the strategy's scope, before the first step, so that there is something to "
            "differentiate with respect to."
        )


def grad(
    loss_fn: Callable[[], Any], variables: PyTree, has_aux: bool = False, compile: bool = False
) -> Any:
    """The gradients of `value_and_grad`; with `has_aux`, `(gradients, aux)`."""
    result, gradients = value_and_grad(loss_fn, variables, has_aux, compile)
    return (gradients, result[1]) if has_aux else gradients


def _evaluated(
    loss_fn: Callable[[], Any], variables: list[Variable], has_aux: bool
) -> tuple[Any, list[Any]]:
    """The loss, and the gradient for each variable; None for those that the loss does not read."""
    used: set[int] = set()
    rebuild: Callable[[Any], Any] = list
    cuts = [world().cut_of(variable) for variable in variables]

    def evaluate(values: list[jax.Array]) -> tuple[jax.Array, list[Any]]:
        nonlocal rebuild
        given = [
            value if dim is None else GatheredValue(value, world().part_of(variable), dim)
            for variable, value, dim in zip(variables, values, cuts, strict=True)
        ]
        substitution = TracedValues(zip(variables, given, strict=True))
        with world().in_loss(substitution):
            loss, aux = checked_loss(loss_fn(), has_aux)
        used.update(substitution.used)
        leaves, rebuild = _tree.flatten(aux, is_leaf)  # JAX would sort dicts
        return loss, leaves

    values = [
        variable.value() if dim is None else jnp.zeros(variable.shape, variable.dtype)
        for variable, dim in zip(variables, cuts, strict=True)
    ]
    evaluated = jax.checkpoint(evaluate) if supposed().checkpointed else evaluate
    (loss, aux), gradients = jax.value_and_grad(evaluated, has_aux=True)(values)
    found = [g if id(v) in used else None for v, g in zip(variables, gradients, strict=True)]
    return ((loss, rebuild(aux)) if has_aux else loss), found


def _no_variable(leaf: Any) -> str:
    """What is said of something in the place of a variable."""
    if hasattr(leaf, "path") and hasattr(leaf, "trainable"):  # a parameter of Keras
        return (
            f"the {type(leaf).__name__} {leaf.path!r}, which was made outside of a strategy's "
            "scope. Make the model that it belongs to inside `with strategy.scope():`."
        )
    return (
        f"{_tree.describe(leaf)}. For plain arrays use jax.value_and_grad, or make them variables "
        "in the strategy's scope: rx.variables(tree)."
    )
