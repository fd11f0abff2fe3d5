"""Variables with several copies: mirrored (equal) and sync-on-read (each replica its own).

The copies live in one `ReplicaBuffers`. What a read or an update means depends on the context:
replica context speaks for one copy, update context for the copy being updated, cross-replica
context for all.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._errors import WrongContextError
from replicax._src._typing import Device, override
from replicax._src.collectives import ReduceOp, default_device
from replicax._src.context import (
    EACH,
    ReplicaContext,
    ReplicaId,
    copy_for,
    first_of,
    get_replica_context,
    get_strategy,
    has_strategy,
    meet_replicas,
    of_first_replica,
    replica_id_for,
    update_replica_id,
    world,
)
from replicax._src.devices import PLAIN, Layout, ReplicaMesh, canonical_name, put
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    OneBuffer,
    PerReplica,
    array_here,
    value_of_buffers,
)
from replicax._src.variable import _creator, _display, _policy
from replicax._src.variable._policy import Change, VariableAggregation, VariableSynchronization
from replicax._src.variable._scatter import Scatter
from replicax._src.variable._start import Start
from replicax._src.variable._variable import UPDATING, Variable, changed, only_copy

_REDUCE_OPS = {VariableAggregation.SUM: ReduceOp.SUM, VariableAggregation.MEAN: ReduceOp.MEAN}


@jax.tree_util.register_pytree_node_class
class ComponentVariable(Variable):
    """One copy of a distributed variable: what `extended.update` hands out."""

    def __init__(self, container: DistributedVariable, index: Any):
        self._container = container
        self._index = index
        base = container._name.removesuffix(":0")
        self._name = container._name if first_of(index) == 0 else f"{base}/replica_{index}:0"
        self._layout = container._layout
        for field in ("_synchronization", "_aggregation", "_trainable", "_constraint", "_strategy"):
            setattr(self, field, getattr(container, field))

    @property
    def _distributed_container(self) -> DistributedVariable:
        return self._container

    @property
    def _looks_left(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._container._looks_left

    @override
    def _catch_up(self) -> None:
        self._container._catch_up()

    @property
    def _template(self) -> Any:
        return self._container._template

    @property
    def _placement(self) -> tuple[Device, ...]:
        return (self._container._placement[first_of(self._index)],)

    @property
    def _root(self) -> Variable:
        # The copies of a sync-on-read variable differ, so each is a variable of its own.
        return self if isinstance(self._container, SyncOnReadVariable) else self._container

    @property
    def _stored(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return OneBuffer(self._container._settled().component(self._index))

    def _read(self) -> jax.Array:
        world().require_own_copy(self._container, self._index)
        with UPDATING:
            return self._container._buffers.component(self._index)

    def _update(self, how: Change, value: jax.Array | Mirrored) -> None:
        if isinstance(value, DistributedValues):
            value = value._component(copy_for(self._index, value._count))
        device = self._placement[0]
        value = put(value, device)
        with UPDATING:
            new = changed(how, self._read(), value, device)
            self._container._set_copy(self._index, new)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._container, memo).values[self._index]


# All that there are, by when they were made: variables cannot be members of a set.
all_distributed: weakref.WeakValueDictionary[int, DistributedVariable] = (
    weakref.WeakValueDictionary()
)
_numbers = itertools.count()


class DistributedVariable(DistributedValues, Variable):  # pyright: ignore  # both have `_buffers`
    """What variables with copies share. Made by strategies, never directly."""

    _passed_whole: ClassVar[bool] = True

    def __init__(
        self,
        strategy: Any,
        mesh: ReplicaMesh,
        initial_value: Any = None,
        trainable: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
        constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
        shape: Any = None,
        layout: Callable[[str, tuple[int, ...]], Layout] | None = None,
    ):
        """
        Args:
          layout: chooses the layout of a variable of this name and shape; the others are those of
            `rx.Variable`.
        """
        self._init_common(name, trainable, constraint, synchronization, aggregation, strategy)
        # One call of an initialiser for all copies, so that they start equal.
        value = _creator.initial_array(initial_value, dtype, shape, self._name)
        _policy.require_fitting_dtype(self._name, self._aggregation, value.dtype)
        self._parts: tuple[ComponentVariable, ...] | None = None
        self._layout = PLAIN if layout is None else layout(self._name, value.shape)
        world().create(self, mesh, value)
        all_distributed[next(_numbers)] = self

    @override
    def _start(self, mesh: ReplicaMesh | None, value: jax.Array) -> None:
        assert mesh is not None
        kind = f"{self._synchronization.name}, {self._aggregation.name}"
        start = Start(mesh, self._layout, value)
        mesh.begin_together(start, f"variable {self._name!r} ({kind})")
        self._stored = start.now
        self._looks_left = 0 if self._stored.is_settled else 1

    @property
    def values(self) -> tuple[ComponentVariable, ...]:
        """The copies, as variables of their own, in replica order."""
        if self._parts is None:
            self._parts = tuple(ComponentVariable(self, i) for i in range(self._count))
        return self._parts

    @property
    def _count(self) -> int:
        return len(self._stored.mesh.devices)

    @property
    def _copies(self) -> int:
        """How many copies there are on all workers."""
        return self._stored.mesh.size

    def _component(self, replica_id: ReplicaId) -> ComponentVariable:
        return ComponentVariable(self, EACH) if replica_id is EACH else self.values[replica_id]

    @property
    def _placement(self) -> tuple[Device, ...]:
        return self._stored.mesh.devices

    @property
    def device(self) -> str:
        """The device of the copy that code here speaks for."""
        index = self._local_index()
        return canonical_name(self._placement[0 if index is None else first_of(index)])

    def _local_index(self) -> Any:
        """Returns the copy that code here speaks for, or None where it speaks for all."""
        replica_id = replica_id_for(self._strategy)
        return None if replica_id is None else copy_for(replica_id, self._count)

    def read_value(self) -> jax.Array:
        """Returns the current value as an array, which later updates do not change."""
        self._require_own_strategy("read_value")
        return super().read_value()

    def numpy(self) -> np.ndarray:
        """Returns the current value as a NumPy array."""
        self._require_own_strategy("numpy")
        return super().numpy()

    def _require_own_strategy(self, what: Change | str) -> None:
        if get_strategy() is not self._strategy and has_strategy():
            raise WrongContextError(
                f"{what} of variable {self._name!r} in a context of {get_strategy()!r}, but it "
                f"belongs to {self._strategy!r}. Use it outside of the other strategy's scope, "
                "or make it in that scope."
            )

    def _read(self) -> jax.Array:
        index = self._local_index()
        if self._layout.replica_dim is None:
            with UPDATING:  # no program may take the buffers between our looking and our taking
                return self._read_all() if index is None else self._buffers.component(index)
        with UPDATING:
            storage = self._buffers
            storage.exclusive = False
        # Not under the lock: this waits for the devices, where a callback may read a variable.
        return storage.collected if index is None else storage.component(index)

    def _update(self, how: Change, value: jax.Array | Mirrored) -> None:
        self._require_own_strategy(how)
        if update_replica_id() is not None and self._local_index() is not None:
            self._component(self._local_index())._update(how, value)
            return
        context = get_replica_context()
        if context is None or context.strategy is not self._strategy:
            self._update_all(how, value)
        else:
            self._update_in_replica(context, how, value)

    def _read_all(self) -> jax.Array:
        raise TypeError(f"{type(self).__name__} cannot be read in cross-replica context.")

    def _update_all(self, how: Change, value: jax.Array | Mirrored) -> None:
        """Cross-replica: changes every copy in the same way."""
        new = self._laid_out(value)
        with UPDATING:
            if how is not Change.ASSIGN:
                new = how.of(self._whole, new)
            self._set_whole(new)

    @property
    def _whole(self) -> jax.Array:
        return self._buffers.assembled

    def _set_whole(self, array: jax.Array, exclusive: bool = False) -> None:
        mesh = self._stored.mesh
        array = world().relaid(array, mesh, self._layout)
        self._set(self._stored.kind.holding(mesh, array, exclusive))

    def _set_copy(self, index: ReplicaId, value: jax.Array) -> None:
        """Sets one copy, or the only one there is, if each replica has only a part of it."""
        self._set(world().with_copy(self, index, value))

    def _laid_out(self, value: jax.Array | Mirrored) -> jax.Array:
        return world().laid_out(value, self._stored.mesh, self._layout)

    def _update_in_replica(
        self, context: ReplicaContext, how: Change, value: jax.Array | Mirrored
    ) -> None:
        raise TypeError(f"{type(self).__name__} cannot be changed in replica context.")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = super().__deepcopy__(memo)
        new._parts = None
        all_distributed[next(_numbers)] = new
        return new

    def __repr__(self) -> str:
        if self._layout.replica_dim is None:
            return super().__repr__()
        if self._stored.has_parts_elsewhere:  # to read it, all workers would have to print it
            looks = f"shape={self.shape} dtype={self.dtype}"
            return f"{type(self).__name__}:{{\n  {self._layout}: {self._name!r} {looks}\n}}"
        return f"{type(self).__name__}:{{\n  {self._layout}: {Variable.__repr__(self)}\n}}"

    def _display_rows(self) -> list[tuple[Any, ...]]:
        if self._layout.is_plain:
            return Variable._display_rows(self)
        with UPDATING:  # and no program may write into what is shown
            buffers = self._settled()
            buffers.exclusive = False
            array = buffers.assembled
        return _display.parts(array)

    _repr_html_: Any = Variable._repr_html_
    __str__ = __repr__
    __hash__ = Variable.__hash__


@jax.tree_util.register_pytree_node_class
class MirroredVariable(DistributedVariable):
    """Equal copies, one on each device, changed together."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self._synchronization is VariableSynchronization.AUTO:
            self._synchronization = VariableSynchronization.ON_WRITE

    def _read_all(self) -> jax.Array:
        return only_copy(self._buffers)  # for all replicas here, or for one of another strategy

    def _update_in_replica(
        self, context: ReplicaContext, how: Change, value: jax.Array | Mirrored
    ) -> None:
        _policy.require_update_allowed(self._name, self._aggregation, how)
        array = array_here(value)
        if not world().defer(self, context, how, array):
            self._update_together(context, how, array, self._aggregation)

    def _update_together(
        self,
        context: ReplicaContext,
        how: Change,
        array: jax.Array,
        aggregation: VariableAggregation,
    ) -> None:
        def change_all(merged: jax.Array | PerReplica) -> None:
            total: Any = merged
            if isinstance(merged, PerReplica):
                if aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
                    total = of_first_replica(self._strategy, merged)
                else:
                    op = _REDUCE_OPS[aggregation]
                    total = self._strategy.extended.reduce_to(op, merged, self)
            self._update_all(how, total)

        what = f"{how} of variable {self._name!r}"
        meet_replicas(context, (how, id(self)), what, array, change_all)

    @override
    def _scatter(self, how: Scatter, indices: jax.Array, values: jax.Array) -> None:
        context = get_replica_context()
        is_for_all = context is None or context.strategy is not self._strategy
        is_simple = self._aggregation is VariableAggregation.ONLY_FIRST_REPLICA
        if is_for_all or is_simple or how in (Scatter.ADD, Scatter.SUB):
            super()._scatter(how, indices, values)
            return
        assert context is not None
        _policy.require_update_allowed(self._name, self._aggregation, how)
        if not how.repeats:
            raise _policy.cannot_combine(self._name, self._aggregation, how)
        if self._aggregation is VariableAggregation.MEAN:
            values = values / context.num_replicas_in_sync
        indices, values = context.all_gather((indices, values), axis=0)
        # The same on all replicas now.
        new = how.of(self.value(), indices, values)
        first = VariableAggregation.ONLY_FIRST_REPLICA
        self._update_together(context, Change.ASSIGN, new, first)


