"""How `rx.Variable(...)` becomes a variable: arguments, creators, the strategy's own kind."""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from typing import Any

import jax
import numpy as np

from replicax._src._arrays import IntegersTooLargeError, as_array
from replicax._src._typing import DTypeLike, PyTree
from replicax._src.context import (
    create_variable,
    get_strategy,
    require_threads,
    thread_state,
    world,
)
from replicax._src.values import ArrayLike, PerReplica, array_here
from replicax._src.variable import _late_values
from replicax._src.variable._policy import VariableAggregation, VariableSynchronization

Creator = Callable[..., Any]

# What creators are given beside what the user wrote: all that TensorFlow's are.
_DEFAULTS: dict[str, Any] = {
    "initial_value": None,
    "trainable": None,
    "validate_shape": True,
    "caching_device": None,
    "name": None,
    "variable_def": None,
    "dtype": None,
    "import_scope": None,
    "constraint": None,
    "synchronization": VariableSynchronization.AUTO,
    "aggregation": VariableAggregation.NONE,
    "shape": None,
    "experimental_enable_variable_lifting": None,
}
_WITHOUT_MEANING = ("caching_device", "variable_def", "import_scope")
_KEPT = (*_WITHOUT_MEANING, "validate_shape", "experimental_enable_variable_lifting")


def create(arguments: dict[str, Any], make_plain: Creator) -> Any:
    """Asks the creators of this thread, innermost first, and the current strategy at the end."""

    def by_strategy(**kwargs: object) -> Any:
        require_meaning(kwargs)
        given = {name: value for name, value in kwargs.items() if name not in _KEPT}
        return create_variable(get_strategy(), make_plain, given)

    creator: Creator = by_strategy
    if thread_state.creators:
        arguments = {**_DEFAULTS, **arguments}
    for outer in thread_state.creators:
        creator = _chained(outer, creator)
    made = creator(**arguments)
    if _late_values.late_value_sources:
        _late_values.expect_late_value(made)
    return made


def require_meaning(arguments: dict[str, Any]) -> None:
    """`ValueError` for arguments that are there for ported code only, and ask for something."""
    for argument in _WITHOUT_MEANING:
        if arguments.get(argument) is not None:
            raise ValueError(
                f"`{argument}` has no meaning on JAX and is kept for ported code only; leave it "
                "out. To place a variable, make it inside `with rx.device(...)` or a strategy's "
                "scope."
            )


def _chained(creator: Creator, next_creator: Creator) -> Creator:
    return lambda **kwargs: creator(next_creator, **kwargs)


@contextlib.contextmanager
def variable_creator_scope(variable_creator: Creator) -> Generator[None]:
    """Context manager: `variable_creator(next_creator, **kwargs)` makes the variables inside.

    As `tf.variable_creator_scope`. It gets all arguments of `rx.Variable`, may change them, call
    `next_creator(**kwargs)`, and return what that returns or something else.
    """
    if not callable(variable_creator):
        raise TypeError(
            "`variable_creator` must be a function variable_creator(next_creator, **kwargs); got "
            f"{variable_creator!r}."
        )
    stack = thread_state.creators
    stack.append(variable_creator)
    try:
        yield
    finally:
        stack.pop()


def initial_array(
    initial_value: PyTree, dtype: DTypeLike | None, shape: object, name: str
) -> jax.Array:
    """Returns the concrete array that a variable starts from."""
    require_threads("rx.Variable")
    if initial_value is None:
        raise ValueError(
            f"Variable {name!r} needs an `initial_value`: an array, a number, a nested list, or a "
            "function that returns one."
        )
    value = initial_value
    if callable(value) and not isinstance(value, ArrayLike | jax.Array | np.ndarray):
        value = value()
    if isinstance(value, PerReplica):
        raise ValueError(
            f"Variable {name!r} cannot start from a PerReplica value, which differs by replica. "
            "Reduce it first with strategy.reduce(...), or make the variable inside strategy.run."
        )
    value = array_here(value)
    world().require_startable(value, name)
    _check_dtype(dtype, name)
    try:
        array = as_array(value, dtype)
    except IntegersTooLargeError as error:
        raise ValueError(f"Variable {name!r}: {error}") from None
    except OverflowError as error:
        raise ValueError(f"Variable {name!r}: {error}. Give a dtype that it fits.") from None
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(value, str | bytes) else type(error)
        raise kind(
            f"Variable {name!r} cannot start from {initial_value!r}: {error} Pass an array, a "
            "number or a regular nested list of numbers."
        ) from None
    if shape is not None:
        _check_shape(array.shape, shape, name)
    return array


def _check_dtype(dtype: DTypeLike | None, name: str) -> None:
    try:
        jax.dtypes.canonicalize_dtype(dtype)
    except TypeError as error:
        kind = ValueError if isinstance(dtype, str) else TypeError
        raise kind(
            f"Variable {name!r}: `dtype` must be a dtype of JAX, such as 'float32' or "
            f"jnp.bfloat16; got {dtype!r}: {error}"
        ) from None


def _check_shape(actual: tuple[int, ...], declared: object, name: str) -> None:
    if isinstance(declared, str) or not isinstance(declared, int | Iterable):
        raise TypeError(
            f"Variable {name!r}: `shape` is a tuple of sizes, such as (2, None); got {declared!r}."
        )
    wanted = tuple(declared) if not isinstance(declared, int) else (declared,)
    fits = len(wanted) == len(actual) and all(w in (None, a) for w, a in zip(wanted, actual))
    if not fits:
        raise ValueError(
            f"Variable {name!r}: the initial value has shape {actual}, which does not fit the "
            f"declared shape {wanted}. Change one of the two."
        )
