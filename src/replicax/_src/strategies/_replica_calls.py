"""What a replica's context does for it: meet the others, and combine or join their arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from replicax._src import _tree
from replicax._src._arrays import for_mean
from replicax._src._typing import PyTree, Tracer
from replicax._src.collectives import (
    CommunicationOptions,
    ReduceOp,
    ReduceOpLike,
    all_gather_with_gradient,
    all_reduce_with_gradient,
    array_of,
    as_options,
    as_reduce_op,
    weighted,
)
from replicax._src.context import Handler, ReplicaContext, meet_replicas, world
from replicax._src.strategies._arguments import as_arguments, check_axes, require_plain_function
from replicax._src.strategies._reductions import reduce_pairs
from replicax._src.values import (
    DistributedValues,
    PerReplica,
    array_here,
    check_replica_count,
    is_leaf,
    select_replica,
)

if TYPE_CHECKING:
    from replicax._src.strategies._hooks import StrategyHooks


def merge_call(
    extended: StrategyHooks,
    context: ReplicaContext,
    merge_fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    require_plain_function(merge_fn, "merge_call")
    args, kwargs = as_arguments(args, kwargs, "merge_call")
    if extended._num_replicas_in_sync > 1:
        for leaf in _tree.leaves_of((args, kwargs), is_leaf):
            world().refuse_traced(leaf, _traced_in_merge_call)

    count = extended._num_replicas_in_sync

    def merge(merged: PyTree) -> Any:
        merged_args, merged_kwargs = merged
        result = merge_fn(extended._strategy, *merged_args, **merged_kwargs)
        check_replica_count(result, extended._local_replicas, "The result of a merge_fn")
        return result if count > 1 else select_replica(0, result)

    what = f"merge_call({_name_of(merge_fn)})"
    key = ("merge_call", _code_of(merge_fn))
    return meet_replicas(context, key, what, (args, kwargs), merge, keep_same=True)


def _traced_in_merge_call() -> TypeError:
    return TypeError(
        "merge_call was given a value that JAX is tracing (inside jax.grad, rx.value_and_grad, "
        "jax.jit, ...), which the other replicas cannot see. Use get_replica_context().all_reduce "
        "or all_gather, which have gradients, or call merge_call after the traced function."
    )


def all_reduce(
    extended: StrategyHooks,
    context: ReplicaContext,
    reduce_op: ReduceOpLike,
    value: PyTree,
    options: CommunicationOptions | None,
) -> Any:
    op, options = as_reduce_op(reduce_op), as_options(options)
    leaves, rebuild, structure = _as_arrays(value, "all_reduce")
    if extended._num_replicas_in_sync == 1:
        return rebuild([for_mean(x) for x in leaves] if op is ReduceOp.MEAN else leaves)
    meet = _meet_to_reduce(extended, context, op, options, structure)
    # In a program JAX differentiates the collective itself.
    eager = functools.partial(all_reduce_with_gradient, meet=meet, what="all_reduce")
    return rebuild(weighted(world().pick(eager, meet), leaves))


def _meet_to_reduce(
    extended: StrategyHooks,
    context: ReplicaContext,
    op: ReduceOp,
    options: CommunicationOptions,
    structure: str,
) -> Callable[[Sequence[jax.Array]], list[jax.Array]]:
    def reduce(values: list[Any]) -> list[Any]:
        pairs = [(value, extended._replica_devices) for value in values]
        return reduce_pairs(extended, op, pairs, options)

    def meet(arrays: Sequence[jax.Array]) -> list[jax.Array]:
        if not arrays:
            return []
        what = f"all_reduce({op.name}) of {structure}: {_tree.describe(list(arrays))}"
        key = ("all_reduce", op, structure, len(arrays))
        return meet_replicas(context, key, what, list(arrays), reduce)

    return meet


def all_gather(
    extended: StrategyHooks,
    context: ReplicaContext,
    value: PyTree,
    axis: int,
    options: CommunicationOptions | None,
) -> Any:
    options = as_options(options)
    leaves, rebuild, structure = _as_arrays(value, "all_gather")
    for leaf in leaves:
        check_axes(leaf, axis, "all_gather")
    if extended._num_replicas_in_sync == 1:
        return rebuild(leaves)

    def join(values: list[Any]) -> list[Any]:
        return [
            extended._gather_to(value, extended._replica_devices, axis, options) for value in values
        ]

    def join_with_starts(values: list[Any]) -> tuple[list[Any], list[Any]]:
        starts = [
            PerReplica(extended._sync_group.starts_in_gathered(value, axis)) for value in values
        ]
        return join(values), starts

    what = f"all_gather(axis={axis}) of {structure}: {_tree.describe(leaves)}"
    key = ("all_gather", axis, structure, len(leaves))

    def meet(join: Handler, arrays: Sequence[jax.Array]) -> Any:
        return meet_replicas(context, key, what, list(arrays), join)

    eager = functools.partial(
        all_gather_with_gradient,
        axis=axis,
        meet_gather=functools.partial(meet, join_with_starts),
        meet_sum=_meet_to_reduce(extended, context, ReduceOp.SUM, options, structure),
        what="all_gather",
    )
    return rebuild(weighted(world().pick(eager, functools.partial(meet, join)), leaves))


def _as_arrays(value: PyTree, what: str) -> tuple[list[jax.Array], _tree.Rebuild, str]:
    """Returns a replica's arrays, how to put others there, and the structure as a text.

    Replicas must agree on the text: it has the keys of dicts, and the arrays come in their order.
    """
    leaves, rebuild, structure = _tree.flatten_sorted(value, is_leaf)
    arrays = []
    for leaf in leaves:
        leaf = array_here(leaf)
        if isinstance(leaf, DistributedValues) or leaf is None:
            raise TypeError(
                f"{what} in replica context takes this replica's own arrays; got "
                f"{_tree.describe(leaf)}. Pass per-replica values to the replica function through "
                "strategy.run(fn, args=(value,))."
            )
        arrays.append(leaf if isinstance(leaf, Tracer) else array_of(leaf, what))
    return arrays, rebuild, structure


def _code_of(fn: object) -> Any:
    """Returns what makes two functions the same one, though each replica may define its own."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    return getattr(fn, "__code__", None) or type(fn)


def _name_of(fn: object) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)
