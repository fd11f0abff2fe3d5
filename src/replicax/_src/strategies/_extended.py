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
from typing import Any

import jax

from replicax._src import _old_names, _tree
from replicax._src._typing import Device
from replicax._src.collectives import (
    CrossDeviceOps,
    NcclAllReduce,
    ReduceOp,
    array_of,
    as_options,
    as_reduce_op,
    default_device,
    destination_devices,
    mirror,
)
from replicax._src.context import (
    Frame,
    ReplicaContext,
    copy_for,
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
from replicax._src.devices import PLAIN, canonical_name, replica_mesh, resolve
from replicax._src.functions import Function, FunctionCache, as_function
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
from replicax._src.strategies._shared_variables import shared_by_replicas
from replicax._src.strategies._state_layout import StateLayout
from replicax._src.values import (
    ArrayLike,
    DistributedValues,
    Mirrored,
    PerReplica,
    check_replica_count,
    is_leaf,
)
from replicax._src.variable import (
    DistributedVariable,
    MirroredVariable,
    SyncOnReadVariable,
    Variable,
    VariableSynchronization,
    container_of,
    mesh_of,
)


@functools.lru_cache(maxsize=256)
def _resolved(names: tuple[str, ...]) -> tuple[Device, ...]:
    return tuple(resolve(name) for name in names)


class StrategyExtended:
    """Lower-level operations of a strategy; reach it as `strategy.extended`.

    Most of its methods need cross-replica context: `strategy.scope()`, or a `merge_fn`.
    """

    def __init__(self, container_strategy: Any):
        self._strategy = container_strategy
        self._cross_device_ops: CrossDeviceOps = NcclAllReduce()
        self._step_functions = FunctionCache()
        self._state_layout = StateLayout()

    def _container_strategy(self) -> Any:
        """The `Strategy` that this belongs to."""
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
        return len(self.worker_devices)

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
        return 0

    @property
    def _variable_devices(self) -> tuple[Device, ...]:
        return _resolved(tuple(self.parameter_devices))

    # ------------------------------------------------------------------ running replicas

    def call_for_each_replica(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls `fn` once per replica, as `strategy.run` does; returns the merged results."""
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
                return compiled._run_on(self._strategy, compiled.python_function, args, kwargs)
            if functions is not None:
                return functions.call(
                    fn,
                    Function,
                    lambda found: found._run_on(self._strategy, fn, args, kwargs),
                    lambda: self._run_replicas(fn, args, kwargs),
                    (args, kwargs),
                )
        return world().run_replicas(self._strategy, self._replica_devices, fn, args, kwargs)

    @property
    def _compiled_runs(self) -> FunctionCache | None:
        """Where compiled versions of replica functions are, if these are to be compiled."""
        return world().compiled_runs

    def _run_replicas(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Runs a replica function as it is: eagerly, or as a part of a program."""
        return world().run_replicas(self._strategy, self._replica_devices, fn, args, kwargs)

    def experimental_run_steps_on_iterator(
        self,
        fn: Callable[..., Any],
        iterator: Any,
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

    def _replica_ctx_merge_call(
        self,
        context: ReplicaContext,
        merge_fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return _replica_calls.merge_call(self, context, merge_fn, args, kwargs)

    def _replica_ctx_all_reduce(
        self, context: ReplicaContext, reduce_op: Any, value: Any, options: Any
    ) -> Any:
        return _replica_calls.all_reduce(self, context, reduce_op, value, options)

    def _replica_ctx_all_gather(
        self, context: ReplicaContext, value: Any, axis: int, options: Any
    ) -> Any:
        return _replica_calls.all_gather(self, context, value, axis, options)

    # ------------------------------------------------------------------ data sets

    @property
    def _input_layout(self) -> InputLayout:
        """Who reads data sets: here one worker, with all replicas."""
        return InputLayout(self._replica_devices)

    def _experimental_distribute_dataset(
        self, dataset: Any, options: InputOptions
    ) -> DistributedDataset:
        return distributed_dataset(dataset, self._input_layout, options)

    def _distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions
    ) -> DistributedDataset:
        return distributed_from_function(dataset_fn, self._input_layout, options)

    def experimental_make_numpy_dataset(self, numpy_input: Any, session: Any = None) -> Dataset:
        """A data set of the rows of arrays; lists of arrays are stacked.

        Args:
          numpy_input: a structure of arrays.
          session: kept for ported code.
        """
        _old_names.warn_of("StrategyExtended.experimental_make_numpy_dataset")
        return self._experimental_make_numpy_dataset(numpy_input)

    def _experimental_make_numpy_dataset(self, numpy_input: Any) -> Dataset:
        return Dataset.from_tensor_slices(numpy_input)

    # ------------------------------------------------------------------ combining values

    def reduce_to(
        self,
        reduce_op: Any,
        value: Any,
        destinations: Any,
        options: Any = None,
        experimental_hints: Any = None,
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
        settled = self._already_reduced(op, value, destinations)
        return self._reduce_to(op, value, destinations, options) if settled is None else settled[0]

    def batch_reduce_to(
        self,
        reduce_op: Any,
        value_destination_pairs: Iterable[tuple[Any, Any]],
        options: Any = None,
        experimental_hints: Any = None,
    ) -> list[Any]:
        """`reduce_to` for many `(value, destinations)` pairs in as few collectives as possible.

        Returns a list of mirrored values, one per pair.
        """
        self._require_cross_replica("extended.batch_reduce_to", USE_ALL_REDUCE)
        op, options = as_reduce_op(reduce_op), as_options(options, experimental_hints)
        pairs = as_pairs(value_destination_pairs)
        results: list[Any] = [self._already_reduced(op, *pair) for pair in pairs]
        open_indices = [index for index, settled in enumerate(results) if settled is None]
        if open_indices:
            reduced = self._batch_reduce_to(op, [pairs[i] for i in open_indices], options)
            for index, value in zip(open_indices, reduced, strict=True):
                results[index] = (value,)
        return [result[0] for result in results]

    def _already_reduced(self, op: ReduceOp, value: Any, destinations: Any) -> tuple[Any] | None:
        """The result, in a tuple, if there is nothing to combine; None if there is."""
        devices = self._devices_of(destinations)
        if isinstance(value, Mirrored | MirroredVariable):
            if op is ReduceOp.MEAN:
                return (value,)
            raise ValueError(
                "A Mirrored value is the same on all replicas, so its SUM is not what it seems "
                f"({self._num_replicas_in_sync} times the value). Use ReduceOp.MEAN, or multiply "
                "by strategy.num_replicas_in_sync if that is meant."
            )
        if isinstance(value, DistributedValues):
            return None
        if isinstance(value, int | float) and value == 0:
            return (0,)
        if self._num_replicas_in_sync > 1 and op is ReduceOp.SUM:
            raise ValueError(
                f"ReduceOp.SUM was given a value that is not per replica: {_tree.describe(value)}. "
                "One array is the same on every replica, and its sum over them is probably not "
                "meant. Pass the result of strategy.run, use ReduceOp.MEAN, or multiply by "
                "strategy.num_replicas_in_sync. If the replicas returned a Python number, such as "
                "x.shape[0], return an array: rx.constant(x.shape[0])."
            )
        return (mirror(array_of(value, "A reduction"), devices),)

    def _reduce_to(self, reduce_op: ReduceOp, value: Any, destinations: Any, options: Any) -> Any:
        return self._cross_device_ops.reduce(reduce_op, _copies(value), destinations, options)

    def _batch_reduce_to(
        self, reduce_op: ReduceOp, value_destination_pairs: Sequence[tuple[Any, Any]], options: Any
    ) -> list[Any]:
        pairs = [(_copies(value), destinations) for value, destinations in value_destination_pairs]
        return self._cross_device_ops.batch_reduce(reduce_op, pairs, options)

    def _scatter(self, reduce_op: Any, values: Sequence[tuple[Any, int]]) -> list[Any]:
        """In a program, each replica's part of reductions, along the dimensions given."""
        mesh = replica_mesh(self._replica_devices)
        return self._cross_device_ops._scatter(mesh, as_reduce_op(reduce_op), values)

    def _gather_to(self, value: Any, destinations: Any, axis: int, options: Any = None) -> Any:
        return self._cross_device_ops.gather(_copies(value), destinations, axis, options)

    def _sum_over_workers(self, number: int) -> int:
        """The sum of the numbers that the workers have."""
        return number

    def _compare_over_workers(self, value: Any) -> None:
        """Notes where a value that every worker has just made has other shapes on the others."""

    def _of_first_replica(self, value: DistributedValues) -> Any:
        """The first replica's component, for all."""
        return value._buffers.first if value._is_traced else value._component(0)

    def _starts_in_gathered(self, value: DistributedValues, axis: int) -> list[int]:
        """Where the components of the replicas here start in what `_gather_to` gives."""
        sizes = [part.shape[axis] for part in value.values]
        return [sum(sizes[:index]) for index in range(len(sizes))]

    def broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """Mirrors one array to the destination devices.

        Args:
          tensor: the array.
          destinations: a variable, a value, a device name, or a list of device names; None means
            the devices of the replicas.
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

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        if isinstance(tensor, ArrayLike):
            tensor = tensor._array()
        return self._cross_device_ops.broadcast(tensor, destinations)

    def _local_results(self, value: Any) -> tuple[Any, ...]:
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
        layout = self._layout_rule(mesh, kwargs.pop("layout", None), not on_read)
        return kind(self._strategy, mesh, layout=layout, **kwargs)

    def _layout_rule(self, mesh: Any, asked: Any, is_mirrored: bool) -> Callable[..., Any]:
        """What chooses the layout of a new variable, when its shape is known."""
        return functools.partial(self._state_layout.of_variable, mesh, asked, is_mirrored)

    def _slot_layout(self, primary: Any, shape: tuple[int, ...]) -> Any:
        """The layout of a part of an optimizer's state that belongs to a variable."""
        mesh = mesh_of(primary)
        return PLAIN if mesh is None else self._state_layout.of_slot(mesh, primary, shape)

    def _devices_for(self, colocate_with: Any) -> tuple[Device, ...]:
        return self._variable_devices if colocate_with is None else self._devices_of(colocate_with)

    def _devices_of(self, destinations: Any) -> tuple[Device, ...]:
        """The devices that a destination stands for."""
        found = destination_devices(destinations)
        # The names of all devices stand for the replicas: `non_slot_devices` gives them.
        are_all = isinstance(destinations, tuple | list) and tuple(found) == tuple(
            self._replica_devices
        )
        return self._replica_devices if are_all else found

    def variable_created_in_scope(self, v: Any) -> bool:
        """Whether variable `v` was made in this strategy's scope."""
        return isinstance(v, Variable) and v.distribute_strategy is self._strategy

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
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

    def _validate_colocate_with(self, target: Any) -> None:
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
        var: Any,
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
                strategy: Any, var: Any, args: Sequence[Any], kwargs: dict[str, Any] | None
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
        var: Any,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        if not isinstance(var, DistributedValues):
            with self._updating(0, self._devices_of(var)[0]):
                result = fn(var, *args, **kwargs)
            return result if group else _tree.map_structure(lambda x: (x,), result, is_leaf)
        devices = self._devices_of(var)

        def update_copy(index: Any, *args: Any, **kwargs: Any) -> Any:
            return fn(var._component(index), *args, **kwargs)

        is_cut = isinstance(var, Variable) and var.layout.replica_dim is not None
        if not is_cut or world().replicas.are_together:
            return self._update_on(devices, update_copy, args, kwargs, group)
        # There are no copies, but one in parts.
        result = self._update_on(devices[:1], update_copy, args, kwargs, True)
        if group:
            return result
        return _tree.map_structure(lambda x: (x,) * len(devices), result, is_leaf)

    def _update_on(
        self,
        devices: Sequence[Device],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        """`fn(copy, *args, **kwargs)` for the copy on each device, or for each copy at once."""

        def update(index: Any) -> Any:
            part_args, part_kwargs = select_components(index, (args, kwargs))
            return fn(index, *part_args, **part_kwargs)

        merged = world().replicas.update_copies(devices, self._updating, update)
        if group:
            return merged
        return _tree.map_structure(self._local_results, merged, is_leaf)

    @contextlib.contextmanager
    def _updating(self, index: Any, device: Device) -> Iterator[None]:
        frame = Frame(self._strategy, update_replica_id=index)
        with world().on_device(device), entered(frame):
            yield

    def non_slot_devices(self, var_list: Any) -> Any:
        """The devices for variables of an optimizer that belong to no single variable."""
        self._require_cross_replica("extended.non_slot_devices", USE_MERGE_CALL)
        return self._non_slot_devices(var_list)

    def _non_slot_devices(self, var_list: Any) -> Any:
        return self.parameter_devices

    def update_non_slot(
        self,
        colocate_with: Any,
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
        """
        self._require_cross_replica("extended.update_non_slot", USE_MERGE_CALL)
        if not callable(fn):
            raise TypeError(f"extended.update_non_slot needs a function; got {fn!r}.")
        args, kwargs = as_arguments(args, kwargs, "extended.update_non_slot")
        refuse_per_replica((args, kwargs))
        with self._strategy.scope():
            return self._update_non_slot(colocate_with, fn, args, kwargs, group)

    def _update_non_slot(
        self,
        colocate_with: Any,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        return self._update_on(
            self._devices_of(colocate_with),
            lambda index, *args, **kwargs: fn(*args, **kwargs),
            args,
            kwargs,
            group,
        )

    def value_container(self, value: Any) -> Any:
        """The distributed variable that `value` is a copy of, else `value` itself."""
        return container_of(value) if isinstance(value, Variable) else value

    def read_var(self, v: Any) -> jax.Array:
        """The value of a variable, aggregated over the replicas if it is sync-on-read."""
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


def select_components(index: Any, structure: Any) -> Any:
    """One copy's view of `structure`: values and variables alike replaced by their component."""

    def pick(leaf: Any) -> Any:
        if isinstance(leaf, DistributedValues):
            return leaf._component(copy_for(index, leaf._count))
        return leaf

    return _tree.map_structure(pick, structure, is_leaf)


def _copies(value: Any) -> Any:
    """A sync-on-read variable as the per-replica value that its copies are."""
    if isinstance(value, DistributedVariable):
        return PerReplica._from_buffers(value._buffers)
    return value
