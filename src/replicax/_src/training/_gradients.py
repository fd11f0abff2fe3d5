"""`value_and_grad` and `grad`: what JAX has in place of TensorFlow's `GradientTape`.

The loss is a function of no arguments that reads variables. While it runs, JAX tracers stand for
those variables in the world of this thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.context import world
from replicax._src.devices import supposed
from replicax._src.functions import ByIdentity, LossCache
from replicax._src.training._substitution import (
    GatheredValue,
    TracedValues,
    checked_loss,
    checked_losses,
)
from replicax._src.values import is_leaf
from replicax._src.variable import (
    Variable,
    is_no_value,
    is_variable_leaf,
    root_of,
    variable_creator_scope,
    variable_of,
)

Loss = TypeVar("Loss")  # with `has_aux`, the pair of the loss and the rest

_losses = LossCache()


def value_and_grad(
    loss_fn: Callable[[], Loss], variables: PyTree, has_aux: bool = False, compile: bool = False
) -> tuple[Loss, Any]:
    """Evaluates `loss_fn()` at once, and its gradients with respect to `variables`.

    In replica context the gradients are those of this replica; an `rx.Optimizer` sums them over
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
    sources = _Sources(loss_fn, variables, "value_and_grad")

    def evaluate(loss_fn: Callable[[], Any]) -> tuple[Any, list[Any]]:
        with sources.around_loss():
            return _evaluated(loss_fn, sources.wanted, has_aux)

    if compile or world().compiles_losses:
        key = (has_aux, tuple(map(ByIdentity, sources.wanted)))
        result, found = _losses.call(loss_fn, evaluate, key, if_possible=not compile)
    else:
        result, found = evaluate(loss_fn)
    return result, sources.with_gradients(found)


def values_and_grads(
    loss_fn: Callable[[], PyTree], variables: Sequence[PyTree], has_aux: bool = False
) -> tuple[Any, tuple[Any, ...]]:
    """Evaluates several losses that are computed together, each with gradients of its own.

    `loss_fn()` runs once. This is what two tapes around one block do in TensorFlow, as for the
    generator and the discriminator of a GAN. Otherwise as `value_and_grad`.

    >>> import replicax as rx
    >>> v, w = rx.Variable(3.0), rx.Variable(2.0)
    >>> rx.values_and_grads(lambda: (v * w, w * w), ([v], [w]))[1]
    ([Array(2., dtype=float32)], [Array(4., dtype=float32)])

    Args:
      loss_fn: returns a tuple of losses; with `has_aux`, a pair of that and anything else.
      variables: for each loss, the variables to differentiate it by.
      has_aux: whether `loss_fn` returns `(losses, aux)`.

    Returns:
      `(losses, gradients)`, or `((losses, aux), gradients)`: of each loss with respect to its own
      variables. Where no loss reads a variable, there is None.
    """
    if not isinstance(variables, tuple | list) or not variables:
        raise TypeError(
            "values_and_grads takes a tuple of variables for each loss, as (generator."
            f"trainable_variables, critic.trainable_variables); got {_tree.describe(variables)}."
        )
    groups = [_Sources(loss_fn, each, "values_and_grads") for each in variables]
    wanted = list({id(each): each for group in groups for each in group.wanted}.values())
    places = {id(each): place for place, each in enumerate(wanted)}
    parts = [[places[id(each)] for each in group.wanted] for group in groups]

    def evaluate(loss_fn: Callable[[], Any]) -> tuple[Any, list[list[Any]]]:
        return _evaluated_together(loss_fn, wanted, parts, has_aux)

    if world().compiles_losses:
        key = (has_aux, tuple(tuple(map(ByIdentity, group.wanted)) for group in groups))
        result, found = _losses.call(loss_fn, evaluate, key, if_possible=True)
    else:
        result, found = evaluate(loss_fn)
    gradients = (group.with_gradients(each) for group, each in zip(groups, found, strict=True))
    return result, tuple(gradients)


