"""`DistributedDataset`: a data set of which every replica gets its share, and its iterator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

from replicax._src import _html
from replicax._src._errors import ReplicaMismatchError
from replicax._src._typing import PyTree, override
from replicax._src._warnings import users_line
from replicax._src.data import Dataset
from replicax._src.data._batching import rows_in
from replicax._src.data._caching import KeepsInFiles, seeds_of_files
from replicax._src.data._elements import leaves_with_names
from replicax._src.data._iterator import refuse_in_trace
from replicax._src.data._node import INFINITE, UNKNOWN, Node, drawing_nodes, walk
from replicax._src.data._options import AutoShardPolicy
from replicax._src.data._report import html_tree, one_line, text_tree
from replicax._src.data._run import Iterations, Run
from replicax._src.data._sources import Numbers, OneElement, TensorSlices
from replicax._src.data.distributed._batch_sizes import (
    has_static_shapes,
    per_replica_spec,
    share_spec,
)
from replicax._src.data.distributed._device_maps import DeviceFunctions, spec_after, split_off
from replicax._src.data.distributed._distributed_iterator import DistributedIterator, StepFeed
from replicax._src.data.distributed._options import (
    InputContext,
    InputLayout,
    InputOptions,
    InputReplicationMode,
)
from replicax._src.data.distributed._placing import HostShares, Placement
from replicax._src.data.distributed._planned_shares import FirstSteps, PlannedShares
from replicax._src.data.distributed._sharding import Sharding, shard
from replicax._src.data.distributed._splitting import Steps, Successive
from replicax._src.data.foreign import Distributed, foreign_node
from replicax._src.devices import plan_of, short_name, supposed


class DistributedDataset(Distributed):
    """A data set of which every replica gets its share; iterate over it.

    Made by `strategy.experimental_distribute_dataset` and
    `strategy.distribute_datasets_from_function`. It takes no more operations: put those into the
    data set before it is distributed.
    """

    def __init__(self, nodes: Sequence[Node], layout: InputLayout, options: InputOptions):
        if type(self) is DistributedDataset:
            raise TypeError(
                "A DistributedDataset is made by strategy.experimental_distribute_dataset(dataset) "
                "or strategy.distribute_datasets_from_function(dataset_fn)."
            )
        self._nodes = nodes  # as the user made them
        self._node = nodes[0]
        self._layout = layout
        self._options = options
        self._iterations = Iterations()
        self._on_devices: DeviceFunctions | None = None

    def __iter__(self) -> DistributedIterator:
        refuse_in_trace()
        return DistributedIterator(
            self._nodes,
            self._iterations.begin(),
            self._iterations.resume,
            self._feed,
            self._options.experimental_per_replica_buffer_size,
            lambda: self.element_spec,
            self._tied_to(),
            self._open_as,
        )

    def _open_as(
        self, run: Run, local: int, workers: int, worker: int
    ) -> tuple[Node, Steps] | None:
        """Returns what a worker of a job like this one reads, and its steps; None if unknown.

        Args:
          run: the iteration.
          local: how many replicas it has.
          workers: how many there are.
          worker: which of them it is.
        """
        return None

    def _feed(self, run: Run, position: int) -> StepFeed:
        """Starts a walk at a step."""
        raise NotImplementedError

    def _new_feed(
        self,
        steps: Steps,
        position: int,
        by_rows: bool,
        functions: Sequence[list[Callable[..., Any]]],
        asks: bool,
    ) -> StepFeed:
        layout, node = self._layout, self._node
        on_host = self._on_host
        shares = HostShares(lambda: on_host.spec)
        if plan_of(layout.devices[0]) is not None:
            shares = PlannedShares(shares)
            count = supposed().most_steps
            steps = steps if count is None or node.cardinality < 0 else FirstSteps(steps, count)
        compute = shares.of_rows if by_rows else shares.of_elements
        only_numbers = all(isinstance(each, Numbers) for each in walk(node) if not each.inputs)
        fetch = bool(self._options.experimental_fetch_to_device)
        place = Placement(layout, fetch, only_numbers, users_line()).place
        if any(functions) and self._on_devices is None:  # compiled once for all iterations
            self._on_devices = DeviceFunctions(functions, layout)
        exchange = layout.meet() if asks and layout.workers > 1 else None
        local = layout.local_replicas
        on_cpu = layout.devices[0].platform == "cpu"  # others copy while the host goes on
        in_memory = on_cpu and all(map(_is_in_memory, self._nodes))
        return StepFeed(
            steps, position, local, compute, place, self._on_devices, exchange, in_memory
        )

    @property
    def _on_host(self) -> Node:
        """The data set without the functions at its end that run on the devices."""
        raise NotImplementedError

    def _tied_to(self) -> dict[str, Any]:
        """Returns what must be the same where the state of an iterator is continued."""
        return {"replicas": self._layout.replicas, "workers": self._layout.workers}

    @property
    def element_spec(self) -> Any:
        """What the elements look like, for the `input_signature` of an `rx.function`."""
        raise NotImplementedError

    @property
    def cardinality(self) -> int:
        """The number of elements of the data set that was distributed."""
        return self._node.cardinality

    def _number_of_steps(self) -> int:
        raise NotImplementedError

    def reduce(self, initial_state: PyTree, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Calls `state = reduce_func(state, element)` for each element. Returns the last state.

        Args:
          initial_state: the state before the first element.
          reduce_func: called in cross-replica context: `strategy.run` and `strategy.reduce` in it.
        """
        state = initial_state
        for element in self:
            state = reduce_func(state, element)
        return state

    def __len__(self) -> int:
        size = self._number_of_steps()
        if size < 0:
            what = "repeats forever" if size == INFINITE else "is read to find out"
            raise TypeError(f"The distributed data set has no known length: it {what}.")
        return size

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(Dataset, name):
            raise AttributeError(
                f"A DistributedDataset takes no more operations: call .{name}(...) on the data set "
                "before it is distributed."
            )
        raise AttributeError(f"'DistributedDataset' object has no attribute {name!r}")

    def _facts(self) -> list[tuple[str, str]]:
        """Returns what there is to say about how it is distributed."""
        names = ", ".join(short_name(device) for device in self._layout.devices)
        facts = [("replicas", f"{self._layout.local_replicas} here ({names})")]
        if self._layout.workers > 1:
            facts.append(("worker", f"{self._layout.worker} of {self._layout.workers}"))
        return facts

    def __repr__(self) -> str:
        return f"<DistributedDataset of {one_line(self._node)} on {self._layout.replicas} replicas>"

    def __str__(self) -> str:
        facts = [f"  {name}: {text}" for name, text in self._facts()]
        tree = text_tree(self._node).split("\n")[1:]
        return "\n".join([repr(self), *facts, *tree])

    def _repr_html_(self) -> str:
        facts = _html.table("DistributedDataset", ("", ""), self._facts())
        return facts + html_tree(self._node, title="")


