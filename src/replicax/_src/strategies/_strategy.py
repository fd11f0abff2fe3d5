"""`Strategy`: what users call. The work is done by its `StrategyExtended`."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from replicax._src import _html, _old_names, _tree
from replicax._src._errors import show_users_part
from replicax._src._typing import PyTree
from replicax._src.collectives import ReduceOpLike, as_reduce_op
from replicax._src.context import StrategyScope, require_cross_replica, thread_state
from replicax._src.data import Dataset
from replicax._src.data.distributed import (
    DistributedDataset,
    InputContext,
    InputOptions,
    as_input_options,
)
from replicax._src.strategies import _display, _logical_devices, _reductions
from replicax._src.strategies._arguments import USE_ALL_REDUCE, checked_call, require_plain_function
from replicax._src.strategies._extended import StrategyExtended
from replicax._src.strategies._value_context import ValueContext
from replicax._src.values import check_replica_count, is_leaf, per_replica_type, regroup

T = TypeVar("T")

_serials = itertools.count()

RunOptions = collections.namedtuple(
    "RunOptions",
    [
        "experimental_enable_dynamic_batch_size",
        "experimental_bucketizing_dynamic_shape",
        "experimental_xla_options",
    ],
    defaults=(True, False, None),
)
RunOptions.__doc__ = """Options of `strategy.run`, as in TensorFlow, where they concern TPUs.

