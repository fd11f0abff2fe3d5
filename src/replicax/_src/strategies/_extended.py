"""`StrategyExtended`: what authors of strategies implement, and library code calls.

The class is complete: with nothing overridden it is a strategy of one replica on the default
device. A subclass says which devices it has (`worker_devices`, `parameter_devices`) and overrides
the hooks whose name starts with an underscore where it does things its own way. The public methods
check the context and the arguments, then call the hook.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax

from replicax._src import _old_names, _tree
from replicax._src._typing import Device, PyTree
from replicax._src.collectives import (
    CommunicationOptions,
    CrossDeviceOps,
    NcclAllReduce,
    ReduceOp,
    ReduceOpLike,
    as_options,
    as_reduce_op,
    default_device,
    destination_devices,
    scattered,
)
from replicax._src.context import (
    Frame,
    StrategyScope,
    entered,
    get_replica_context,
    has_strategy,
    is_compiling,
    require_cross_replica,
    require_in_scope,
    thread_state,
    world,
)
from replicax._src.data import Dataset
from replicax._src.data.distributed import (
    DistributedDataset,
    InputContext,
    InputLayout,
    InputOptions,
    distributed_dataset,
    distributed_from_function,
)
from replicax._src.devices import (
    Layout,
    are_plans_made,
    canonical_name,
    plan_of,
    replica_mesh,
    resolve,
)
from replicax._src.functions import Function, FunctionCache, as_function, run_on_replicas
from replicax._src.strategies import _replica_calls
from replicax._src.strategies._arguments import (
    USE_ALL_REDUCE,
    USE_MERGE_CALL,
    USE_RUN,
    as_arguments,
    as_pairs,
    checked_call,
    refuse_per_replica,
)
from replicax._src.strategies._multi_step import MultiStepContext, run_steps
from replicax._src.strategies._planned_scope import PlannedScope
from replicax._src.strategies._reductions import (
    copies_of,
    may_differ,
    reduce_pairs,
    same_for_all,
)
from replicax._src.strategies._shared_variables import shared_by_replicas
from replicax._src.strategies._state_layout import StateLayout
from replicax._src.strategies._sync_group import SyncGroup
from replicax._src.strategies._updates import (
    select_components,
    ungrouped,
    update_devices,
    update_variable,
)
from replicax._src.training import OptimizerState
from replicax._src.values import (
    ArrayLike,
    DistributedValues,
    array_here,
    check_replica_count,
    is_leaf,
)
from replicax._src.variable import (
    MirroredVariable,
    SyncOnReadVariable,
    Variable,
    VariableSynchronization,
    container_of,
)

if TYPE_CHECKING:
    from replicax._src.strategies._strategy import Strategy


@functools.lru_cache(maxsize=256)
def _resolved(names: tuple[str, ...]) -> tuple[Device, ...]:
    return tuple(resolve(name) for name in names)


class StrategyExtended:
    """Lower-level operations of a strategy; reach it as `strategy.extended`.

    Most of its methods need cross-replica context: `strategy.scope()`, or a `merge_fn`.
    """

    def __init__(self, container_strategy: Strategy | None):
        self._strategy: Any = container_strategy
        self._cross_device_ops: CrossDeviceOps = NcclAllReduce()
        self._step_functions = FunctionCache()
        self._state_layout = StateLayout()
        self._sync_group = SyncGroup()

    def _container_strategy(self) -> Any:
        """Returns the `Strategy` that this belongs to."""
        return self._strategy

    # ------------------------------------------------------------------ what the strategy is

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The names of the devices that replicas compute on, one for each replica."""
        return (canonical_name(default_device()),)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The names of the devices that variables are placed on."""
        return self.worker_devices

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

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._sync_group.size(len(self.worker_devices))

    @property
    def _replica_devices(self) -> tuple[Device, ...]:
        return _resolved(tuple(self.worker_devices))

    @property
    def _local_replicas(self) -> int:
        """How many of the replicas are of this process."""
        return len(self._replica_devices)

    @property
    def _first_replica(self) -> int:
        """The number of the first of them."""
        return self._sync_group.first_replica

    @property
    def _variable_devices(self) -> tuple[Device, ...]:
        return _resolved(tuple(self.parameter_devices))

    def _new_scope(self) -> StrategyScope:
        """Returns what `strategy.scope()` returns."""
        if self._is_planned:
            return PlannedScope(self._strategy, self._replica_devices[0])
        return self._sync_group.scope(self._strategy)

    @property
    def _is_planned(self) -> bool:
        """Whether the devices are not here."""
        return are_plans_made() and plan_of(self._replica_devices[0]) is not None

    def _moved_to(
        self, planned: tuple[Device, ...]
    ) -> contextlib.AbstractContextManager[tuple[Device, ...]]:
        """Context manager: the strategy is on planned devices; gives those of its replicas."""
        raise NotImplementedError(
            f"{type(self._strategy).__name__} cannot be looked at on other devices. Make it on "
            "rx.config.planned_devices(...), or use MirroredStrategy or TPUStrategy."
        )

    # ------------------------------------------------------------------ running replicas

    def call_for_each_replica(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls `fn` once per replica, as `strategy.run` does. Returns the merged results."""
        self._require_cross_replica(
            "call_for_each_replica", "Inside strategy.run, call the function itself."
        )
        args, kwargs = checked_call(fn, args, kwargs, "extended.call_for_each_replica")
        with self._strategy.scope():
            return self._call_for_each_replica(fn, args, kwargs)

    def _call_for_each_replica(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        check_replica_count((args, kwargs), self._local_replicas, "An argument of strategy.run")
        if not is_compiling():  # a program in a program is a part of that
            compiled = as_function(fn)
            functions = self._compiled_runs
            if compiled is not None:
                return run_on_replicas(
                    compiled, self._strategy, compiled.python_function, args, kwargs
                )
            if functions is not None:
                return functions.call(
                    fn,
                    Function,
                    lambda found: run_on_replicas(found, self._strategy, fn, args, kwargs),
                    lambda: world().run_replicas(
                        self._strategy, self._replica_devices, fn, args, kwargs
                    ),
                    (args, kwargs),
                )
        return world().run_replicas(self._strategy, self._replica_devices, fn, args, kwargs)

    @property
    def _compiled_runs(self) -> FunctionCache | None:
        """Where compiled versions of replica functions are, if these are to be compiled."""
        found = world().compiled_runs
        return self._step_functions if found is None and self._is_planned else found

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

    _replica_ctx_merge_call = _replica_calls.merge_call
    _replica_ctx_all_reduce = _replica_calls.all_reduce
    _replica_ctx_all_gather = _replica_calls.all_gather

    # ------------------------------------------------------------------ data sets

    @property
    def _input_layout(self) -> InputLayout:
        """Who reads data sets."""
        return self._sync_group.input_layout(self._replica_devices)

    def _experimental_distribute_dataset(
        self, dataset: object, options: InputOptions
    ) -> DistributedDataset:
        return distributed_dataset(dataset, self._input_layout, options)

    def _distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions
    ) -> DistributedDataset:
        return distributed_from_function(dataset_fn, self._input_layout, options)

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

    def _reduce_to(
        self,
        reduce_op: ReduceOp,
        value: PyTree,
        destinations: object,
        options: CommunicationOptions,
    ) -> Any:
        return self._cross_device_ops.reduce(reduce_op, copies_of(value), destinations, options)

    def _batch_reduce_to(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions,
    ) -> list[Any]:
        pairs = [(copies_of(value), place) for value, place in value_destination_pairs]
        return self._cross_device_ops.batch_reduce(reduce_op, pairs, options)

    def _of_first_replica(self, value: DistributedValues) -> Any:
        """Returns what the first replica of all workers has."""
        return self._sync_group.first_component(value)

    def _scattered(self, values: Sequence[tuple[DistributedValues, int]]) -> list[jax.Array]:
        """In a program, each replica's part of sums, along the dimensions given."""
        return scattered(self._cross_device_ops, replica_mesh(self._replica_devices), values)

    def _gather_to(
        self,
        value: PyTree,
        destinations: object,
        axis: int,
        options: CommunicationOptions | None = None,
    ) -> Any:
        return self._sync_group.gather(
            self._cross_device_ops, copies_of(value), destinations, axis, options
        )

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

    def _broadcast_to(self, tensor: object, destinations: object) -> Any:
        return self._cross_device_ops.broadcast(array_here(tensor), destinations)

    def _local_results(self, value: PyTree) -> tuple[Any, ...]:
        if isinstance(value, DistributedValues):
            return value.values
        if _tree.one_level(value, is_leaf) is None:
            return (value,)
        return tuple(select_components(i, value) for i in range(self._local_replicas))

    # ------------------------------------------------------------------ variables

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        """Makes a variable of this strategy; `next_creator(**kwargs)` would make a plain one."""
        context = get_replica_context()
        if context is None or self._num_replicas_in_sync == 1:
            return self._make_variable(next_creator, **kwargs)
        return shared_by_replicas(
            context, kwargs, lambda: self._make_variable(next_creator, **kwargs)
        )

    def _make_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        devices = self._devices_for(kwargs.pop("colocate_with", None))
        synchronization = kwargs.get("synchronization")
        if synchronization is VariableSynchronization.NONE:
            raise ValueError(
                f"Variable {kwargs.get('name')!r}: synchronization NONE means one copy that nobody "
                "keeps in step, which is not possible under a strategy. Use ON_WRITE or ON_READ, "
                "or make the variable outside of the scope."
            )
        on_read = synchronization is VariableSynchronization.ON_READ
        kind = SyncOnReadVariable if on_read else MirroredVariable
        mesh = replica_mesh(devices)
        layout = self._state_layout.rule(mesh, kwargs.pop("layout", None), not on_read)
        return kind(self._strategy, mesh, layout=layout, **kwargs)

    @property
    def _optimizer_state_class(self) -> type[OptimizerState]:
        """What optimizers keep for variables of this strategy."""
        return OptimizerState

    @property
    def _sharing_worker(self) -> int | None:
        """The number of this worker, if workers share variables that are made elsewhere."""
        return None

    def _layout_of_slot(self, primary: Variable, shape: tuple[int, ...]) -> Layout:
        """Returns the layout of a part of an optimizer's state for the variable `primary`."""
        return self._state_layout.of_slot(primary, shape)

    def _devices_for(self, colocate_with: object) -> tuple[Device, ...]:
        return self._variable_devices if colocate_with is None else self._devices_of(colocate_with)

    def _devices_of(self, destinations: object) -> tuple[Device, ...]:
        """Returns the devices that a destination stands for."""
        of_replicas = self._sync_group.devices_of(destinations)
        if of_replicas is not None:
            return of_replicas
        found = destination_devices(destinations)
        # The names of all devices stand for the replicas: `non_slot_devices` gives them.
        are_all = isinstance(destinations, tuple | list) and tuple(found) == tuple(
            self._replica_devices
        )
        return self._replica_devices if are_all else found

    def variable_created_in_scope(self, v: object) -> bool:
        """Returns whether variable `v` was made in this strategy's scope."""
        return isinstance(v, Variable) and v.distribute_strategy is self._strategy

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

    def _validate_colocate_with(self, target: object) -> None:
        if isinstance(target, Variable):
            if self.variable_created_in_scope(target):
                return
            raise ValueError(
                "colocate_vars_with takes a variable made in this strategy's scope; "
                f"{target.name!r} was made elsewhere. Make it inside `with strategy.scope():`."
            )
        names = (target,) if isinstance(target, str) else target
        if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
            raise ValueError(
                "colocate_vars_with takes a variable made in this strategy's scope, or the devices "
                f"that non_slot_devices returned; got {_tree.describe(target)}."
            )
        destination_devices(names)

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

    def _update(
        self,
        var: Variable,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        return update_variable(self, var, fn, args, kwargs, group)

    @contextlib.contextmanager
    def _updating(self, index: Any, device: Device) -> Iterator[None]:
        frame = Frame(self._strategy, update_replica_id=index)
        with world().on_device(device), entered(frame):
            yield

    def non_slot_devices(self, var_list: Iterable[Variable]) -> Any:
        """Returns the devices for variables of an optimizer that belong to no single variable."""
        self._require_cross_replica("extended.non_slot_devices", USE_MERGE_CALL)
        return self._non_slot_devices(var_list)

    def _non_slot_devices(self, var_list: Iterable[Variable]) -> Any:
        return self.parameter_devices

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

    # ------------------------------------------------------------------ small things

    def _require_cross_replica(self, what: str, instead: str) -> None:
        require_cross_replica(self._strategy, what, instead)
