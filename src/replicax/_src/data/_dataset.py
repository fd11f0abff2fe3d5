"""`Dataset`: the operations of `tf.data`, as methods that put nodes together."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, SupportsIndex

import numpy as np

from replicax._src._local_path import absolute_path
from replicax._src._typing import DTypeLike, PyTree, override
from replicax._src.context import has_strategy, let_libraries_join
from replicax._src.data._arguments import (
    as_count,
    as_function,
    as_range,
    as_seed,
    as_shard,
    as_signature,
    as_sizes,
    flat_padding,
)
from replicax._src.data._batching import Batch, PaddedBatch, Rebatch, Unbatch, Window
from replicax._src.data._caching import Cache, Prefetch, WithOptions, options_of
from replicax._src.data._choosing import (
    Choose,
    CountUp,
    RandomNumbers,
    sampled,
)
from replicax._src.data._combining import Concatenate, Enumerate, Interleave, Zip
from replicax._src.data._elements import Element, ElementSpec, as_element
from replicax._src.data._iterator import DatasetIterator, refuse_in_trace
from replicax._src.data._mapping import Filter, Map, MapMode
from replicax._src.data._node import INFINITE, UNKNOWN, Node
from replicax._src.data._options import AUTOTUNE, Options
from replicax._src.data._ordering import Repeat, Shard, Shuffle, Skip, Take
from replicax._src.data._rarer_operations import RarerOperations
from replicax._src.data._report import benchmark, html_tree, one_line, text_tree
from replicax._src.data._run import Iterations
from replicax._src.data._saved import read_index
from replicax._src.data._saving import ReaderFunction, loaded
from replicax._src.data._sources import (
    FileNames,
    Numbers,
    OneElement,
    PythonIterator,
    TensorSlices,
    names_node,
    names_that_match,
    start_generator,
)
from replicax._src.data.foreign import foreign_node


class Dataset(RarerOperations):
    """A sequence of elements, described by how to make them; nothing runs before it is iterated.

    The operations are those of `tf.data.Dataset`. Elements are tuples and dicts of NumPy arrays;
    `strategy.experimental_distribute_dataset` puts them on devices.

    >>> import replicax as rx
    >>> dataset = rx.data.Dataset.range(5).map(lambda x: x * x).batch(2)
    >>> list(dataset)
    [array([0, 1]), array([4, 9]), array([16])]
    """

    def __init__(self, node: Node):
        if not isinstance(node, Node):
            raise TypeError(
                "A data set is made by a function such as rx.data.Dataset.from_tensor_slices("
                "arrays), not by Dataset(...)."
            )
        self._data_set_node = node
        self._iterations = Iterations()
        # Keras is to know data sets, also where no scope is entered. Threads that read ahead may
        # find a library that is half imported.
        if not has_strategy() and threading.current_thread() is threading.main_thread():
            let_libraries_join()

    # ------------------------------------------------------------------ sources

    @staticmethod
    def from_tensor_slices(tensors: Element, name: str | None = None) -> Dataset:
        """Returns the rows of an array, or of a structure of arrays with as many rows.

        The arrays are not copied (also not those of `np.memmap`): do not change them meanwhile.
        """
        return Dataset(TensorSlices.of(tensors))

    @staticmethod
    def from_tensors(tensors: Element, name: str | None = None) -> Dataset:
        """Returns a data set of one element: `tensors`."""
        return Dataset(OneElement.of(tensors))

    @staticmethod
    def range(
        *args: SupportsIndex, output_type: DTypeLike = np.int64, name: str | None = None
    ) -> Dataset:
        """Returns the numbers of `range(*args)`, as `int64` unless `output_type` says otherwise."""
        return Dataset(Numbers(as_range(args), np.dtype(output_type)))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: PyTree = None,
        output_shapes: PyTree = None,
        args: Iterable[Any] | None = None,
        output_signature: ElementSpec = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns what the iterator of `generator()` yields; it is called for each iteration.

        Args:
          generator: a function that returns an iterable.
          output_types: the older way to say what the elements look like: a structure of dtypes,
          output_shapes: and one of shapes.
          args: arguments for `generator`.
          output_signature: a structure of `rx.TensorSpec`. Elements that do not fit are refused.
            Without it, the first elements show what they look like.
        """
        if not callable(generator):
            raise TypeError(
                "from_generator takes a function that returns an iterator, so that the data can "
                f"be read more than once; got {generator!r}. For a generator g(): "
                "from_generator(g), without the parentheses."
            )
        arguments = () if args is None else tuple(args)
        signature = as_signature(output_types, output_shapes, output_signature)
        source = f"from_generator({getattr(generator, '__qualname__', repr(generator))})"
        make = functools.partial(start_generator, generator, arguments, source)
        return Dataset(PythonIterator(make, signature, UNKNOWN, source))

    @staticmethod
    def from_source(source: object) -> Dataset:
        """Returns the elements of a data set of Grain, torch, Hugging Face, TFDS or `tf.data`.

        Also those of any iterable. What can be read by index is: `shuffle` and sharding then cost
        nothing.
        """
        return Dataset(foreign_node(source))

    @staticmethod
    def list_files(
        file_pattern: FileNames,
        shuffle: bool | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns the names of the files that match patterns, shuffled unless told not to."""
        names = names_that_match(file_pattern)
        files = Dataset(names_node(names))
        return files.shuffle(len(names), seed) if shuffle or shuffle is None else files

    @staticmethod
    def zip(*args: PyTree, datasets: PyTree = None, name: str | None = None) -> Dataset:
        """Returns elements of data sets side by side: `zip(a, b)`, or `zip({"x": a})`."""
        if datasets is not None:
            args = (datasets,)
        if not args:
            raise TypeError("Dataset.zip takes data sets: zip(a, b), or zip((a, b)).")
        return Dataset(Zip.of(args[0] if len(args) == 1 else args))

    @staticmethod
    def random(
        seed: int | None = None,
        rerandomize_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns random integers from 0 to 2**32 - 1, without end.

        Args:
          seed: makes them the same in every run of the program.
          rerandomize_each_iteration: whether each iteration has others.
        """
        return Dataset(RandomNumbers(as_seed(seed, "random"), bool(rerandomize_each_iteration)))

    @staticmethod
    def counter(
        start: float = 0, step: float = 1, dtype: DTypeLike = np.int64, name: str | None = None
    ) -> Dataset:
        """Returns `start`, `start + step`, `start + 2 * step`, and so on, without end.

        >>> import replicax as rx
        >>> list(rx.data.Dataset.counter(start=2, step=5).take(3).as_numpy_iterator())
        [np.int64(2), np.int64(7), np.int64(12)]
        """
        return Dataset(CountUp.of(start, step, dtype))

    @staticmethod
    def choose_from_datasets(
        datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = True
    ) -> Dataset:
        """Returns the next element of the data set that `choice_dataset` names, again and again.

        >>> import replicax as rx
        >>> evens, odds = rx.data.Dataset.range(0, 8, 2), rx.data.Dataset.range(1, 8, 2)
        >>> order = rx.data.Dataset.from_tensor_slices(np.array([0, 0, 1, 0, 1]))
        >>> [int(x) for x in rx.data.Dataset.choose_from_datasets([evens, odds], order)]
        [0, 2, 1, 4, 3]

        Args:
          datasets: with elements that look alike.
          choice_dataset: of numbers, int64: which of `datasets` comes next, counted from 0.
          stop_on_empty_dataset: whether to end where a data set is named that has no more
            elements; otherwise it is passed over.
        """
        return Dataset(Choose.of(datasets, choice_dataset, bool(stop_on_empty_dataset)))

    @staticmethod
    def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Sequence[float] | np.ndarray | Dataset | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
        """Returns the next element of a data set that is drawn at random, again and again.

        Args:
          datasets: with elements that look alike.
          weights: how often each is drawn, or a data set of such weights, an element for each
            draw; equally often by default.
          seed: makes the draws the same in every run of the program.
          stop_on_empty_dataset: whether to end where a data set is drawn that has no more
            elements; otherwise it is passed over. With it, the shares are those of the weights.
          rerandomize_each_iteration: whether each iteration has other draws.
        """
        chosen = as_seed(seed, "sample_from_datasets")
        again = bool(rerandomize_each_iteration)
        return Dataset(sampled(datasets, weights, chosen, again, bool(stop_on_empty_dataset)))

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        element_spec: ElementSpec = None,
        compression: str | None = None,
        reader_func: ReaderFunction | None = None,
        wait: bool = False,
    ) -> Dataset:
        """Returns what `save` wrote into a folder.

        Args:
          path: of the folder.
          element_spec: what the elements look like; needed where they have containers of a class
            of the program. Others are refused.
          compression: kept for ported code: the files say it themselves, as `wait` does.
          reader_func: gets a data set of data sets, one for each shard, and returns one of
            elements: `lambda shards: shards.interleave(lambda shard: shard)`. By default, one
            shard after the other.
        """
        folder = absolute_path(path, "path")
        return loaded(read_index(folder), element_spec, reader_func, Dataset)

    # ------------------------------------------------------------------ functions of elements

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
        *,
        vectorized: bool = False,
        on_device: bool = False,
    ) -> Dataset:
        """Returns what a function makes of each element; a tuple's items are several arguments.

        Args:
          map_func: gets NumPy arrays, and may use NumPy, JAX or anything else. Not called for
            elements that this process does not use.
          num_parallel_calls: how many threads call it at a time: for functions that wait, or that
            release Python's lock. `AUTOTUNE` is one.
          deterministic: kept for ported code, as the next three: the order is always kept.
          vectorized: the function gets many elements at once, as the rows of arrays, and returns
            as many rows. Much faster, where it can be written so.
          on_device: the function runs under `jax.jit` on the replicas' devices, after the data
            was placed there. At the end of a pipeline, or before a last `batch`.
        """
        map_func = as_function(map_func, "map()", "lambda x: ...")
        if vectorized and on_device:
            raise ValueError(
                "map() takes either vectorized=True (on the host, many elements at once) or "
                "on_device=True (under jax.jit), not both."
            )
        parallel = 1
        if num_parallel_calls is not None and num_parallel_calls != AUTOTUNE:
            parallel = as_count(num_parallel_calls, "map(num_parallel_calls=...)", 1)
        mode = MapMode.VECTORIZED if vectorized else MapMode.PER_ELEMENT
        if on_device:
            mode = MapMode.ON_DEVICE
        return Dataset(Map(self._data_set_node, map_func, mode, parallel))

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Returns the elements for which `predicate` returns True."""
        predicate = as_function(predicate, "filter()", "lambda x: x > 0")
        return Dataset(Filter(self._data_set_node, predicate))

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Dataset:
        """Returns the elements of the data sets that `map_func` makes of each element, in turn."""
        example = "lambda x: rx.data.Dataset.from_tensor_slices(x)"
        map_func = as_function(map_func, "flat_map()", example)
        return Dataset(Interleave(self._data_set_node, map_func, 1, 1, "flat_map()"))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns what `flat_map` does, from `cycle_length` data sets by turns of `block_length`.

        `cycle_length` is 16 by default (in TensorFlow it depends on the machine).
        """
        map_func = as_function(map_func, "interleave()", "rx.data.TFRecordDataset")
        cycle = 16 if cycle_length in (None, AUTOTUNE) else cycle_length
        block = 1 if block_length is None else block_length
        return Dataset(
            Interleave(
                self._data_set_node,
                map_func,
                as_count(cycle, "interleave(cycle_length=...)", 1),
                as_count(block, "interleave(block_length=...)", 1),
                "interleave()",
            )
        )

    # ------------------------------------------------------------------ batches

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns `batch_size` elements as one; the last batch may be smaller, or is dropped."""
        size = as_count(batch_size, "batch()", 1)
        return Dataset(Batch(self._data_set_node, size, bool(drop_remainder)))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: PyTree = None,
        padding_values: PyTree = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Works as `batch`, for elements of different lengths: all are filled up to one shape.

        Args:
          batch_size: how many elements.
          padded_shapes: a structure of shapes; None or -1 in one stands for the longest.
          padding_values: a structure of numbers to fill with; zeros, or empty text, by default.
          drop_remainder: whether to drop a smaller last batch.

        Returns:
          A dataset of batches.
        """
        size = as_count(batch_size, "padded_batch()", 1)
        shapes, values = flat_padding(padded_shapes, padding_values, self._data_set_node)
        return Dataset(PaddedBatch(self._data_set_node, size, bool(drop_remainder), shapes, values))

    def unbatch(self, name: str | None = None) -> Dataset:
        """Returns the rows of the batches, one by one."""
        return Dataset(Unbatch(self._data_set_node))

    def rebatch(
        self,
        batch_size: int | Sequence[int] | np.ndarray,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Returns batches of another size, or of the sizes in a list, in turn."""
        return Dataset(Rebatch(self._data_set_node, as_sizes(batch_size), bool(drop_remainder)))

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Returns data sets of `size` elements, `stride` apart, one for every `shift` elements."""
        count = as_count(size, "window()", 1)
        return Dataset(
            Window(
                self._data_set_node,
                count,
                count if shift is None else as_count(shift, "window(shift=...)", 1),
                as_count(stride, "window(stride=...)", 1),
                bool(drop_remainder),
                Dataset,
            )
        )

    # ------------------------------------------------------------------ order and number

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> Dataset:
        """Returns the elements in a random order.

        Args:
          buffer_size: from how many elements the next one is drawn. As large as the data set for
            an even shuffle, which costs nothing extra for arrays in memory.
          seed: makes the order the same in every run of the program.
          reshuffle_each_iteration: whether each iteration, and each repetition of `repeat`, has
            another order.
        """
        size = UNKNOWN if buffer_size in (None, UNKNOWN) else as_count(buffer_size, "shuffle()", 1)
        node = self._data_set_node
        if size == UNKNOWN and node.cardinality == INFINITE:
            raise ValueError(
                "shuffle() of everything needs a data set that ends; this one repeats forever. "
                "Call shuffle before repeat, or name a buffer_size."
            )
        chosen = as_seed(seed, "shuffle")
        reshuffle = True if reshuffle_each_iteration is None else bool(reshuffle_each_iteration)
        return Dataset(Shuffle(node, size, chosen, reshuffle))

    def repeat(self, count: int | None = None, name: str | None = None) -> Dataset:
        """Returns the data set `count` times over; forever by default."""
        times = -1 if count is None else as_count(count, "repeat()", None)
        return Dataset(Repeat(self._data_set_node, max(times, -1)))

    def take(self, count: int, name: str | None = None) -> Dataset:
        """Returns the first `count` elements; all of them if it is negative."""
        number = as_count(count, "take()", None)
        return Dataset(Take(self._data_set_node, number)) if number >= 0 else self

    def skip(self, count: int, name: str | None = None) -> Dataset:
        """Returns all elements but the first `count`; none of them if it is negative."""
        number = as_count(count, "skip()", None)
        if number < 0:
            return self.take(0)
        return Dataset(Skip(self._data_set_node, number))

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Dataset:
        """Returns every `num_shards`-th element, from number `index` on."""
        return Dataset(Shard(self._data_set_node, *as_shard(num_shards, index)))

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """Returns the elements of this data set, then those of another that looks like it."""
        if not isinstance(dataset, Dataset):
            raise TypeError(f"concatenate() takes a data set; got {dataset!r}.")
        return Dataset(Concatenate.of(self._data_set_node, dataset._data_set_node))

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Returns pairs of a number, counting from `start`, and an element."""
        return Dataset(Enumerate(self._data_set_node, as_count(start, "enumerate()", None)))

    # ------------------------------------------------------------------ the way it is read

    def cache(self, filename: str | os.PathLike[str] = "", name: str | None = None) -> Dataset:
        """Returns the same elements, computed once and kept: in memory, or in the named file."""
        if not isinstance(filename, str | os.PathLike):
            raise TypeError(f"cache() takes a file name, or nothing; got {filename!r}.")
        where = absolute_path(filename, "filename") if os.fspath(filename) else ""
        return Dataset(Cache(self._data_set_node, where))

    def prefetch(self, buffer_size: int, name: str | None = None) -> Dataset:
        """Returns the same elements; at the end of a pipeline, a thread reads so many ahead.

        A distributed data set reads ahead by itself.
        """
        size = -1 if buffer_size in (None, AUTOTUNE) else as_count(buffer_size, "prefetch()", 0)
        return Dataset(Prefetch(self._data_set_node, size))

    def with_options(self, options: Options, name: str | None = None) -> Dataset:
        """Returns the same elements, with `rx.data.Options`."""
        if not isinstance(options, Options):
            raise TypeError(f"with_options() takes rx.data.Options; got {options!r}.")
        return Dataset(WithOptions(self._data_set_node, self.options().merge(options)))

    def options(self) -> Options:
        """Returns the options that `with_options` set."""
        return options_of(self._data_set_node)

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Returns `transformation_func(self)`, to be chained."""
        made = transformation_func(self)
        if not isinstance(made, Dataset):
            raise TypeError(f"The function of apply() must return a data set; got {made!r}.")
        return made

    def reduce(
        self, initial_state: Element, reduce_func: Callable[..., Any], name: str | None = None
    ) -> Any:
        """Returns the last state of `state = reduce_func(state, element)` over all elements."""
        state = as_element(initial_state)
        for element in self:
            state = as_element(reduce_func(state, element))
        return state

    # ------------------------------------------------------------------ looking at it

    def cardinality(self) -> int:
        """Returns the number of elements, or `INFINITE_CARDINALITY`, or `UNKNOWN_CARDINALITY`."""
        return self._data_set_node.cardinality

    def __len__(self) -> int:
        size = self.cardinality()
        if size == INFINITE:
            raise TypeError("The data set repeats forever, so that it has no length.")
        if size == UNKNOWN:
            raise TypeError(
                "The length of the data set is not known before it is read. Count its elements: "
                "sum(1 for _ in dataset)."
            )
        return size

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> DatasetIterator:
        refuse_in_trace()
        iterations = self._iterations
        return DatasetIterator([self._data_set_node], iterations.begin(), iterations.resume)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Returns an iterator over the elements, as NumPy arrays."""
        return iter(self)

    def benchmark(self, elements: int = 100, warm_up: int = 5) -> Any:
        """Measures where the time goes: reads `elements` elements up to each operation.

        Returns a report that prints as a table, and shows as one in a notebook.
        """
        return benchmark(self._data_set_node, elements, warm_up)

    def __repr__(self) -> str:
        return one_line(self._data_set_node)

    def __str__(self) -> str:
        return text_tree(self._data_set_node)

    def _repr_html_(self) -> str:
        return html_tree(self._data_set_node)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def _with(self, node: Node) -> Dataset:
        return Dataset(node)


def cardinality(dataset: Dataset) -> int:
    """Returns `dataset.cardinality()`, of which this is the older spelling."""
    return dataset.cardinality()