Shapes may always change from step to step here, so none of them changes a result."""


class Strategy:
    """How state and computation are distributed over devices.

    Make one of the concrete strategies; create variables in its `scope()`; write the training step
    for one replica and call it with `run`; combine the results with `reduce`.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     v = rx.Variable(1.0, aggregation=rx.VariableAggregation.SUM)
    >>> def replica_fn(x):
    ...     v.assign_add(x)
    ...     return x * 2
    >>> per_replica = strategy.experimental_distribute_values_from_function(
    ...     lambda ctx: ctx.replica_id_in_sync_group + 1.0)
    >>> result = strategy.run(replica_fn, args=(per_replica,))
    >>> strategy.reduce("SUM", result, axis=None), v.numpy()
    (Array(6., dtype=float32), array(4., dtype=float32))

    Args:
      extended: a `StrategyExtended`, which holds all the logic.
    """

    def __init__(self, extended: StrategyExtended):
        if not isinstance(extended, StrategyExtended):
            raise TypeError(
                f"Strategy takes an instance of a rx.distribute.StrategyExtended subclass; got "
                f"{extended!r}. To just use one, make rx.distribute.MirroredStrategy()."
            )
        self._extended = extended
        self._serial = next(_serials)  # unlike its id, never given again
        if extended._strategy is None:
            extended._strategy = self

    @property
    def extended(self) -> StrategyExtended:
        """The lower-level object, for library code."""
        return self._extended

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas gradients are aggregated over."""
        return self._extended._num_replicas_in_sync

    @property
    def cluster_resolver(self) -> Any:
        """What describes the cluster; None for strategies of one process."""
        return getattr(self._extended, "_cluster_resolver", None)

    def scope(self) -> StrategyScope:
        """Context manager: makes this strategy current, in cross-replica context.

        Variables made inside are distributed as the strategy does it. They remember the strategy,
        and can be used outside of the scope too.

        >>> import replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     rx.distribute.get_strategy() is strategy
        True
        """
        return self._extended._new_scope()

    def run(
        self,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> T:
        """Calls `fn` on each replica and merges what they return.

        >>> import replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def fn(x):
        ...     return x * rx.distribute.get_replica_context().replica_id_in_sync_group
        >>> strategy.run(fn, args=(10,))
        PerReplica:{
          0: 0,
          1: 10
        }

        Args:
          fn: the replica function. It may call `rx.distribute.get_replica_context()`.
          args: its positional arguments; each replica gets its component of distributed values.
          kwargs: its keyword arguments, likewise.
          options: `RunOptions`.

        Returns:
          A structure like the one that `fn` returns. A leaf is what all replicas returned, if that
          was the same object, else a `PerReplica`. With one replica, what it returned.
        """
        args, kwargs = checked_call(fn, args, kwargs, "strategy.run")
        if options is not None and not isinstance(options, RunOptions):
            raise TypeError(
                f"strategy.run: `options` must be a rx.distribute.RunOptions; got {options!r}."
            )
        require_cross_replica(
            self, "strategy.run", "Inside a replica function, call the function itself."
        )
        frames = thread_state.frames
        depth = len(frames)
        try:
            with self.scope():
                return self._extended._call_for_each_replica(fn, args, kwargs)
        except BaseException as error:
            _logical_devices.explain(error)
            show_users_part(error)
            raise
        finally:
            del frames[depth:]  # Ctrl-C may come on the way into a context, or out of it

    def experimental_run_v2(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Returns what `run` does, of which this is the older name."""
        _old_names.warn_of("Strategy.experimental_run_v2")
        return self.run(fn, args, kwargs, options)

    def reduce(
        self, reduce_op: ReduceOpLike, value: PyTree, axis: int | Sequence[int] | None
    ) -> Any:
        """Combines a per-replica value into one array.

        >>> import numpy as np, replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> losses = strategy.experimental_distribute_values_from_function(
        ...     lambda context: np.float32(context.replica_id_in_sync_group)
        ... )
        >>> strategy.reduce("MEAN", losses, axis=None)
        Array(0.5, dtype=float32)

        Args:
          reduce_op: `rx.distribute.ReduceOp.SUM` or `MEAN`, or the name. A SUM has the dtype of
            its values, so that sums of small integers wrap around; a MEAN of integers is a float.
          value: a per-replica value, or a nested structure of them.
          axis: None to combine over the replicas only; a dimension (or a tuple of them) to combine
            over it as well, typically 0 for the batch. A MEAN then divides by the true number of
            items, also when the replicas have different numbers of rows.

        Returns:
          An array, or a structure of arrays like `value`.
        """
        require_cross_replica(self, "strategy.reduce", USE_ALL_REDUCE)
        op = as_reduce_op(reduce_op)
        check_replica_count(value, self._extended._local_replicas, "The value of strategy.reduce")
        leaves, rebuild = _tree.flatten(value, is_leaf)
        with self.scope():
            return rebuild(_reductions.reduced(self._extended, op, leaves, axis))

    def gather(self, value: PyTree, axis: int) -> Any:
        """Returns the replicas' arrays, joined along `axis` in replica order, as one array.

        >>> import numpy as np, replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> values = strategy.experimental_distribute_values_from_function(
        ...     lambda context: np.arange(context.replica_id_in_sync_group + 1)
        ... )
        >>> strategy.gather(values, axis=0)
        Array([0, 0, 1], dtype=int32)

        Args:
          value: a per-replica value, or a nested structure of them; sizes may differ along `axis`.
          axis: the dimension to join along.
        """
        require_cross_replica(
            self,
            "strategy.gather",
            "Inside strategy.run use rx.distribute.get_replica_context().all_gather(x, axis=0).",
        )

        check_replica_count(value, self._extended._local_replicas, "The value of strategy.gather")

        with self.scope():
            return _tree.map_structure(
                lambda leaf: _reductions.joined(self._extended, leaf, axis), value, is_leaf
            )

    def experimental_local_results(self, value: PyTree) -> tuple[Any, ...]:
        """Returns the components of `value` on this process; `(value,)` for anything else.

        A structure that holds distributed values gives one structure per replica.

        >>> import replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> strategy.experimental_local_results(strategy.run(lambda: "same"))
        ('same',)
        """
        return self._extended._local_results(value)

    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], Any]
    ) -> Any:
        """Returns a per-replica value; a function is called for each replica of this process.

        Args:
          value_fn: takes a `ValueContext` (`replica_id_in_sync_group`, `num_replicas_in_sync`) and
            returns the replica's value, or a structure of values.
        """
        if not callable(value_fn):
            raise TypeError(
                "experimental_distribute_values_from_function takes a function of a ValueContext, "
                f"for example lambda ctx: data[ctx.replica_id_in_sync_group]; got {value_fn!r}."
            )
        require_plain_function(value_fn, "experimental_distribute_values_from_function")
        require_cross_replica(
            self,
            "strategy.experimental_distribute_values_from_function",
            "Inside a replica function, make the value itself.",
        )
        devices = self._extended._replica_devices
        first, count = self._extended._first_replica, self.num_replicas_in_sync
        made = [value_fn(ValueContext(first + index, count)) for index in range(len(devices))]
        value = regroup(made, per_replica_type(devices), always_wrap=True, what="were given")
        self._extended._sync_group.note_unevenness(value)
        return value

    # ------------------------------------------------------------------ logical devices

    def experimental_split_to_logical_devices(
        self, tensor: object, partition_dimensions: Sequence[int]
    ) -> Any:
        """Returns the same tensor, split over the logical devices of its replica.

        Work on it is divided over them. Call it in a replica function, compiled or not, also in one
        that is differentiated. In a branch that not all replicas take (a `lax.cond` on their own
        data), the devices may wait for each other forever: use `jnp.where` there.

        >>> import jax.numpy as jnp, replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(
        ...     ["CPU:0", "CPU:1", "CPU:2", "CPU:3"], logical_devices_per_replica=4)
        >>> image = strategy.experimental_split_to_logical_devices(
        ...     jnp.zeros((1, 8, 8, 3)), [1, 2, 2, 1])
        >>> image.addressable_shards[0].data.shape
        (1, 4, 4, 3)

        Args:
          tensor: an array.
          partition_dimensions: into how many parts each dimension is split. The product must be the
            number of logical devices of a replica, and sizes must be divisible.
        """
        return _logical_devices.split(self._extended._replica_devices, tensor, partition_dimensions)

    def experimental_replicate_to_logical_devices(self, tensor: object) -> Any:
        """Returns the same tensor, whole on every logical device of its replica.

        Args:
          tensor: an array.
        """
        return _logical_devices.replicate(self._extended._replica_devices, tensor)

    def experimental_assign_to_logical_device(self, tensor: object, logical_device_id: int) -> Any:
        """Returns the same tensor, on one logical device of its replica.

        Eagerly, operations on it run there. A compiled program is one for all logical devices;
        a result of `run` that is assigned to one of them is then on that device alone.

        Args:
          tensor: an array.
          logical_device_id: the number of the logical device, from 0.
        """
        return _logical_devices.assign(self._extended._replica_devices, tensor, logical_device_id)

    # ------------------------------------------------------------------ data sets

    def experimental_distribute_dataset(
        self, dataset: object, options: InputOptions | None = None
    ) -> DistributedDataset:
        """Returns a data set of which every replica gets its share of each batch.

        >>> import replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = rx.data.Dataset.from_tensor_slices([5., 6., 7., 8.]).batch(2)
        >>> for batch in strategy.experimental_distribute_dataset(dataset):
        ...     print(strategy.experimental_local_results(batch))
        (Array([5.], dtype=float32), Array([6.], dtype=float32))
        (Array([7.], dtype=float32), Array([8.], dtype=float32))

        Args:
          dataset: batched by the *global* batch size: an `rx.data.Dataset`, a data set of
            `tf.data`, Grain, torch or Hugging Face, or any iterable of batches.
          options: `rx.distribute.InputOptions`.

        Returns:
          A `DistributedDataset`. How workers share the data is decided by the
          `auto_shard_policy` of `rx.data.Options`; printing it shows what was decided and why.
        """
        self._check_input_context("strategy.experimental_distribute_dataset")
        return self._extended._experimental_distribute_dataset(dataset, as_input_options(options))

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Returns a data set that a function makes for each worker; replicas take turns at batches.

        >>> import replicax as rx
        >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def dataset_fn(context):
        ...     return rx.data.Dataset.range(4).batch(context.get_per_replica_batch_size(4))
        >>> dataset = strategy.distribute_datasets_from_function(dataset_fn)
        >>> [strategy.gather(batch, axis=0) for batch in dataset]
        [Array([0, 1, 2, 3], dtype=int32)]

        Args:
          dataset_fn: takes an `rx.distribute.InputContext` and returns a data set that is batched
            by the batch size of *one replica*: `input_context.get_per_replica_batch_size(...)`.
            It does its own sharding: `dataset.shard(input_context.num_input_pipelines,
            input_context.input_pipeline_id)`.
          options: `rx.distribute.InputOptions`.
        """
        self._check_input_context("strategy.distribute_datasets_from_function")
        if not callable(dataset_fn):
            raise TypeError(
                "distribute_datasets_from_function takes a function that takes an InputContext "
                f"and returns a data set; got {dataset_fn!r}. A data set itself goes to "
                "experimental_distribute_dataset."
            )
        return self._extended._distribute_datasets_from_function(
            dataset_fn, as_input_options(options)
        )

    def experimental_distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Returns what `distribute_datasets_from_function` does; this is its older name."""
        _old_names.warn_of("Strategy.experimental_distribute_datasets_from_function")
        return self.distribute_datasets_from_function(dataset_fn, options)

    def experimental_make_numpy_dataset(self, numpy_input: PyTree) -> Dataset:
        """Returns a data set of the rows of arrays: the older name of `Dataset.from_tensor_slices`.

        Args:
          numpy_input: a structure of arrays; lists of arrays are stacked.
        """
        _old_names.warn_of("Strategy.experimental_make_numpy_dataset")
        return Dataset.from_tensor_slices(numpy_input)

    def _check_input_context(self, what: str) -> None:
        require_cross_replica(
            self, what, "Make the data set before strategy.run, and pass its batches."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Strategy:
        return self  # a strategy is its devices; models that hold one can still be copied

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled, because it belongs to devices of this "
            "process. Make a new one in the other process."
        )

    def _repr_html_(self) -> str:
        """For notebooks: the replicas and their devices."""
        title = f"{type(self).__name__}: {self.num_replicas_in_sync} replica(s) in sync"
        rows = _display.replica_rows(self._extended)
        return _html.table(title, ("replica", "device", "kind", "holds"), rows)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {_display.device_names(self._extended)}>"
