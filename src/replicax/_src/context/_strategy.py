"""What the rooms below that of the strategies know of a strategy, and ask of it.

`StrategyLike` and `ExtendedLike` are the interface, which `strategies` implements. Its hooks have
private names, because users reach the same objects; the functions here are for other rooms.
"""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from replicax._src._typing import Device, PyTree

if TYPE_CHECKING:
    import jax

    from replicax._src.collectives import CommunicationOptions, ReduceOp, ReduceOpLike
    from replicax._src.context._replica import ReplicaContext
    from replicax._src.devices import Layout
    from replicax._src.training import OptimizerState
    from replicax._src.values import DistributedValues
    from replicax._src.variable import Variable

    Pairs = Sequence[tuple[Any, Any]]  # of values and destinations
    BatchReduction = Callable[[ReduceOp, Pairs, CommunicationOptions], list[Any]]


class ExtendedLike(Protocol):
    """The logic of a strategy, as far as rooms below ask for it."""

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The names of the devices of this process's replicas."""
        ...

    @property
    def _replica_devices(self) -> tuple[Device, ...]:
        """The devices themselves."""
        ...

    @property
    def _first_replica(self) -> int:
        """The number of this process's first replica among those of all workers."""
        ...

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any: ...

    def _replica_ctx_merge_call(
        self,
        context: ReplicaContext,
        merge_fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any: ...

    def _replica_ctx_all_reduce(
        self,
        context: ReplicaContext,
        reduce_op: ReduceOpLike,
        value: PyTree,
        options: CommunicationOptions | None,
    ) -> Any: ...

    def _replica_ctx_all_gather(
        self,
        context: ReplicaContext,
        value: PyTree,
        axis: int,
        options: CommunicationOptions | None,
    ) -> Any: ...

    def _layout_of_slot(self, primary: Variable, shape: tuple[int, ...]) -> Layout: ...

    @property
    def _optimizer_state_class(self) -> type[OptimizerState]: ...

    @property
    def _sharing_worker(self) -> int | None: ...

    def _scattered(self, values: Sequence[tuple[DistributedValues, int]]) -> list[jax.Array]: ...

    def _of_first_replica(self, value: DistributedValues) -> Any: ...

    def _moved_to(
        self, planned: tuple[Device, ...]
    ) -> AbstractContextManager[tuple[Device, ...]]: ...

    def _batch_reduce_to(
        self, reduce_op: ReduceOp, value_destination_pairs: Pairs, options: CommunicationOptions
    ) -> list[Any]: ...

    def reduce_to(self, reduce_op: ReduceOpLike, value: PyTree, destinations: object) -> Any:
        """Combines the replicas' values and puts the result on the destination devices."""
        ...

    def non_slot_devices(self, var_list: Iterable[Variable]) -> Any:
        """Returns the devices for state that belongs to no variable."""
        ...

    def colocate_vars_with(self, colocate_with_variable: object) -> AbstractContextManager[None]:
        """Returns a context manager: variables made in it are placed where the given one is."""
        ...


class StrategyLike(Protocol):
    """A strategy."""

    @property
    def extended(self) -> ExtendedLike:
        """The object that holds the logic."""
        ...

    @property
    def _serial(self) -> int:
        """A number that no other strategy of this process has, or had."""
        ...

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are on all workers."""
        ...

    def scope(self) -> AbstractContextManager[Any]:
        """Makes the strategy current."""
        ...


def is_strategy(value: object) -> TypeGuard[StrategyLike]:
    """Returns whether any object is a strategy; looks at its class, and runs none of its code."""
    return hasattr(type(value), "extended") and "_serial" in getattr(value, "__dict__", ())


def serial_of(strategy: StrategyLike) -> int:
    """Returns a number that no other strategy of this process has, or had."""
    return strategy._serial


def replica_devices_of(strategy: StrategyLike) -> tuple[Device, ...]:
    """Returns the devices of this process's replicas, one for each."""
    return strategy.extended._replica_devices


def create_variable(
    strategy: StrategyLike, make_plain: Callable[..., Any], arguments: dict[str, Any]
) -> Any:
    """Returns a new variable of the kind that the strategy makes."""
    return strategy.extended._create_variable(make_plain, **arguments)


def layout_of_slot(strategy: StrategyLike, primary: Variable, shape: tuple[int, ...]) -> Layout:
    """Returns how a part of an optimizer's state lies on the devices.

    Args:
      strategy: the strategy.
      primary: the variable that it belongs to.
      shape: that of the part.
    """
    return strategy.extended._layout_of_slot(primary, shape)


def scattered_sums(
    strategy: StrategyLike, values: Sequence[tuple[DistributedValues, int]]
) -> list[jax.Array]:
    """Returns, in a program, each replica's part of the sums of values, cut along dimensions."""
    return strategy.extended._scattered(values)


def batch_reduction_of(strategy: StrategyLike) -> BatchReduction:
    """Returns `reduce(op, pairs, options)`: `batch_reduce_to` of per-replica values, unchecked."""
    return strategy.extended._batch_reduce_to


def of_first_replica(strategy: StrategyLike, value: DistributedValues) -> Any:
    """Returns what the first replica of all workers has of a per-replica value."""
    return strategy.extended._of_first_replica(value)


def on_planned_devices(
    strategy: StrategyLike, devices: tuple[Device, ...]
) -> AbstractContextManager[tuple[Device, ...]]:
    """Returns a context in which a strategy and its variables are on planned devices.

    It gives the devices of the replicas there.
    """
    return strategy.extended._moved_to(devices)


def optimizer_state_of(strategy: StrategyLike) -> type[OptimizerState]:
    """Returns the class of what optimizers keep for variables of a strategy."""
    return strategy.extended._optimizer_state_class


def sharing_worker(strategy: StrategyLike) -> int | None:
    """Returns the number of this worker, if workers share variables that are made elsewhere."""
    return strategy.extended._sharing_worker
