"""Variables of Keras that are not ours: what they do under a strategy and in programs.

One that is made under a strategy becomes ours (`_variables.py`). One that was made before stays as
it is, unless a program would keep its value, or give it one that is never computed: then it joins
the others, where no strategy is at work, or is refused.
"""

from __future__ import annotations

from typing import Any

import jax
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.backend.jax.core import JaxVariable
from keras.src.random import seed_generator
from keras.src.random.seed_generator import SeedGenerator

from replicax._src._typing import Tracer
from replicax._src.context import (
    current_replica,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
    is_compiling,
    world,
)
from replicax._src.integrations.keras import _on_servers, _variables
from replicax._src.integrations.keras._variables import Original
from replicax._src.variable import catch_up, expect_late_value, late_value_sources

_own_value: Any = JaxVariable.value


def initialize(original: Original, variable: JaxVariable, value: jax.Array) -> None:
    """Gives a variable its first value, on all replicas if it is of a strategy."""
    is_ours = has_strategy() or _variables.in_model_fn() or _is_restored_in_program()
    if is_ours and variable._layout is None:
        _variables.replicate(variable, value)
    else:
        original(variable, value)
        if late_value_sources:
            expect_late_value(variable)  # a checkpoint may have something for it


def next_seed(original: Original, generator: SeedGenerator, ordered: bool = True) -> Any:
    """Returns the next seed of a generator, which is another one on each replica."""
    if _on_servers.is_on_worker():
        return _seed_of_replica(_on_servers.next_seed(generator))
    return _seed_of_replica(original(generator, ordered))


def _seed_of_replica(seed: jax.Array) -> Any:
    """Replicas draw different numbers from one seed."""
    context = current_replica()
    if context is None:
        return seed
    return jax.random.fold_in(seed, context.replica_id_in_sync_group)


def assign(original: Original, variable: JaxVariable, value: jax.Array) -> None:
    """Assigns a plain variable, or makes it one of ours."""
    # Variables of a strategy have a method of their own.
    if has_strategy() and not in_cross_replica_context():
        raise ValueError(
            f"The Keras variable {variable.path!r} was assigned in a replica, but was made "
            "outside of the strategy's scope, on one device. Make the layer or metric that it "
            "belongs to inside `with strategy.scope():`."
        )
    if _outlives_its_trace(variable, value):
        if _variables.can_join(variable):
            _variables.join(variable)
            variable._direct_assign(value)
            return
        raise ValueError(
            f"The Keras variable {variable.path!r} was assigned in an rx.function or a loss, but "
            "was made outside of a strategy's scope: it would keep a value that is never computed. "
            "Make the layer, metric or optimizer that it belongs to inside `with "
            "strategy.scope():`."
        )
    original(variable, value)


def read(variable: JaxVariable) -> Any:
    """Returns the value of a plain variable, or of what it becomes."""
    if variable._to_be_made_in is not None and not in_stateless_scope():  # pyright: ignore
        _variables.make_late(variable)
        return variable.value
    catch_up(variable)
    if _would_be_kept(variable):
        if _variables.can_join(variable):
            _variables.join(variable)
            return variable.value
        raise ValueError(
            f"The Keras variable {variable.path!r} is read in an rx.function, but was made "
            "outside of a strategy's scope: the compiled program would keep the value that it "
            "has now. Make the model or metric that it belongs to inside `with "
            'strategy.scope():`; rx.distribute.OneDeviceStrategy("CPU:0") will do.'
        )
    return _own_value.fget(variable)


def made_when_asked_for(variable: JaxVariable) -> Any:
    """Returns the variable of ours that a plain one becomes."""
    if variable._to_be_made_in is not None and not in_stateless_scope():  # pyright: ignore
        _variables.make_late(variable)
    elif _variables.can_join(variable):
        _variables.join(variable)
    else:
        raise AttributeError("__rx_variable__")
    return variable.__rx_variable__  # pyright: ignore  # that of its new class


def _is_restored_in_program() -> bool:
    """Returns whether a variable that a program makes may get its value from a checkpoint."""
    return bool(late_value_sources) and _in_program()


def _would_be_kept(variable: JaxVariable) -> bool:
    """Returns whether a plain variable from outside is read in a program that is being made."""
    return _in_program() and _is_from_outside(variable)


def _in_program() -> bool:
    """Returns whether a program is being made, and Keras has no state of its own."""
    return is_compiling() and not in_stateless_scope() and not in_symbolic_scope()


def _outlives_its_trace(variable: JaxVariable, value: object) -> bool:
    """Returns whether a plain variable from outside is given a value of a program or a loss."""
    is_ours = is_compiling() or bool(world().substitutions)
    return is_ours and isinstance(value, Tracer) and _is_from_outside(variable)


def _is_from_outside(variable: JaxVariable) -> bool:
    """Returns whether a variable was there before the program: those made in it have its values."""
    value = vars(variable).get("_value")
    return value is not None and not isinstance(value, Tracer)


def global_seed_generator(original: Original) -> Any:
    """Returns the generator that Keras has for all; in another strategy than its own, a new one."""
    found = original()
    if has_strategy():
        own = getattr(found.state, "__rx_variable__", None)
        if own is None or own.distribute_strategy is not get_strategy():
            global_state.set_global_attribute(seed_generator.GLOBAL_SEED_GENERATOR, None)
            found = original()
    return found
