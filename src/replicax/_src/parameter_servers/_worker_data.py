"""Data sets of workers: each has the data set that a function makes there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from replicax._src.data.distributed import InputContext, InputOptions
from replicax._src.strategies import Strategy


@final
class DatasetOfWorkers:
    """A distributed data set before it is on a worker.

    What the strategy's `experimental_distribute_dataset` and `distribute_datasets_from_function`
    return in the program of the coordinator; for `coordinator.create_per_worker_dataset`.
    """

    def __init__(self, distribute: Callable[[], Any]):
        self._distribute = distribute

    def make(self) -> Any:
        """Makes it, on a worker."""
        return self._distribute()

    def __iter__(self) -> Any:
        raise TypeError(
            "A distributed data set of a ParameterServerStrategy is made on the workers. Give it "
            "to coordinator.create_per_worker_dataset(...), and pass an iterator over that to the "
            "functions that are scheduled."
        )


def of_dataset(strategy: Strategy, dataset: object, options: InputOptions) -> DatasetOfWorkers:
    """Returns a data set that is distributed on each worker."""
    return DatasetOfWorkers(lambda: strategy.experimental_distribute_dataset(dataset, options))


def of_function(
    strategy: Strategy, dataset_fn: Callable[[InputContext], Any], options: InputOptions
) -> DatasetOfWorkers:
    """Returns a data set that a function makes on each worker."""
    return DatasetOfWorkers(lambda: strategy.distribute_datasets_from_function(dataset_fn, options))
