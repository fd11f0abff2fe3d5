"""Flax NNX under a strategy: a module made in a scope keeps its state in variables of the strategy.

An `nnx.Variable` keeps its value in a slot, through which everything reads and writes it. The slot
becomes a `_ValueSlot`: where it holds an `rx.Variable`, a read gives that variable's value and a
write assigns it. So layers, filters, `nnx.split`, `nnx.update` and the transformations of NNX are
unchanged: what they copy are plain values. Two more places know of replicas: streams of random
keys, so that each replica draws its own numbers, and `nnx.Optimizer.update`, which sums the
gradients.

This is all that is changed in Flax. Outside of a strategy's scope it does nothing.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, final

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.nnx import pytreelib, rnglib, tracers
from flax.nnx.training import metrics, optimizer

import replicax as rx
from replicax._src._typing import DTypeLike, PyTree, Tracer, override
from replicax._src._versions import FLAX, warn_unless_tested
from replicax._src.context import current_replica, is_compiling
from replicax._src.strategies import Strategy
from replicax._src.training import gradient_watchers, show_gradients
from replicax._src.variable import is_array, rename

_WITH_STATE = (nnx.Module, optimizer.Optimizer, rnglib.Rngs, rnglib.RngStream, metrics.Metric)

_SLOT: Any = nnx.Variable.__dict__["_raw_value"]  # Python's own descriptor


@final
class _Constructing(threading.local):
    depth = 0  # how many constructors of modules are at work


_constructing = _Constructing()


def join() -> None:
    """Lets modules made in a scope live under its strategy."""
    if isinstance(nnx.Variable.__dict__["_raw_value"], _ValueSlot):
        return
    warn_unless_tested("Flax", flax.__version__, FLAX)
    check = pytreelib.Pytree._check_valid_context
    for owner, name, value in (
        (nnx.Variable, "_raw_value", _ValueSlot()),
        (nnx.Variable, "__rx_variable__", property(_bound_variable)),
        (nnx.Variable, "_structure_leaf", staticmethod(_is_bound)),
        (pytreelib.Pytree, "_structure_leaf", staticmethod(_is_passed_whole)),
        (nnx.Variable, "_checkpoint_children", _checkpoint_children),
        (nnx.Variable, "__rx_variables__", _bound_in_place),
        (pytreelib.Pytree, "__rx_variables__", _bound_in_place),
        (nnx.Variable, "__init__", _and_then(nnx.Variable.__init__, _on_new_variable)),
        (pytreelib.PytreeMeta, "__call__", _constructor(pytreelib.PytreeMeta.__call__)),
        (pytreelib.Pytree, "_check_valid_context", _checking_context(check)),
        (rnglib.RngStream, "__call__", _own_keys(rnglib.RngStream.__call__)),
        (optimizer.Optimizer, "update", _summing(optimizer.Optimizer.update)),
    ):
        setattr(owner, name, value)


# ---------------------------------------------------------------------- where a value is kept


@final
class _ValueSlot:
    """In the place of the slot: the value behind it may be that of an `rx.Variable`."""

    def __get__(self, instance: nnx.Variable | None, owner: type | None = None) -> Any:
        if instance is None:
            return self
        held = _SLOT.__get__(instance, owner)
        return held.read() if type(held) is _Bound else held

    def __set__(self, instance: nnx.Variable, value: Any) -> None:
        try:
            held = _SLOT.__get__(instance, type(instance))
        except AttributeError:  # it is being made
            held = None
        if type(held) is not _Bound:
            _SLOT.__set__(instance, value)
        elif held.is_replaced_by(value):
            _SLOT.__set__(instance, value)
            with held.variable.distribute_strategy.scope():
                _bind(instance, held.variable.name.removesuffix(":0"))
        else:
            held.write(value)

    def __delete__(self, instance: nnx.Variable) -> None:
        _SLOT.__delete__(instance)


@final
class _Bound:
    """What a slot holds in a scope: a variable, and what its numbers mean."""

    __slots__ = ("key_kind", "meanwhile", "variable")

    def __init__(self, variable: rx.Variable, key_kind: Any, is_random: bool):
        self.variable = variable
        self.key_kind = key_kind  # of random keys, which are kept as numbers
        # `nnx.split_rngs` puts several keys in the place of one, for a while: by replica's thread.
        self.meanwhile: dict[int, Any] | None = {} if is_random else None

    def read(self) -> Any:
        if self.meanwhile:
            found = self.meanwhile.get(threading.get_ident())
            if found is not None:
                return found
        value = self.variable.value()
        if self.key_kind is None:
            return value
        return jax.random.wrap_key_data(value, impl=self.key_kind)

    def write(self, value: jax.Array) -> None:
        if self.meanwhile is not None:
            if value.shape != self._shape:
                self.meanwhile[threading.get_ident()] = value
                return
            self.meanwhile.pop(threading.get_ident(), None)
        variable = self.variable
        if self.key_kind is not None:
            value = jax.random.key_data(value)
        # NNX hands back what it did not change; to combine that would be work for nothing.
        on_read = variable.synchronization is rx.VariableSynchronization.ON_READ
        if on_read or value is not variable.value():
            variable.assign(value)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.variable.shape if self.key_kind is None else self.variable.shape[:-1]

    def is_replaced_by(self, value: Any) -> bool:
        """Returns whether `value` takes the variable's place: another shape, dtype or object.

        That may be done to a model as a whole, and not by its replicas.
        """
        if self.meanwhile is not None or is_compiling():
            return False
        if _is_in_replica_of(self.variable.distribute_strategy):
            return False
        if _is_number(value):
            return self._shape != ()
        if not is_array(value):
            return True
        return (value.shape, value.dtype) != (self._shape, self.variable.dtype)


@final
class _AnyTrace(tracers.TraceState):
    """Variables may be assigned in any trace of JAX: those of replicax know what to do there."""

    __slots__ = ()

    @override
    def is_valid(self) -> bool:
        return True


_ours: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # modules, by id


def _checking_context(check: Callable[..., None]) -> Callable[..., None]:
    """Modules made in a scope may be taken apart in an `rx.function` or a loss, and used after it.

    NNX sees a trace of JAX there, and refuses; it also makes that trace the module's own when its
    transformations put the module together again.
    """

    @functools.wraps(check)
    def check_valid_context(self: pytreelib.Pytree, error_msg: Callable[[], str]) -> None:
        if _ours.get(id(self)) is not self:
            check(self, error_msg)

    return check_valid_context


def _bound_variable(self: nnx.Variable) -> rx.Variable:
    held = _SLOT.__get__(self, type(self))
    if type(held) is _Bound:
        return held.variable
    raise AttributeError("__rx_variable__")


def _is_bound(value: nnx.Variable) -> bool:
    return type(_SLOT.__get__(value, type(value))) is _Bound


def _is_passed_whole(value: pytreelib.Pytree) -> bool:
    """Returns whether replicas get an object as it is: what has state. Others may be data."""
    if isinstance(value, _WITH_STATE):
        return True
    parts = (part for _, part in nnx.iter_graph(value, graph=True))
    return any(isinstance(part, nnx.Variable) and _is_bound(part) for part in parts)


def _checkpoint_children(self: nnx.Variable) -> dict[str, Any]:
    held = _SLOT.__get__(self, type(self))
    if type(held) is not _Bound:
        raise ValueError(
            f"A checkpoint holds a {type(self).__name__} of Flax NNX, of shape {self.shape}, that "
            "was made outside of a strategy's scope, and so cannot be saved. Make the module in "
            '`with strategy.scope():`; rx.distribute.OneDeviceStrategy("CPU:0") will do.'
        )
    return {"value": held.variable}


# ---------------------------------------------------------------------- what is made in a scope


def _is_in_scope() -> bool:
    """Returns whether variables are to be a strategy's: in its scope, and not in a replica."""
    distribute = rx.distribute
    return distribute.has_strategy() and distribute.in_cross_replica_context()


