"""Asking which context one is in: the public functions, and the checks that use them."""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replicax._src._errors import WrongContextError
from replicax._src.context import _stack
from replicax._src.context._strategy import StrategyLike

if TYPE_CHECKING:
    from replicax._src.context._replica import ReplicaContext


def get_strategy() -> Any:
    """Returns the current strategy: of the innermost `scope` or `run`, else the default one.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     rx.distribute.get_strategy() is strategy
    True
    """
    return _stack.current_frame().strategy


def has_strategy() -> bool:
    """Returns whether the current strategy is another than the default one.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> rx.distribute.has_strategy()
    False
    >>> with strategy.scope():
    ...     rx.distribute.has_strategy()
    True
    """
    return get_strategy() is not _stack.default_strategy()


def get_replica_context() -> ReplicaContext | None:
    """Returns the current `ReplicaContext`, or None in cross-replica context.

    Outside any scope there is a replica context too, that of the default strategy's one replica.

    >>> import replicax as rx
    >>> rx.distribute.get_replica_context().replica_id_in_sync_group
    0
    """
    return _stack.current_frame().replica_context


def current_replica() -> ReplicaContext | None:
    """Returns the current `ReplicaContext`, if its replica is one of several; else None."""
    context = get_replica_context()
    return None if context is None or context.num_replicas_in_sync == 1 else context


def in_cross_replica_context() -> bool:
    """Returns whether code here speaks for all replicas: in a scope, a merge_fn or an update.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     rx.distribute.in_cross_replica_context()
    True
    >>> strategy.run(rx.distribute.in_cross_replica_context)
    False
    """
    return get_replica_context() is None


def update_replica_id() -> Any:
    """Returns the copy that `extended.update` is working on, or None outside it."""
    return _stack.current_frame().update_replica_id


def replica_id_for(strategy: StrategyLike) -> Any:
    """Returns the replica of `strategy` that code here speaks for, or None if for all."""
    frame = _stack.current_frame()
    if frame.strategy is not strategy:
        return None
    if frame.update_replica_id is not None:
        return frame.update_replica_id
    if frame.replica_context is not None:
        return frame.replica_context._replica_id
    return None


def require_cross_replica(strategy: StrategyLike, what: str, instead: str) -> None:
    """`WrongContextError` unless `what` is called in cross-replica context of `strategy`.

    The default context counts: the strategy's methods enter their scope by themselves.
    """
    frame = _stack.current_frame()
    if frame.strategy is not strategy and frame.strategy is not _stack.default_strategy():
        raise _mixed(frame.strategy, strategy, what)
    context = frame.replica_context
    if context is None or frame.strategy is not strategy:
        return
    if strategy is _stack.default_strategy():
        return
    raise WrongContextError(
        f"{what} was called in replica context ({context._description}). It speaks for all "
        f"replicas at once, so it needs cross-replica context. {instead}"
    )


def require_between_steps(what: str, instead: str) -> None:
    """`WrongContextError` inside a replica function, or an `rx.function` that is being traced."""

    def error(where: str) -> WrongContextError:
        return WrongContextError(f"{what} inside {where}. {instead}")

    _stack.world().refuse_in_program(lambda: error("an rx.function"))
    context = get_replica_context()
    if context is not None and context.strategy is not _stack.default_strategy():
        raise error("a replica function")


def require_in_scope(strategy: StrategyLike, what: str) -> None:
    """`WrongContextError` unless `strategy` is the current one (in any of its contexts)."""
    current = get_strategy()
    if current is strategy:
        return
    if current is not _stack.default_strategy():
        raise _mixed(current, strategy, what)
    raise WrongContextError(
        f"{what} needs the strategy to be in scope. Write `with strategy.scope():` around it."
    )


def _mixed(current: StrategyLike, wanted: StrategyLike, what: str) -> WrongContextError:
    return WrongContextError(
        f"{what}: mixing different strategies. The current strategy is {current!r}, but this call "
        f"belongs to {wanted!r}. Leave the scope of the one before using the other, or use one "
        "strategy object throughout."
    )