@final
class SplitDataset(DistributedDataset):
    """Global batches, split over the replicas."""

    def __init__(self, dataset: object, layout: InputLayout, options: InputOptions):
        node = foreign_node(dataset)
        super().__init__([node], layout, options)
        self._inner, self._functions = split_off(node)
        self._sharding: Sharding = shard(self._inner, layout)
        if layout.workers > 1:
            self._agree()

    def _agree(self) -> None:
        """Makes sure that all workers split in the same way, and common batches in one order."""
        sharding = self._sharding
        of_files = seeds_of_files([self._node])
        drawn = [each.drawn for each in drawing_nodes(self._node)]
        seeds = [of_files.get(each, each) for each in drawn]
        how = f"{sharding.policy.name}, global batch size {sharding.batch_size}"
        said = self._layout.meet()([how, seeds])
        assert said is not None
        if any(each[0] != how for each in said):
            listing = "\n".join(f"  worker {index}: {each[0]}" for index, each in enumerate(said))
            raise ReplicaMismatchError(
                f"The workers distribute data sets that do not fit together:\n{listing}\nGive all "
                "workers the same batch size, options and kind of data set."
            )
        if sharding.policy is AutoShardPolicy.DATA:
            self._iterations.use(dict(zip(drawn, said[0][1])))

    @property
    @override
    def _on_host(self) -> Node:
        return self._inner

    @property
    @override
    def element_spec(self) -> Any:
        layout, spec = self._layout, self._inner.spec
        sizes = {leaf.shape[0] if leaf.shape else None for _, leaf in leaves_with_names(spec)}
        endless = self._inner.cardinality == INFINITE and has_static_shapes(self._inner)
        known = len(sizes) == 1 and (layout.workers == 1 or endless)
        size = sizes.pop() if known else None
        rows = None if size is None or size % layout.replicas else size // layout.replicas
        share = spec_after(self._functions, share_spec(spec, rows))
        return per_replica_spec(share, layout.local_replicas, layout.replicas > 1)

    @override
    def _number_of_steps(self) -> int:
        sharding, layout = self._sharding, self._layout
        if sharding.by_batch:
            batches = sharding.node.cardinality
            if sharding.policy is AutoShardPolicy.DATA or batches < 0:
                return batches
            return batches * layout.workers
        if layout.workers > 1:
            return INFINITE if self._node.cardinality == INFINITE else UNKNOWN
        rows = rows_in(sharding.node)
        return rows if rows < 0 else -(-rows // (sharding.batch_size or 1))

    @override
    def _open_as(
        self, run: Run, local: int, workers: int, worker: int
    ) -> tuple[Node, Steps] | None:
        devices = (self._layout.devices * local)[:local]
        sharding = shard(self._inner, InputLayout(devices, workers, worker))
        return sharding.node, sharding.open(run)

    @override
    def _feed(self, run: Run, position: int) -> StepFeed:
        steps = self._sharding.open(run)
        asks = not self._sharding.same_steps_everywhere
        return self._new_feed(steps, position, True, [self._functions], asks)

    @override
    def _tied_to(self) -> dict[str, Any]:
        sharding = self._sharding
        ties: dict[str, Any] = {}
        if not sharding.batches_are_whole:  # or else a step is the same rows by either rule
            ties = {"split": "batches" if sharding.by_batch else "rows"}
        global_positions = sharding.policy is AutoShardPolicy.DATA or self._layout.workers == 1
        return ties if global_positions else ties | super()._tied_to()

    @override
    def _facts(self) -> list[tuple[str, str]]:
        sharding = self._sharding
        rule = "batch by batch" if sharding.by_batch else "as one stream of rows"
        facts = [
            *super()._facts(),
            ("policy", f"{sharding.policy.name} ({sharding.reason})"),
            ("split", rule),
        ]
        if sharding.batch_size is None:
            return [*facts, ("global batch size", "unknown")]
        sizes = sharding.sizes_of_whole_batch()
        each = f"{sizes[0]} rows each" if len(set(sizes)) == 1 else f"{sizes} rows"
        return [*facts, ("global batch size", f"{sharding.batch_size}: {each}")]


@final
class FromFunctionDataset(DistributedDataset):
    """Batches of replicas, from a function that makes a data set for each worker or replica."""

    def __init__(
        self, dataset_fn: Callable[[InputContext], Any], layout: InputLayout, options: InputOptions
    ):
        per_replica = options.experimental_replication_mode is InputReplicationMode.PER_REPLICA
        contexts = input_contexts(layout, per_replica)
        super().__init__([_made(dataset_fn, context) for context in contexts], layout, options)
        split = [split_off(node) for node in self._nodes]
        self._inner = [node for node, _ in split]
        self._functions = [functions for _, functions in split]
        endless = all(node.cardinality == INFINITE for node in self._inner)
        asks = not (endless and has_static_shapes(self._inner[0]))
        said = layout.meet()(asks) if layout.workers > 1 else [asks]
        self._asks = any(said or ())

    @property
    @override
    def _on_host(self) -> Node:
        return self._inner[0]

    @property
    @override
    def element_spec(self) -> Any:
        layout = self._layout
        spec = self._on_host.spec
        if not has_static_shapes(self._inner[0]) or layout.workers > 1:
            spec = share_spec(spec, None)
        spec = spec_after(self._functions[0], spec)
        return per_replica_spec(spec, layout.local_replicas, layout.replicas > 1)

    @override
    def _number_of_steps(self) -> int:
        local = self._layout.local_replicas // len(self._nodes)
        sizes = [node.cardinality for node in self._nodes]
        if min(sizes) < 0:
            return min(sizes)
        if has_static_shapes(self._nodes[0]):
            return min(size // local for size in sizes)
        return max(-(-size // local) for size in sizes)

    @override
    def _feed(self, run: Run, position: int) -> StepFeed:
        readers = [node.open(run) for node in self._inner]
        steps = Successive(readers, self._layout.local_replicas, has_static_shapes(self._inner[0]))
        return self._new_feed(steps, position, False, self._functions, self._asks)


def _is_in_memory(node: Node) -> bool:
    """Whether elements are arrays that are there, and nothing of the user's runs."""
    return all(
        isinstance(each, TensorSlices | OneElement | Numbers)
        if not each.inputs
        else not (each.runs_user_code or each.pulls_user_code or isinstance(each, KeepsInFiles))
        for each in walk(node)
    )


def _made(dataset_fn: Callable[[InputContext], Any], context: InputContext) -> Node:
    made = dataset_fn(context)
    if made is None:
        raise TypeError(
            f"{getattr(dataset_fn, '__qualname__', dataset_fn)!r} returned None; it must return a "
            "data set for the InputContext that it gets."
        )
    return foreign_node(made)


def input_contexts(layout: InputLayout, per_replica: bool) -> Sequence[InputContext]:
    """Returns what the data set functions of this worker are told."""
    if not per_replica:
        return [InputContext(layout.workers, layout.worker, layout.replicas)]
    first = layout.worker * layout.local_replicas
    return [
        InputContext(layout.replicas, first + index, layout.replicas)
        for index in range(layout.local_replicas)
    ]


def distributed_dataset(
    dataset: object, layout: InputLayout, options: InputOptions
) -> DistributedDataset:
    """Returns what `strategy.experimental_distribute_dataset` returns."""
    if isinstance(dataset, DistributedDataset | DistributedIterator):
        raise TypeError(
            "The data set is distributed already: iterate over it. experimental_distribute_dataset "
            "takes the data set before that."
        )
    if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA is for strategy.distribute_datasets_from_function: "
            "a data set that is given as it is cannot be made once for each replica."
        )
    if options.experimental_place_dataset_on_device:
        raise ValueError(
            "`experimental_place_dataset_on_device` is for "
            "strategy.distribute_datasets_from_function with InputReplicationMode.PER_REPLICA."
        )
    return SplitDataset(dataset, layout, options)


def distributed_from_function(
    dataset_fn: Callable[[InputContext], Any], layout: InputLayout, options: InputOptions
) -> DistributedDataset:
    """Returns what `strategy.distribute_datasets_from_function` returns."""
    if options.experimental_place_dataset_on_device:
        if options.experimental_replication_mode is not InputReplicationMode.PER_REPLICA:
            raise ValueError(
                "`experimental_place_dataset_on_device` needs a data set for each replica: set "
                "experimental_replication_mode=InputReplicationMode.PER_REPLICA."
            )
        if options.experimental_fetch_to_device:
            raise ValueError(
                "`experimental_place_dataset_on_device` makes the batches on the device, so there "
                "is nothing to fetch: set experimental_fetch_to_device=False."
            )
        options = dataclasses.replace(options, experimental_fetch_to_device=True)
    return FromFunctionDataset(dataset_fn, layout, options)
