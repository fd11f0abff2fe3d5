"""The iterators of TensorFlow 1: with `initialize()` and `get_next()`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Self, final

import jax

from replicax._src import _old_names
from replicax._src._typing import PyTree
from replicax._src.data import INFINITE, Dataset, Optional, refuse_in_trace
from replicax._src.data.distributed import DistributedIterator, InputContext
from replicax._src.strategies import Strategy


class InputIterator:
    """What `make_dataset_iterator` and `make_input_fn_iterator` of a strategy return.

    It can be read at once, and `initialize()` begins again. Pass it to `strategy.experimental_run`,
    or what `get_next()` gives to `strategy.run`.
    """

    def __init__(self, begin: Callable[[], DistributedIterator | ReturnedValues]):
        self._begin = begin
        self._iterator = begin()

    def initialize(self) -> None:
        """Begins again. There are no operations to run: it has happened when this returns."""
        _old_names.warn_of("InputIterator.initialize")
        self._iterator.close()
        self._iterator = self._begin()

    @property
    def initializer(self) -> None:
        """As `initialize()`."""
        return self.initialize()

    def get_next(self) -> Any:
        """Returns the next value for the replicas; `rx.errors.OutOfRangeError` at the end."""
        return self._iterator.get_next()

    def get_next_as_optional(self) -> Optional:
        """Returns the same as an `rx.experimental.Optional`, without a value at the end."""
        return self._iterator.get_next_as_optional()

    @property
    def element_spec(self) -> Any:
        """What the values look like."""
        return self._iterator.element_spec

    @property
    def output_types(self) -> Any:
        """The dtypes of a replica's value."""
        _old_names.warn_of("InputIterator.output_types")
        return jax.tree.map(lambda spec: spec.dtype, self.element_spec)

    @property
    def output_shapes(self) -> Any:
        """The shapes of a replica's value, as `rx.TensorSpec` has them."""
        _old_names.warn_of("InputIterator.output_shapes")
        return jax.tree.map(lambda spec: spec.shape, self.element_spec)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)


@final
class ReturnedValues:
    """What a function returns that is called once for each replica, as an iterator."""

    def __init__(self, strategy: Strategy, function: Callable[[], Any]):
        self._strategy = strategy
        self._function = function

    def get_next(self) -> Any:
        refuse_in_trace()  # or it would be called once, for all steps
        made = self._strategy.experimental_distribute_values_from_function(
            lambda context: self._function()
        )
        if len(self._strategy.extended.worker_devices) > 1:
            return made
        return self._strategy.experimental_local_results(made)[0]  # as a data set gives it

    __next__ = get_next

    def get_next_as_optional(self) -> Optional:
        return Optional.from_value(self.get_next())

    @property
    def element_spec(self) -> Any:
        raise TypeError(
            "There is no element_spec: what the function returns is known when it is called."
        )

    def close(self) -> None:
        pass


def dataset_iterator(strategy: Strategy, dataset: Iterable[Any]) -> InputIterator:
    """Returns the iterator over shares of the batches of `dataset`."""
    inputs = strategy.experimental_distribute_dataset(dataset)
    return InputIterator(lambda: iter(inputs))


def input_fn_iterator(strategy: Strategy, input_fn: Callable[[InputContext], Any]) -> InputIterator:
    """Returns the iterator over what `input_fn` makes: a data set, or a function."""
    replicas = len(strategy.extended.worker_devices)  # of this worker
    functions: list[Callable[[], Any]] = []

    @functools.wraps(input_fn)  # errors name the user's function
    def dataset_fn(input_context: InputContext) -> Any:
        made = input_fn(input_context)
        if callable(made) and not isinstance(made, Iterable):
            functions.append(made)
            return Dataset.range(0)  # of which nothing is read
        return None if made is None else whole_steps(Dataset.from_source(made), replicas)

    inputs = strategy.distribute_datasets_from_function(dataset_fn)
    if functions:
        return InputIterator(lambda: ReturnedValues(strategy, functions[0]))
    return InputIterator(lambda: iter(inputs))


def whole_steps(batches: Dataset, replicas: int) -> Dataset:
    """Returns the batches without those at the end that are not enough for all replicas.

    So it is in TensorFlow's iterators; a distributed data set hands them to the first replicas.
    """
    count = batches.cardinality()
    if replicas == 1 or count == INFINITE:
        return batches
    if count >= 0:
        return batches.take(count // replicas * replicas)
    return batches.window(replicas, drop_remainder=True).flat_map(_joined)


def _joined(*windows: PyTree) -> Dataset:
    """Returns the elements of a window, which has a data set for each part of the elements."""
    if len(windows) == 1 and isinstance(windows[0], Dataset):
        return windows[0]
    return Dataset.zip(*windows)
