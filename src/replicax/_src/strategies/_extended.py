"""`StrategyExtended`: what library code calls of a strategy, and its authors subclass.

The public methods check the context and the arguments, and then call a hook (`_hooks.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax

from replicax._src import _old_names
from replicax._src._typing import PyTree
from replicax._src.collectives import CommunicationOptions, ReduceOpLike, as_options, as_reduce_op
from replicax._src.context import (
    get_replica_context,
    has_strategy,
    require_cross_replica,
    require_in_scope,
    thread_state,
)
from replicax._src.data import Dataset
from replicax._src.strategies._arguments import (
    USE_ALL_REDUCE,
    USE_MERGE_CALL,
    USE_RUN,
    as_arguments,
    as_pairs,
    checked_call,
    refuse_per_replica,
)
from replicax._src.strategies._hooks import StrategyHooks
from replicax._src.strategies._multi_step import MultiStepContext, run_steps
from replicax._src.strategies._reductions import may_differ, reduce_pairs, same_for_all
from replicax._src.strategies._updates import ungrouped, update_devices
from replicax._src.values import ArrayLike, DistributedValues
from replicax._src.variable import Variable, VariableSynchronization, container_of

if TYPE_CHECKING:
    from replicax._src.strategies._strategy import Strategy


class StrategyExtended(StrategyHooks):
    """Lower-level operations of a strategy; reach it as `strategy.extended`.

    Most of its methods need cross-replica context: `strategy.scope()`, or a `merge_fn`.
    """

    # ------------------------------------------------------------------ what the strategy is

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each replica builds a program of its own; never here."""
        return False

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Whether shapes may not change from step to step; they may."""
        return False

    @property
    def experimental_should_init(self) -> bool:
        """Whether this process is to initialise variables."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this process is to write checkpoints."""
        return True

    @property
    def should_save_summary(self) -> bool:
        """Whether this process is to write summaries."""
        return True

    # ------------------------------------------------------------------ running replicas

    def call_for_each_replica(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls `fn` once per replica, as `strategy.run` does. Returns the merged results."""
        self._require_cross_replica(
            "call_for_each_replica", "Inside strategy.run, call the function itself."
        )
        args, kwargs = checked_call(fn, args, kwargs, "extended.call_for_each_replica")
        with self._strategy.scope():
            return self._call_for_each_replica(fn, args, kwargs)

    def experimental_run_steps_on_iterator(
        self,
        fn: Callable[..., Any],
        iterator: Iterable[PyTree],
        iterations: int = 1,
        initial_loop_values: dict[str, Any] | None = None,
    ) -> MultiStepContext:
        """Runs `fn(context, inputs)` on the next `iterations` items, in one compiled program.

        The modern spelling is `rx.function(step).steps(iterator, iterations)`.

        Args:
          fn: called in cross-replica context with a `MultiStepContext` and an item of `iterator`.
            Typically it calls `strategy.run`, and `context.set_last_step_output`.
          iterator: the iterator of a data set, or any iterable of per-replica values.
          iterations: how many steps.
          initial_loop_values: what `last_step_outputs` has if `iterations` is 0.

        Returns:
          The `MultiStepContext`, with `last_step_outputs` and `non_tensor_outputs`.
        """
        self._require_cross_replica("extended.experimental_run_steps_on_iterator", USE_RUN)
        if not callable(fn):
            raise TypeError(
                "experimental_run_steps_on_iterator takes a function fn(context, inputs); got "
                f"{fn!r}."
            )
        _old_names.warn_of("StrategyExtended.experimental_run_steps_on_iterator")
        with self._strategy.scope():
            return run_steps(self._step_functions, fn, iterator, iterations, initial_loop_values)

    # ------------------------------------------------------------------ data sets

    def experimental_make_numpy_dataset(
        self, numpy_input: PyTree, session: object = None
    ) -> Dataset:
        """Returns a data set of the rows of arrays; lists of arrays are stacked.

        Args:
          numpy_input: a structure of arrays.
          session: kept for ported code.
        """
        _old_names.warn_of("StrategyExtended.experimental_make_numpy_dataset")
        return Dataset.from_tensor_slices(numpy_input)

    # ------------------------------------------------------------------ combining values

    def reduce_to(
        self,
        reduce_op: ReduceOpLike,
        value: PyTree,
        destinations: object,
        options: CommunicationOptions | None = None,
        experimental_hints: CommunicationOptions | None = None,
    ) -> Any:
        """Combines the replicas' values and puts the result on the destination devices.

        Args:
          reduce_op: `ReduceOp.SUM` or `MEAN` (or the name, or a `VariableAggregation`).
          value: a per-replica value. Of what is the same on all replicas, only a MEAN can be taken.
          destinations: a variable, a per-replica value, a device name, or a list of device names.
            To reduce to where the value is, pass the value.
          options: `CommunicationOptions`.
          experimental_hints: the older name of `options`.

        Returns:
          A value mirrored to `destinations`, or an array if that is one device.
        """
        self._require_cross_replica("extended.reduce_to", USE_ALL_REDUCE)
        op, options = as_reduce_op(reduce_op), as_options(options, experimental_hints)
        value = self._sync_group.as_value(value)
        if may_differ(value):
            return self._reduce_to(op, value, destinations, options)
        return same_for_all(self, op, value, destinations)

    def batch_reduce_to(
        self,
        reduce_op: ReduceOpLike,
        value_destination_pairs: Iterable[tuple[Any, Any]],
        options: CommunicationOptions | None = None,
        experimental_hints: CommunicationOptions | None = None,
    ) -> list[Any]:
        """`reduce_to` for many `(value, destinations)` pairs in as few collectives as possible.

        Returns a list of mirrored values, one per pair.
        """
        self._require_cross_replica("extended.batch_reduce_to", USE_ALL_REDUCE)
        op, options = as_reduce_op(reduce_op), as_options(options, experimental_hints)
        return reduce_pairs(self, op, as_pairs(value_destination_pairs), options)

    def broadcast_to(self, tensor: object, destinations: object) -> Any:
        """Mirrors one array to the destination devices.

        Args:
          tensor: the array.
          destinations: a variable, a value, a device name, or a list of device names; None means
            the devices of the replicas.

        Returns:
          A value with a copy on each of these devices.
        """
        self._require_cross_replica("extended.broadcast_to", USE_RUN)
        if isinstance(tensor, DistributedValues) and not isinstance(tensor, ArrayLike):
            raise ValueError(
                f"broadcast_to takes one array; got a {type(tensor).__name__}, which has one for "
                "each replica. Combine them with reduce_to."
            )
        return self._broadcast_to(
            tensor, self.worker_devices if destinations is None else destinations
        )

    # ------------------------------------------------------------------ variables

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable: object) -> Iterator[None]:
        """Context manager: variables made inside are placed where the given variable is.

        Args:
          colocate_with_variable: a variable of this strategy, or what `non_slot_devices` returned.
        """
        require_in_scope(self._strategy, "extended.colocate_vars_with")
        self._validate_colocate_with(colocate_with_variable)

        def creator(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
            kwargs.setdefault("colocate_with", colocate_with_variable)
            return next_creator(**kwargs)

        creators = thread_state.creators
        creators.append(creator)
        try:
            yield
        finally:
            creators.pop()

    def update(
        self,
        var: Variable,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Calls `fn(copy, *args, **kwargs)` on each device that `var` is on.

        In replica context the replicas meet first, as in a `merge_call`.

        Args:
          var: the variable.
          fn: takes the copy of the variable on one device as its first argument.
          args: further arguments; mirrored values are unwrapped, per-replica ones are refused.
          kwargs: keyword arguments, likewise.
          group: if False, the results come as tuples with one item per copy.

        Returns:
          The merged results; `fn(var, ...)` itself for a variable without copies.
        """
        context = get_replica_context()
        if context is not None and context.strategy is self._strategy and has_strategy():
            var = self.value_container(var)

            def update_together(
                strategy: Strategy,
                var: Variable,
                args: Sequence[Any],
                kwargs: dict[str, Any] | None,
            ) -> Any:
                return strategy.extended.update(var, fn, args, kwargs, group)

            return context.merge_call(update_together, (var, args, kwargs))
        self._require_cross_replica("extended.update", USE_MERGE_CALL)
        if not isinstance(var, Variable):
            raise TypeError(f"extended.update needs a variable to update; got {var!r}.")
        if not callable(fn):
            raise TypeError(
                f"extended.update needs a function update_fn(variable, *args); got {fn!r}."
            )
        args, kwargs = as_arguments(args, kwargs, "extended.update")
        refuse_per_replica((args, kwargs))
        with self._strategy.scope():
            return self._update(var, fn, args, kwargs, group)

    def non_slot_devices(self, var_list: Iterable[Variable]) -> Any:
        """Returns the devices for variables of an optimizer that belong to no single variable."""
        self._require_cross_replica("extended.non_slot_devices", USE_MERGE_CALL)
        return self._non_slot_devices(var_list)

    def update_non_slot(
        self,
        colocate_with: object,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Calls `fn(*args, **kwargs)` on each device of `colocate_with`.

        Args:
          colocate_with: what `non_slot_devices` returned.
          fn: the function.
          args: its arguments; mirrored values are unwrapped.
          kwargs: keyword arguments, likewise.
          group: if False, the results come as tuples with one item per device.

        Returns:
          The results, as mirrored values.
        """
        self._require_cross_replica("extended.update_non_slot", USE_MERGE_CALL)
        if not callable(fn):
            raise TypeError(f"extended.update_non_slot needs a function; got {fn!r}.")
        args, kwargs = as_arguments(args, kwargs, "extended.update_non_slot")
        refuse_per_replica((args, kwargs))
        with self._strategy.scope():
            devices = self._devices_of(colocate_with)
            merged = update_devices(self, devices, lambda _, *a, **k: fn(*a, **k), args, kwargs)
            return merged if group else ungrouped(self, merged)

    def value_container(self, value: PyTree) -> Any:
        """Returns the distributed variable that `value` is a copy of, else `value` itself."""
        return container_of(value) if isinstance(value, Variable) else value

    def read_var(self, v: object) -> jax.Array:
        """Returns the value of a variable, aggregated over the replicas if it is sync-on-read."""
        if not isinstance(v, Variable):
            raise TypeError(f"extended.read_var needs a variable; got {v!r}.")
        is_local = v.synchronization is VariableSynchronization.ON_READ
        if is_local and self._strategy.num_replicas_in_sync > 1:
            self._require_cross_replica(
                "extended.read_var of a sync-on-read variable",
                "In a replica function, v.read_value() gives the replica's own copy.",
            )
        return v.read_value()

    def _require_cross_replica(self, what: str, instead: str) -> None:
        require_cross_replica(self._strategy, what, instead)