def _constructor(construct: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(construct)
    def constructed(cls: type, *args: object, **kwargs: object) -> Any:
        _constructing.depth += 1
        try:
            node = construct(cls, *args, **kwargs)
        finally:
            _constructing.depth -= 1
        if not _constructing.depth and _is_in_scope():
            _bind_all(node)
        return node

    return constructed


def _on_new_variable(variable: nnx.Variable) -> None:
    if not _constructing.depth and _is_in_scope():
        _bind(variable, type(variable).__name__)


def _bound_in_place(node: PyTree, name: str) -> Any:
    """Binds a module that was not made in the scope, for `rx.variables`; returns it."""
    if _is_in_scope():
        _bind_all(node, name)
    return node


def _bind_all(node: PyTree, prefix: str = "") -> None:
    """Binds all that a new module holds, also what transformations such as `nnx.vmap` made."""
    for path, part in nnx.iter_graph(node, graph=True):
        if isinstance(part, nnx.Variable):
            names = [prefix, *map(str, path)] if prefix else map(str, path)
            _bind(part, "/".join(names) or type(part).__name__)
        elif isinstance(part, pytreelib.Pytree):
            _ours[id(part)] = part
        if (
            isinstance(part, metrics.Welford)
            and rx.distribute.get_strategy().num_replicas_in_sync > 1
        ):
            raise NotImplementedError(
                "nnx.metrics.Welford cannot be combined over replicas. Use nnx.metrics.Average, or "
                "make it outside of the strategy's scope and update it with reduced values."
            )


def _bind(variable: nnx.Variable, name: str) -> None:
    held = _SLOT.__get__(variable, type(variable))
    if type(held) is _Bound:
        if name.endswith("/" + held.variable.name.removesuffix(":0")):
            rename(held.variable, name)  # it is a part of something larger now
        return
    value = jnp.asarray(held) if _is_number(held) else held
    if not is_array(value) or isinstance(value, Tracer) or variable.ref:
        return
    key_kind = None
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        key_kind, value = jax.random.key_impl(value), jax.random.key_data(value)
    made = rx.Variable(value, name=name, **_options(variable, value.dtype))
    _SLOT.__set__(variable, _Bound(made, key_kind, isinstance(variable, rnglib.RngState)))
    object.__setattr__(variable, "_trace_state", _AnyTrace())


def _options(variable: nnx.Variable, dtype: DTypeLike) -> dict[str, Any]:
    """Returns how the replicas' values of a variable are kept and combined, by its type."""
    inexact = bool(jnp.issubdtype(dtype, jnp.inexact))
    if isinstance(variable, nnx.Param):
        return {"trainable": inexact, "aggregation": "MEAN" if inexact else "ONLY_FIRST_REPLICA"}
    if isinstance(variable, optimizer.OptState):
        return {"trainable": False, "aggregation": "ONLY_FIRST_REPLICA"}
    on_read = {"trainable": False, "synchronization": "ON_READ"}
    if isinstance(variable, metrics.MetricState):
        return on_read | {"aggregation": "SUM"}
    return on_read | {"aggregation": "MEAN" if inexact else "ONLY_FIRST_REPLICA"}


def _is_in_replica_of(strategy: object) -> bool:
    context = rx.get_replica_context()
    return context is not None and context.strategy is strategy


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | complex | np.generic) and not isinstance(value, bool)


