"""What a strategy may do its own way: the methods that authors of strategies override.

With nothing overridden it is a strategy of one replica on the default device. A subclass gives the
devices of its replicas, or names them (`worker_devices`, `parameter_devices`), and overrides the
hooks, whose names start with an underscore. They are called with arguments that have been checked,
and inside of the strategy's scope.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax

from replicax._src import _tree
from replicax._src._typing import Device, PyTree
from replicax._src.collectives import (
    CommunicationOptions,
    CrossDeviceOps,
    NcclAllReduce,
    ReduceOp,
    default_device,
    destination_devices,
    scattered,
)
from replicax._src.context import (
    Frame,
    StrategyScope,
    entered,
    get_replica_context,
    is_compiling,
    world,
)
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
    canonical_names,
    plan_of,
    replica_mesh,
    resolve,
)
from replicax._src.functions import Function, FunctionCache, as_function, run_on_replicas
from replicax._src.strategies import _replica_calls
from replicax._src.strategies._planned_scope import PlannedScope
from replicax._src.strategies._reductions import copies_of
from replicax._src.strategies._shared_variables import shared_by_replicas
from replicax._src.strategies._state_layout import StateLayout
from replicax._src.strategies._sync_group import SyncGroup
from replicax._src.strategies._updates import select_components, update_variable
from replicax._src.training import OptimizerState
from replicax._src.values import DistributedValues, array_here, check_replica_count, is_leaf
from replicax._src.variable import (
    MirroredVariable,
    SyncOnReadVariable,
    Variable,
    VariableSynchronization,
)

if TYPE_CHECKING:
    from replicax._src.strategies._strategy import Strategy


@functools.lru_cache(maxsize=256)
def _resolved(names: tuple[str, ...]) -> tuple[Device, ...]:
    return tuple(resolve(name) for name in names)


class StrategyHooks:
    """The hooks of a `StrategyExtended`, and what they do if nothing else is said."""

    _given_devices: tuple[Device, ...] = ()
    _given_names: tuple[str, ...] = ()

    def __init__(self, container_strategy: Strategy | None):
        self._strategy: Any = container_strategy
        self._cross_device_ops: CrossDeviceOps = NcclAllReduce()
        self._step_functions = FunctionCache()
        self._state_layout = StateLayout()
        self._sync_group = SyncGroup()

    def _place_on(self, devices: tuple[Device, ...]) -> None:
        """Gives the replicas these devices; a subclass may also override `worker_devices`."""
        self._given_devices, self._given_names = devices, canonical_names(devices)

    def _container_strategy(self) -> Any:
        """Returns the `Strategy` that this belongs to."""
        return self._strategy

    # ------------------------------------------------------------------ what the strategy is

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The names of the devices that replicas compute on, one for each replica."""
        return self._given_names or (canonical_name(default_device()),)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The names of the devices that variables are placed on."""
        return self.worker_devices

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._sync_group.size(len(self.worker_devices))

    @property
    def _replica_devices(self) -> tuple[Device, ...]:
        return self._given_devices or _resolved(tuple(self.worker_devices))

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
        names = tuple(self.parameter_devices)
        return self._replica_devices if names == self.worker_devices else _resolved(names)

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

    # ------------------------------------------------------------------ combining values

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

    def _non_slot_devices(self, var_list: Iterable[Variable]) -> Any:
        return self.parameter_devices