@final
class _Sources:
    """The variables that a loss is differentiated by, as the caller gave them."""

    def __init__(self, loss_fn: object, variables: PyTree, caller: str) -> None:
        if not callable(loss_fn):
            raise TypeError(
                f"{caller} takes a function of no arguments that returns the loss; got "
                f"{_tree.describe(loss_fn)}. Write rx.{caller}(lambda: loss(x, y), variables)."
            )
        if isinstance(variables, list):
            variables = list(variables)  # the loss may make variables and add them to the list
        self._leaves, self._rebuild = _tree.flatten(variables, is_variable_leaf)
        sources = [variable_of(leaf) for leaf in self._leaves]
        for leaf, source in zip(self._leaves, sources, strict=True):
            if source is None and not (is_no_value(leaf) and any(s is not None for s in sources)):
                raise TypeError(
                    f"{caller} differentiates with respect to rx.Variables; `variables` holds "
                    f"{_no_variable(leaf)}"
                )
        self._roots = [None if source is None else root_of(source) for source in sources]
        roots = list({id(root): root for root in self._roots if root is not None}.values())
        self.wanted = [v for v in roots if v.trainable and jnp.issubdtype(v.dtype, jnp.inexact)]

    def around_loss(self) -> contextlib.AbstractContextManager[None]:
        """Entered around a loss: one that is differentiated by nothing must not make variables."""
        return contextlib.nullcontext() if self._leaves else _no_late_variables()

    def with_gradients(self, found: list[Any]) -> Any:
        """Returns the gradients of `wanted` in the structure that the caller gave."""
        gradients = {id(each): gradient for each, gradient in zip(self.wanted, found, strict=True)}
        return self._rebuild([gradients.get(id(root)) for root in self._roots])


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
    """Returns the gradients of `value_and_grad`; with `has_aux`, `(gradients, aux)`.

    >>> import replicax as rx
    >>> w = rx.Variable(3.0)
    >>> rx.grad(lambda: w * w, [w])
    [Array(6., dtype=float32)]
    """
    result, gradients = value_and_grad(loss_fn, variables, has_aux, compile)
    return (gradients, result[1]) if has_aux else gradients


def _evaluated(
    loss_fn: Callable[[], Any], variables: list[Variable], has_aux: bool
) -> tuple[Any, list[Any]]:
    """Returns the loss, and a gradient for each variable; None if the loss does not read it."""
    traced = _LossOfValues(lambda: checked_loss(loss_fn(), has_aux), variables)
    (loss, aux), gradients = jax.value_and_grad(traced.function, has_aux=True)(traced.values)
    return ((loss, traced.rebuild(aux)) if has_aux else loss), traced.read_only(gradients)


def _evaluated_together(
    loss_fn: Callable[[], Any], variables: list[Variable], parts: list[list[int]], has_aux: bool
) -> tuple[Any, list[list[Any]]]:
    """Returns the losses, and of each the gradients for its part of the variables."""
    traced = _LossOfValues(lambda: checked_losses(loss_fn(), len(parts), has_aux), variables)
    losses, pull_back, aux = jax.vjp(traced.function, traced.values, has_aux=True)
    found = []
    for number, places in enumerate(parts):
        seeds = tuple(
            jnp.ones_like(loss) if each == number else jnp.zeros_like(loss)
            for each, loss in enumerate(losses)
        )
        (gradients,) = pull_back(seeds)
        gradients = traced.read_only(gradients)
        found.append([gradients[place] for place in places])
    return ((losses, traced.rebuild(aux)) if has_aux else losses), found


@final
class _LossOfValues:
    """A loss that reads variables, as a function of their values, which JAX can differentiate."""

    def __init__(self, loss_fn: Callable[[], tuple[Any, Any]], variables: list[Variable]) -> None:
        self._loss_fn = loss_fn
        self._variables = variables
        self._used: set[int] = set()
        self._cuts = [world().cut_of(variable) for variable in variables]
        self.rebuild: Callable[[Any], Any] = list
        """Makes what else the loss returned of its leaves."""
        self.values = [
            variable.value() if dim is None else jnp.zeros(variable.shape, variable.dtype)
            for variable, dim in zip(variables, self._cuts, strict=True)
        ]
        self.function = jax.checkpoint(self._call) if supposed().checkpointed else self._call

    def _call(self, values: list[jax.Array]) -> tuple[Any, list[Any]]:
        given = [
            value if dim is None else GatheredValue(value, world().part_of(variable), dim)
            for variable, value, dim in zip(self._variables, values, self._cuts, strict=True)
        ]
        substitution = TracedValues(zip(self._variables, given, strict=True))
        with world().in_loss(substitution):
            loss, aux = self._loss_fn()
        self._used.update(substitution.used)
        leaves, self.rebuild = _tree.flatten(aux, is_leaf)  # JAX would sort dicts
        return loss, leaves

    def read_only(self, gradients: list[Any]) -> list[Any]:
        """Returns the gradients; None for variables that the loss does not read."""
        return [
            gradient if id(variable) in self._used else None
            for variable, gradient in zip(self._variables, gradients, strict=True)
        ]


def _no_variable(leaf: Any) -> str:
    """Returns what is said of something in the place of a variable."""
    if hasattr(leaf, "path") and hasattr(leaf, "trainable"):  # a parameter of Keras
        return (
            f"the {type(leaf).__name__} {leaf.path!r}, which was made outside of a strategy's "
            "scope. Make the model that it belongs to inside `with strategy.scope():`."
        )
    return (
        f"{_tree.describe(leaf)}. For plain arrays use jax.value_and_grad, or make them variables "
        "in the strategy's scope: rx.variables(tree)."
    )
