"""`rx.compat.v1.distribute.Strategy`: the current one, with the methods of TensorFlow 1.

And `get_loss_reduction`, which says how the losses of its replicas are combined.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from replicax._src import _old_names, strategies
from replicax._src._typing import PyTree, override
from replicax._src.collectives import ReduceOp
from replicax._src.compat._input_iterator import InputIterator, dataset_iterator, input_fn_iterator
from replicax._src.compat._session_config import Config, SessionConfig, copied
from replicax._src.data import Dataset
from replicax._src.data.distributed import InputContext, InputReplicationMode
from replicax._src.variable import Variable


class Strategy(strategies.Strategy):
    """`rx.distribute.Strategy` with the methods that programs for TensorFlow 1 call.

    >>> import replicax as rx
    >>> strategy = rx.compat.v1.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> value = strategy.run(lambda: rx.constant(3.0))
    >>> strategy.reduce(rx.compat.v1.distribute.ReduceOp.SUM, value)
    Array(6., dtype=float32)

    Args:
      extended: a `StrategyExtended`, which holds all the logic.
    """

    def experimental_run(
        self, fn: Callable[..., Any], input_iterator: InputIterator | None = None
    ) -> Any:
        """Calls `fn` on each replica with its part of the next value of `input_iterator`.

        Args:
          fn: the replica function; without an iterator it takes no arguments.
          input_iterator: what `make_dataset_iterator` or `make_input_fn_iterator` returned, or any
            object with a `get_next()`.

        Returns:
          What the replicas return, merged as by `run`.

        Raises:
          rx.errors.OutOfRangeError: there is no more data.
        """
        _old_names.warn_of("Strategy.experimental_run")
        if input_iterator is not None and not hasattr(input_iterator, "get_next"):
            raise TypeError(
                "experimental_run takes an iterator with a get_next(), for example that of "
                f"strategy.make_dataset_iterator(dataset); got {input_iterator!r}. Values go to "
                "strategy.run(fn, args=(value,))."
            )
        with self.scope():
            args = () if input_iterator is None else (input_iterator.get_next(),)
        return self.run(fn, args=args)

    def make_dataset_iterator(self, dataset: Iterable[Any]) -> InputIterator:
        """Returns an iterator over `dataset`, of which every replica gets its share of each batch.

        Args:
          dataset: batched by the *global* batch size.
        """
        _old_names.warn_of("Strategy.make_dataset_iterator")
        return dataset_iterator(self, dataset)

    def make_input_fn_iterator(
        self,
        input_fn: Callable[[InputContext], Any],
        replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER,
    ) -> InputIterator:
        """Returns an iterator over what `input_fn` makes; replicas take successive batches of it.

        Batches at the end that are not enough for all replicas are left out.

        Args:
          input_fn: takes an `InputContext` and returns a data set that is batched by the batch
            size of *one replica*, or a function without arguments that returns a replica's value.
          replication_mode: `InputReplicationMode.PER_WORKER`; there is no other here.
        """
        _old_names.warn_of("Strategy.make_input_fn_iterator")
        if replication_mode is not InputReplicationMode.PER_WORKER:
            raise ValueError(
                "make_input_fn_iterator calls `input_fn` once for each worker, so "
                f"`replication_mode` must be InputReplicationMode.PER_WORKER; got "
                f"{replication_mode!r}. For a data set for each replica write "
                "strategy.distribute_datasets_from_function(input_fn, rx.distribute.InputOptions("
                "experimental_replication_mode=rx.distribute.InputReplicationMode.PER_REPLICA))."
            )
        if not callable(input_fn):
            raise TypeError(
                "make_input_fn_iterator takes a function that takes an InputContext and returns a "
                f"data set; got {input_fn!r}. A data set itself goes to make_dataset_iterator."
            )
        return input_fn_iterator(self, input_fn)

    @override
    def experimental_make_numpy_dataset(
        self, numpy_input: PyTree, session: object = None
    ) -> Dataset:
        """Returns a data set of the rows of arrays.

        Args:
          numpy_input: a structure of arrays; lists of arrays are stacked.
          session: kept for ported code.
        """
        return super().experimental_make_numpy_dataset(numpy_input)

    @override
    def reduce(
        self, reduce_op: ReduceOp | str, value: PyTree, axis: int | tuple[int, ...] | None = None
    ) -> Any:
        """Returns a per-replica value combined into one array; by default over the replicas only.

        Args:
          reduce_op: `ReduceOp.SUM` or `MEAN`, or the name.
          value: a per-replica value, or a nested structure of them.
          axis: the dimension to combine over as well, typically 0 for the batch; None for none.
        """
        return super().reduce(reduce_op, value, axis)

    def update_config_proto(self, config_proto: Config) -> Config:
        """Returns a copy of `config_proto` with what TensorFlow's strategy of this name sets.

        Nothing here reads it.

        Args:
          config_proto: a `tf.compat.v1.ConfigProto`, or an `rx.compat.v1.ConfigProto`.
        """
        _old_names.warn_of("Strategy.update_config_proto")
        config: Any = copied(config_proto)
        self._adapt(config)
        return config

    def _adapt(self, config: SessionConfig) -> None:
        """Sets in a configuration what the strategy needs."""

    def configure(
        self,
        session_config: Any = None,
        cluster_spec: object = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Kept for ported code: a strategy is told of its cluster when it is made.

        Args:
          session_config: is changed to what `update_config_proto` returns.
          cluster_spec: must be None, as the following.
          task_type: the kind of this task.
          task_id: its number.
        """
        _old_names.warn_of("Strategy.configure")
        if (cluster_spec, task_type, task_id) != (None, None, None):
            raise ValueError(
                "A strategy cannot be told of a cluster after it was made. Write "
                "rx.distribute.MultiWorkerMirroredStrategy(cluster_resolver), with "
                "rx.distribute.cluster_resolver.SimpleClusterResolver(cluster_spec, "
                f"task_type={task_type!r}, task_id={task_id!r})."
            )
        if session_config is not None:
            self._adapt(session_config)

    def colocate_vars_with(self, colocate_with_variable: Variable) -> AbstractContextManager[None]:
        """Returns `extended.colocate_vars_with(...)`, of which this is the older place.

        Args:
          colocate_with_variable: a variable of this strategy.
        """
        _old_names.warn_of("Strategy.colocate_vars_with")
        return self.extended.colocate_vars_with(colocate_with_variable)

    def unwrap(self, value: PyTree) -> tuple[Any, ...]:
        """Returns `experimental_local_results(value)`, of which this is the older name."""
        _old_names.warn_of("Strategy.unwrap")
        return self.experimental_local_results(value)

    def group(self, value: PyTree, name: str | None = None) -> Any:
        """Returns None, or the only value. Kept for ported code: nothing is left to be done."""
        _old_names.warn_of("Strategy.group")
        results = self.experimental_local_results(value)
        return results[0] if len(results) == 1 else None


_are_averaged = contextvars.ContextVar("losses_are_averaged", default=False)


def get_loss_reduction() -> ReduceOp:
    """Returns `ReduceOp.SUM`: gradients are summed, so a loss is divided by the global batch size.

    In the `model_fn` of an `Estimator` it is MEAN, as the estimator averages over the replicas.
    """
    _old_names.warn_of("rx.compat.v1.distribute.get_loss_reduction")
    return ReduceOp.MEAN if _are_averaged.get() else ReduceOp.SUM


@contextlib.contextmanager
def averaged_losses() -> Iterator[None]:
    """Inside, losses are the means over the rows of one replica."""
    token = _are_averaged.set(True)
    try:
        yield
    finally:
        _are_averaged.reset(token)
