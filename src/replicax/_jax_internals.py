"""Every reach into JAX's private API, in one place, with the reason for each.

Relied on and tested on JAX 0.10 and 0.11. Nothing else in replicax imports `jax._src`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import jax
from jax._src import array as _array
from jax._src import config as _config
from jax._src import core as _core
from jax._src import xla_bridge as _xla_bridge
from jax._src.interpreters import partial_eval as _partial_eval

# The whole surface of a concrete array; jax.Array declares a part of it.
ARRAY_ATTRIBUTES = frozenset(dir(_array.ArrayImpl))
ThreadSettings = Sequence[tuple[Any, Any]]


def uncommitted(array: jax.Array) -> jax.Array:
    """The same single-device buffer, free to be combined with arrays of other devices.

    JAX refuses to mix arrays that are *committed* to different devices. TensorFlow copies instead,
    and its users write `sum(strategy.experimental_local_results(x))`. There is no public way to
    clear the flag without a copy.
    """
    if not isinstance(array, _array.ArrayImpl) or not array.committed:
        return array
    buffers: Any = [array]
    return _array.ArrayImpl(array.aval, array.sharding, buffers, committed=False, _skip_checks=True)


def local_shards(array: jax.Array) -> list[jax.Array]:
    """This process's shards in device order; `addressable_shards` costs 50 times as much."""
    if isinstance(array, _array.ArrayImpl):
        return list[jax.Array](array._arrays)
    return [shard.data for shard in array.addressable_shards]  # random keys, for example


def is_tracing() -> bool:
    """Whether a JAX transformation (jit, grad, vmap, ...) is tracing on this thread."""
    return not _core.trace_state_clean()


def staging_trace() -> Any:
    """The trace that collects operations into a program (jit, scan, ...), or None without one.

    Under `jax.grad` alone operations are carried out. In a staged function, side effects happen and
    state is read once, when it is traced, and never again: both must be refused.
    """
    trace = _core.trace_ctx.trace
    while trace is not None:
        if isinstance(trace, _partial_eval.DynamicJaxprTrace):
            return trace
        trace = getattr(trace, "parent_trace", None)
    return None


def backends_started() -> bool:
    """Whether JAX has opened its devices, after which their number is fixed."""
    return _xla_bridge.backends_are_initialized()


def trace_settings() -> Hashable:
    """What JAX's own traces depend on besides their inputs, but for the default device."""
    with jax.default_device(None):
        settings = _config.trace_context()
    try:
        hash(settings)
    except TypeError:  # JAX 0.11 has a setting without a hash
        return repr(settings)
    return settings


def thread_settings() -> ThreadSettings:
    """The `with jax.<option>(...)` settings of this thread: a new thread inherits none of them."""
    unset = _config.config_ext.unset
    return [
        (state, value)
        for state in _config.config_states.values()
        if (value := state.get_local()) is not unset
    ]


@contextlib.contextmanager
def with_thread_settings(settings: ThreadSettings) -> Iterator[None]:
    """Applies what `thread_settings` found in another thread."""
    with contextlib.ExitStack() as stack:
        for state, value in settings:
            stack.enter_context(state(value))
        yield
