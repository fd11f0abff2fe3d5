"""`ParameterServerStrategy`: variables on servers, functions on workers, nobody waits."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy as np

from replicax._src._errors import ClusterConfigError
from replicax._src._typing import ArrayInput, Device, override
from replicax._src._warnings import warn
from replicax._src.cluster import ClusterResolver, RayClusterResolver, resolver_from_environment
from replicax._src.data.distributed import InputContext, InputOptions
from replicax._src.parameter_servers._cluster import Cluster
from replicax._src.parameter_servers._coordinator_view import CoordinatorView
from replicax._src.parameter_servers._optimizer_state import ServerOptimizerState
from replicax._src.parameter_servers._packing import Place, Referred, numbers, strategy_there
from replicax._src.parameter_servers._partitioners import Partitioner
from replicax._src.parameter_servers._parts import server_numbers
from replicax._src.parameter_servers._server_holder import ServerHolder
from replicax._src.parameter_servers._shard_info import made_in_parts
from replicax._src.parameter_servers._sharded import ShardedVariable, offsets_of
from replicax._src.parameter_servers._variable import ServerVariable, Spec
from replicax._src.parameter_servers._worker_data import DatasetOfWorkers, of_dataset, of_function
from replicax._src.strategies import Strategy, StrategyExtended
from replicax._src.training import OptimizerState
from replicax._src.variable import Variable, initial_value

_DEVICE = "/job:ps/replica:0/task:{}/device:CPU:0"


@final
class CoordinatorPlace(Place):
    """What references lead to in the process of the coordinator."""

    def __init__(self, strategy: Strategy, view: CoordinatorView, strategy_id: str):
        super().__init__(strategy_id)
        self._owner = weakref.ref(strategy)
        self._view = view
        self._sharded: weakref.WeakValueDictionary[int, ShardedVariable] = (
            weakref.WeakValueDictionary()
        )

    @property
    def strategy(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._owner()

    def remember(self, variable: ShardedVariable) -> None:
        """Takes note of a variable in parts."""
        self._sharded[variable.variables[0].spec.key] = variable

    @override
    def function(self, number: int, make: tuple[Callable[..., Any], Any]) -> Any:
        return numbers.find(number)

    @override
    def optimizer(self, number: int, contents: tuple[Any, ...]) -> Any:
        return numbers.find(number)

    @override
    def variable(self, spec: Spec) -> ServerVariable:
        return self._view.variable(spec)

    @override
    def sharded(
        self, pieces: list[ServerVariable], offsets: list[int], common: tuple[Any, ...]
    ) -> ShardedVariable:
        return self._sharded[pieces[0].spec.key]

    @override
    def value(self, number: int) -> Any:
        raise TypeError("A value of a worker's own cannot be used in the coordinator's process.")


@final
class ParameterServerExtended(StrategyExtended):
    """Variables go to the servers in turn."""

    def __init__(
        self,
        container_strategy: Strategy,
        cluster_resolver: ClusterResolver,
        variable_partitioner: Partitioner | Callable[..., Sequence[int]] | None,
    ):
        super().__init__(container_strategy)
        jobs = _jobs(cluster_resolver)
        self._cluster_resolver = cluster_resolver
        self.coordinator: Any = None  # a `ClusterCoordinator`
        self._partitioner = variable_partitioner
        resources = getattr(cluster_resolver, "resources", {})
        address = getattr(cluster_resolver, "address", None)
        self._cluster = Cluster(jobs["worker"], jobs["ps"], resources, address)
        self.strategy_id = self._cluster.strategy_id
        self.view = CoordinatorView(
            container_strategy, self._cluster.servers, self._cluster.restart_server
        )
        self.view.holder = ServerHolder(self.view)
        self.workers = self._cluster.workers
        self._place = CoordinatorPlace(container_strategy, self.view, self.strategy_id)
        self._keys = itertools.count(1)
        self._turns = itertools.count()

    @property
    @override
    def parameter_devices(self) -> tuple[str, ...]:
        return tuple(_DEVICE.format(index) for index in range(len(self.view.servers)))

    @property
    @override
    def _variable_devices(self) -> tuple[Device, ...]:
        return self._replica_devices

    @property
    def _replica_devices(self) -> tuple[Device, ...]:
        return super()._replica_devices

    @property
    @override
    def _optimizer_state_class(self) -> type[OptimizerState]:
        return ServerOptimizerState

    # ------------------------------------------------------------------ variables

    @override
    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        return self._make_variable(next_creator, **kwargs)

    @override
    def _make_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        place = kwargs.pop("colocate_with", None)
        kwargs.pop("layout", None)
        if place is None:
            return self._new_variable(kwargs)
        if isinstance(place, ShardedVariable):
            return self._beside_parts(place, kwargs)
        if isinstance(place, ServerVariable):
            return self._on(place.spec.servers, kwargs)
        return self._on(self._servers_named(place), kwargs)

    def _on(self, servers: tuple[int, ...], kwargs: dict[str, Any]) -> ServerVariable:
        return ServerVariable(self.view, next(self._keys), servers, **kwargs)

    def _next_server(self) -> tuple[int, ...]:
        return (next(self._turns) % len(self.view.servers),)

    def _new_variable(self, kwargs: dict[str, Any]) -> Any:
        made = made_in_parts(kwargs)
        if made is None and self._partitioner is None:
            return self._on(self._next_server(), kwargs)
        value: Any = initial_value(kwargs) if made is None else made.whole
        parts = self._number_of_parts(value)
        if made is None or parts == 1:
            kwargs = {**kwargs, "initial_value": value if made is None else made.all()}
        if parts == 1:
            return self._on(self._next_server(), kwargs)
        offsets = offsets_of(value.shape[0], parts)
        return self._in_parts(offsets, lambda index: self._next_server(), kwargs)

    def _number_of_parts(self, value: Any) -> int:
        if not value.shape or self._partitioner is None:
            return 1
        found: Any = self._partitioner(shape=tuple(value.shape), dtype=value.dtype)
        if not isinstance(found, list | tuple) or not _is_cut(list(found)):
            raise ValueError(
                "The variable_partitioner must return a list whose elements are 1, except for the "
                f"first, which may be more: only the first dimension can be cut. Got {found!r} "
                f"for the shape {tuple(value.shape)}."
            )
        return max(1, min(found[0], value.shape[0]))

    def _in_parts(
        self,
        offsets: list[int],
        servers: Callable[[int], tuple[int, ...]],
        kwargs: dict[str, Any],
    ) -> ShardedVariable:
        common = {
            name: kwargs[name]
            for name in ("trainable", "synchronization", "aggregation", "constraint")
            if name in kwargs
        }

        def make_part(index: int, name: str, value: Any) -> ServerVariable:
            return self._on(servers(index), {**common, "name": name, "initial_value": value})

        by_part = made_in_parts(kwargs)
        if by_part is None:
            made = ShardedVariable(self.view, make_part, lambda shape, dtype: offsets, **kwargs)
        else:
            made = ShardedVariable.part_by_part(self.view, make_part, offsets, by_part, **kwargs)
        self._place.remember(made)
        return made

    def _beside_parts(self, primary: ShardedVariable, kwargs: dict[str, Any]) -> Any:
        """Returns a variable whose rows are where those of another are, if it has as many."""
        made = made_in_parts(kwargs)
        value: Any = initial_value(kwargs) if made is None else made.whole
        if made is None:
            kwargs = {**kwargs, "initial_value": value}
        if value.shape[:1] != primary.shape[:1]:
            servers = {server for piece in primary.variables for server in piece.spec.servers}
            return self._on(tuple(sorted(servers)), kwargs)
        homes = [piece.spec.servers for piece in primary.variables]
        return self._in_parts(primary.offsets, homes.__getitem__, kwargs)

    def _servers_named(self, names: object) -> tuple[int, ...]:
        wanted = (names,) if isinstance(names, str) else tuple(names)  # type: ignore[arg-type]
        return tuple(self.parameter_devices.index(name) for name in wanted)

    @override
    def _validate_colocate_with(self, target: object) -> None:
        if isinstance(target, ServerVariable | ShardedVariable):
            if self.variable_created_in_scope(target):
                return
        elif isinstance(target, str | tuple | list):
            names = (target,) if isinstance(target, str) else target
            if all(name in self.parameter_devices for name in names):
                return
        raise ValueError(
            "colocate_vars_with takes a variable made in this strategy's scope, or some of its "
            f"parameter_devices; got {target!r}."
        )

    @override
    def _non_slot_devices(self, var_list: Iterable[Variable]) -> Any:
        # As each server with some of them needs a copy; others would not see their updates.
        ours = [each for each in var_list if isinstance(each, ServerVariable | ShardedVariable)]
        servers = set[int]().union(*map(server_numbers, ours))
        devices = self.parameter_devices
        return tuple(devices[server] for server in sorted(servers)) or devices

    def look_up(self, table: Variable, ids: ArrayInput) -> Any:
        """Returns rows of a table, as an array: there is no function to give them back."""
        return table.sparse_read(ids)

    # ------------------------------------------------------------------ running, data

    @override
    def _call_for_each_replica(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        warn(
            "strategy.run of a ParameterServerStrategy is called in the program that schedules, "
            "and computes here. To compute on workers, call it in a function that "
            "coordinator.schedule is given."
        )
        return super()._call_for_each_replica(fn, args, kwargs)

    @override
    def _experimental_distribute_dataset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, dataset: object, options: InputOptions
    ) -> DatasetOfWorkers:
        return of_dataset(self._strategy, dataset, options)

    @override
    def _distribute_datasets_from_function(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions
    ) -> DatasetOfWorkers:
        return of_function(self._strategy, dataset_fn, options)


class ParameterServerStrategy(Strategy, Referred):
    """Variables live on servers, in turn; workers compute, each at its own pace.

    Make variables in `scope()`, and give functions to a
    `rx.distribute.coordinator.ClusterCoordinator`. Workers and servers are actors of Ray, which is
    an extra: `pip install "replicax[ray]"`. Without an address they are processes of this machine.

    Args:
      cluster_resolver: how many workers and servers there are: a
        `rx.distribute.cluster_resolver.RayClusterResolver`, or another one with the jobs "worker"
        and "ps". By default `TF_CONFIG`, or else two workers and one server.
      variable_partitioner: into how many parts variables are cut, so that these can go to several
        servers: one of `rx.distribute.experimental.partitioners`, or a function
        `fn(shape, dtype)` that returns the number of parts of each dimension.
    """

    extended: ParameterServerExtended  # pyright: ignore

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        variable_partitioner: Partitioner | Callable[..., Sequence[int]] | None = None,
    ):
        if variable_partitioner is not None and not callable(variable_partitioner):
            raise TypeError(
                "variable_partitioner is one of rx.distribute.experimental.partitioners, or a "
                f"function fn(shape, dtype); got {variable_partitioner!r}."
            )
        resolver = cluster_resolver or resolver_from_environment() or RayClusterResolver()
        super().__init__(ParameterServerExtended(self, resolver, variable_partitioner))

    @override
    def reference(self) -> Any:
        """Returns what makes of it, on a worker, what stands for the strategy there."""
        return strategy_there, (self.extended.strategy_id,)

    def __repr__(self) -> str:
        workers, servers = len(self.extended.workers), len(self.extended.view.servers)
        return f"<{type(self).__name__} with {workers} worker(s) and {servers} server(s)>"

    _repr_html_ = None  # type: ignore[assignment]  # it has no table of devices


def _is_cut(parts: list[Any]) -> bool:
    """Whether these are numbers of parts, and only the first dimension is cut."""
    counts = [each for each in parts if isinstance(each, int | np.integer) and each > 0]
    return len(counts) == len(parts) > 0 and all(each == 1 for each in counts[1:])


def _jobs(resolver: object) -> dict[str, int]:
    """Returns how many workers and servers there are."""
    if not isinstance(resolver, ClusterResolver):
        raise TypeError(
            "cluster_resolver must be a rx.distribute.cluster_resolver.ClusterResolver; got "
            f"{type(resolver).__name__}. Write RayClusterResolver(workers=2, ps=1)."
        )
    cluster = resolver.cluster_spec()
    counts = {job: cluster.num_tasks(job) if job in cluster.jobs else 0 for job in ("worker", "ps")}
    for job, what in (("ps", "parameter server"), ("worker", "worker")):
        if not counts[job]:
            raise ClusterConfigError(
                f"The cluster of a ParameterServerStrategy needs at least one {what}, and has the "
                f"jobs {list(cluster.jobs)}. Write RayClusterResolver(workers=2, ps=1), or a "
                "cluster with the jobs 'worker' and 'ps'."
            )
    task = resolver.task_type
    if task in ("worker", "ps"):
        raise ClusterConfigError(
            f"This process is said to be {task} {resolver.task_id}. The workers and servers of a "
            "ParameterServerStrategy are started by the program that schedules, on Ray: run it "
            "once, as 'chief' or without a task."
        )
    return counts