@jax.tree_util.register_pytree_node_class
class SyncOnReadVariable(DistributedVariable):
    """Each replica changes its own copy; a read in cross-replica context aggregates them."""

    _copies_differ: ClassVar[bool] = True

    def _read_all(self) -> jax.Array:
        self._require_own_strategy("A read")
        _policy.require_readable(self._name, self._aggregation)
        if self._aggregation is VariableAggregation.ONLY_FIRST_REPLICA or self._copies == 1:
            return self._buffers.component(0)
        op = _REDUCE_OPS[self._aggregation]
        copies = value_of_buffers(PerReplica, self._buffers)
        return self._strategy.extended.reduce_to(op, copies, default_device())

    def _update_all(self, how: Change, value: jax.Array | Mirrored) -> None:
        if how is not Change.ASSIGN:
            _policy.require_cross_replica_add(self._name, self._aggregation, how)
        elif self._aggregation is VariableAggregation.SUM and self._copies > 1:
            # The copies add up to the value; integers lose the remainder, as in TensorFlow.
            whole = array_here(value)
            value = jax.lax.div(whole, jnp.asarray(self._copies, whole.dtype))
        super()._update_all(how, value)

    def _update_in_replica(
        self, context: ReplicaContext, how: Change, value: jax.Array | Mirrored
    ) -> None:
        self._component(self._local_index())._update(how, value)


@jax.tree_util.register_pytree_node_class
class AggregatingVariable(MirroredVariable):
    """One copy on a parameter device, changed by the combined updates of all replicas."""

    @override
    def _read(self) -> jax.Array:
        with UPDATING:
            return only_copy(self._buffers)