def _and_then(fn: Callable[..., Any], then: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def both(self: object, *args: object, **kwargs: object) -> None:
        fn(self, *args, **kwargs)
        then(self)

    return both


# ---------------------------------------------------------------------- what replicas do together


def _own_keys(next_key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Streams of random keys: the number of the replica goes into each key."""

    @functools.wraps(next_key)
    def own_key(self: rnglib.RngStream) -> Any:
        key = next_key(self)
        context = current_replica()
        if context is None:
            return key
        return jax.random.fold_in(key, context.replica_id_in_sync_group)

    return own_key


def _summing(update: Callable[..., Any]) -> Callable[..., Any]:
    """`nnx.Optimizer.update` in a replica: the gradients of all are summed, as `rx.Optimizer` does.

    The update is then made once, where the state is.
    """

    @functools.wraps(update)
    def summing_update(
        self: optimizer.Optimizer, model: PyTree, grads: PyTree, /, **kwargs: object
    ) -> Any:
        context = rx.get_replica_context()
        if context is None or not _is_bound(self.step):
            return update(self, model, grads, **kwargs)
        # What optax is told of the loss is a share of it in each replica, as the gradients are.
        shares = {} if current_replica() is None else _known_shares(kwargs)
        leaves, structure = jax.tree_util.tree_flatten((grads, shares))
        _show_gradients(model, grads)

        def together(strategy: Strategy, leaves: list[Any]) -> Any:
            pairs = [(leaf, leaf) for leaf in leaves]
            summed = strategy.extended.batch_reduce_to("SUM", pairs)
            total, totals = structure.unflatten([jnp.asarray(each) for each in summed])
            return update(self, model, total, **kwargs | totals)

        return context.merge_call(together, args=(leaves,))

    return summing_update


def _show_gradients(model: PyTree, grads: PyTree) -> None:
    """Shows this replica's gradients, with their variables, to traps that look at them."""
    if not gradient_watchers or not isinstance(grads, nnx.State):
        return
    variables = {
        path: part.__rx_variable__
        for path, part in nnx.iter_graph(model, graph=True)
        if isinstance(part, nnx.Variable) and _is_bound(part)
    }
    found = [
        (jax.tree_util.tree_leaves(each), variables[path])
        for path, each in nnx.to_flat_state(grads)
        if path in variables
    ]
    pairs = [(leaves[0], variable) for leaves, variable in found if len(leaves) == 1]
    show_gradients([gradient for gradient, _ in pairs], [variable for _, variable in pairs])


def _known_shares(kwargs: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(kwargs.keys() - {"value", "grad"})
    if unknown:
        raise ValueError(
            f"nnx.Optimizer.update got {', '.join(unknown)} in a replica, and it is not known how "
            "those of all replicas become one. Only `value` and `grad`, which are shares of the "
            "loss and of its gradient, are summed. For others, reduce the gradients and call "
            "update outside of strategy.run."
        )
    return kwargs
