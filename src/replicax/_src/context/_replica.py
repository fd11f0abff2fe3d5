"""`ReplicaContext`: what a replica function can ask, and how it meets the other replicas."""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false
# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, final

from replicax._src import _old_names
from replicax._src._errors import WrongContextError
from replicax._src._typing import PyTree, override
from replicax._src.context import _stack
from replicax._src.context._stack import ReplicaId
from replicax._src.context._strategy import StrategyLike

if TYPE_CHECKING:
    from replicax._src.context._strategy import CommunicationOptions, ReduceOpLike

Handler = Callable[[Any], Any]
Meet = Callable[[Hashable, str, Any, Handler, bool], Any]


class ReplicaContext:
    """The view of one replica, inside a function that `strategy.run` calls.

    Get it with `rx.distribute.get_replica_context()`. Outside any strategy there is one as well,
    for the default strategy's single replica.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> def replica_fn():
    ...     context = rx.distribute.get_replica_context()
    ...     return context.all_reduce("SUM", context.replica_id_in_sync_group + 1.0)
    >>> strategy.experimental_local_results(strategy.run(replica_fn))
    (Array(3., dtype=float32), Array(3., dtype=float32))
    """

    def __init__(
        self,
        strategy: StrategyLike,
        replica_id_in_sync_group: ReplicaId,
        meet: Meet | None = None,
        shared: dict[Any, Any] | None = None,
    ):
        """Made by the executors.

        Args:
          strategy: the strategy.
          replica_id_in_sync_group: the replica's number, among those of this process.
          meet: how the replica meets the others; without it, it must be the only one.
          shared: what the replicas of one run have in common.
        """
        self._strategy = strategy
        self._replica_id = replica_id_in_sync_group
        self._meet_others = meet
        self._shared: dict[Any, Any] = {} if shared is None else shared

    @property
    def strategy(self) -> Any:
        """The strategy that runs this replica."""
        return self._strategy

    @property
    def replica_id_in_sync_group(self) -> Any:
        """This replica's number, from 0 to `num_replicas_in_sync - 1`.

        An integer. Inside `rx.function`, where one program speaks for all replicas, an array; if
        Python needs the integer, the function is traced for each replica by itself.
        """
        return _stack.world().replica_number(self._number)

    @property
    def _number(self) -> Any:
        """The replica's number among those of all workers."""
        return self._strategy.extended._first_replica + _stack.first_of(self._replica_id)

    @property
    def _description(self) -> str:
        """Which replica, for messages."""
        return f"replica {self._number} of {self.num_replicas_in_sync}"

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return self._strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The device names of this replica."""
        return (tuple(self._strategy.extended.worker_devices)[_stack.first_of(self._replica_id)],)

    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Waits for all replicas, calls `merge_fn` once for them, returns this replica's part.

        >>> import replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def merge_fn(strategy, x):
        ...     return strategy.reduce("SUM", x, axis=None)
        >>> def replica_fn():
        ...     context = rx.distribute.get_replica_context()
        ...     return context.merge_call(merge_fn, args=(context.replica_id_in_sync_group + 1,))
        >>> print(strategy.experimental_local_results(strategy.run(replica_fn))[0])
        3

        Args:
          merge_fn: called as `merge_fn(strategy, *args, **kwargs)` in cross-replica context, with
            the replicas' arguments merged into per-replica values.
          args: positional arguments of this replica.
          kwargs: keyword arguments of this replica.

        Returns:
          What `merge_fn` returned, with per-replica values unwrapped to this replica's component.

        Raises:
          RuntimeError: called outside this replica's own function, or the replicas did not all
            call it with the same `merge_fn`.
        """
        self._require_current("merge_call")
        if not callable(merge_fn):
            raise TypeError(
                f"`merge_fn` must be a function merge_fn(strategy, *args); got {merge_fn!r}."
            )
        if isinstance(args, str) or not isinstance(args, Sequence):
            raise TypeError(f"`args` must be a tuple or list of arguments; got {args!r}.")
        if kwargs is not None and not isinstance(kwargs, dict):
            raise TypeError(f"`kwargs` must be a dict of keyword arguments; got {kwargs!r}.")
        kwargs = dict(kwargs or {})
        return self._strategy.extended._replica_ctx_merge_call(self, merge_fn, tuple(args), kwargs)

    def all_reduce(
        self,
        reduce_op: ReduceOpLike,
        value: PyTree,
        options: CommunicationOptions | None = None,
        experimental_hints: CommunicationOptions | None = None,
    ) -> Any:
        """Combines `value` of all replicas; every replica gets the result. Has a gradient.

        Args:
          reduce_op: `rx.distribute.ReduceOp.SUM` or `MEAN`, or their names as strings.
          value: an array or a nested structure of arrays, of the same shapes on every replica.
          options: an `rx.distribute.experimental.CommunicationOptions`.
          experimental_hints: the older name of `options`.

        Returns:
          The sums or means, in the structure of `value`.
        """
        self._require_current("all_reduce")
        options = _old_names.options_or_hints(options, experimental_hints)
        return self._strategy.extended._replica_ctx_all_reduce(self, reduce_op, value, options)

    def all_gather(
        self, value: PyTree, axis: int, options: CommunicationOptions | None = None
    ) -> Any:
        """Concatenates `value` of all replicas along `axis`, in replica order. Has a gradient.

        Args:
          value: an array or a nested structure of arrays; sizes may differ along `axis` only.
          axis: the dimension to concatenate along.
          options: an `rx.distribute.experimental.CommunicationOptions`.

        Returns:
          The joined arrays, in the structure of `value`.
        """
        self._require_current("all_gather")
        return self._strategy.extended._replica_ctx_all_gather(self, value, axis, options)

    def _require_current(self, what: str) -> None:
        if _stack.current_frame().replica_context is self:
            return
        raise WrongContextError(
            f"{what} of replica {self._number} was called outside its replica function: after "
            "it returned, in another thread, or inside a merge_fn. Call "
            "rx.distribute.get_replica_context() again where it is needed."
        )

    def __enter__(self) -> ReplicaContext:
        _stack.thread_state.frames.append(_stack.Frame(self._strategy, self))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if _stack.current_frame().replica_context is not self:
            raise WrongContextError(
                "A ReplicaContext was left in another order than it was entered."
            )
        _stack.thread_state.frames.pop()

    def __repr__(self) -> str:
        return f"ReplicaContext(replica {self._number} of {self._strategy!r})"


@final
class EachReplicaContext(ReplicaContext):
    """The context of a trace that speaks for all replicas at once."""

    def __init__(self, strategy: StrategyLike, meet: Meet):
        super().__init__(strategy, _stack.EACH, meet)

    @property
    @override
    def _number(self) -> Any:
        return _stack.EACH

    @property
    @override
    def _description(self) -> str:
        return f"each replica of {self.num_replicas_in_sync}"

    @property
    @override
    def devices(self) -> tuple[str, ...]:
        return tuple(self._strategy.extended.worker_devices)
