"""Data sets of other libraries, and plain iterables. None of the libraries is imported here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from replicax import _tree
from replicax._arrays import STRING
from replicax.data._elements import map_leaves
from replicax.data._indexed import Indexed
from replicax.data._node import UNKNOWN, Node
from replicax.data._sources import PythonIterator
from replicax.functions import TensorSpec


def foreign_node(source: Any) -> Node:
    """The node of a data set that is none of ours.

    Raises:
      TypeError: it is no data set; the text says what to write instead.
    """
    node = getattr(source, "_data_set_node", None)
    if node is not None:
        return node
    refuse_arrays(source)
    if _is_from(source, "tensorflow", "DatasetV2"):
        return _tensorflow(source)
    if _is_from(source, "grain", "MapDataset"):
        return Indexed(
            lambda indices: [source[i] for i in indices], len(source), "grain.MapDataset"
        )
    if _is_from(source, "torch", "DataLoader"):
        return _iterable(source, "torch.utils.data.DataLoader", _from_torch)
    if _is_from(source, "torch", "Dataset") and hasattr(source, "__len__"):
        return Indexed(
            lambda indices: [_from_torch(source[i]) for i in indices],
            len(source),
            f"torch data set {type(source).__name__}",
        )
    if _is_from(source, "datasets", "Dataset"):
        return _hugging_face(source)
    if _is_from(source, "datasets", "IterableDataset"):
        return _iterable(source.with_format("numpy"), "datasets.IterableDataset")
    if isinstance(source, Iterator):
        return PythonIterator(_Once(source), source=_kind(source))
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        return _iterable(source, _kind(source))
    raise TypeError(
        f"{source!r} is no data set. Pass an rx.data.Dataset, an iterable of batches, or a data "
        "set of tf.data, Grain, torch or Hugging Face."
    )


def refuse_arrays(source: Any) -> None:
    """A clear word for those who pass arrays."""
    leaves = [source]
    if isinstance(source, list | tuple | dict):
        leaves = list(_tree.leaves_of(source))
    arrays = np.ndarray | np.generic | jax.Array | int | float | complex
    if leaves and all(isinstance(leaf, arrays) for leaf in leaves):
        raise TypeError(
            f"{_tree.describe(source)} is no data set. Make one of arrays with "
            "rx.data.Dataset.from_tensor_slices(arrays).batch(global_batch_size), which yields "
            "batches of their rows."
        )
    if isinstance(source, str | bytes):
        raise TypeError(
            f"{source!r} is no data set. To read files use rx.data.TFRecordDataset(names) or "
            "rx.data.TextLineDataset(names)."
        )


def _is_from(source: Any, package: str, name: str) -> bool:
    """Whether `source` is of a class of this name that a package defines."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(source).__mro__
    )


def _kind(source: Any) -> str:
    return f"{type(source).__module__}.{type(source).__qualname__}".removeprefix("builtins.")


def _iterable(source: Any, kind: str, convert: Any = None) -> PythonIterator:
    try:
        size = len(source)
    except Exception:  # torch raises what it likes for data sets without a length
        size = UNKNOWN

    def make() -> Iterator[Any]:
        return iter(source) if convert is None else map(convert, source)

    return PythonIterator(make, size=size, source=kind)


class _Once:
    """An iterator, which can be read once."""

    def __init__(self, iterator: Iterator[Any]):
        self._iterator: Iterator[Any] | None = iterator

    def __call__(self) -> Iterator[Any]:
        iterator, self._iterator = self._iterator, None
        if iterator is None:
            raise RuntimeError(
                "This data set was made of an iterator, which was read already. To read the data "
                "more than once, pass something that can start anew: "
                "rx.data.Dataset.from_generator(function_that_returns_an_iterator)."
            )
        return iterator


def _from_torch(element: Any) -> Any:
    """Tensors as NumPy arrays; torch's lists are the tuples of its data set."""
    if isinstance(element, Mapping):
        return {key: _from_torch(value) for key, value in element.items()}
    if isinstance(element, list | tuple) and not hasattr(element, "_fields"):
        return tuple(_from_torch(value) for value in element)
    to_numpy = getattr(element, "numpy", None)
    return element if to_numpy is None else to_numpy()


def _tensorflow(source: Any) -> PythonIterator:
    def spec(leaf: Any) -> Any:
        text = leaf.dtype.name == "string"
        shape = None if leaf.shape.rank is None else tuple(leaf.shape)
        return TensorSpec.on_host(shape, STRING if text else leaf.dtype.as_numpy_dtype)

    return PythonIterator(
        source.as_numpy_iterator,
        signature=map_leaves(spec, source.element_spec),
        size=int(source.cardinality()),
        source="tf.data.Dataset",
    )


def _hugging_face(source: Any) -> Indexed:
    arrays = source.with_format("numpy")

    def rows(indices: Sequence[int]) -> list[Any]:
        return [arrays[index] for index in indices]

    return Indexed(
        rows, len(source), "datasets.Dataset", fetch_columns=lambda indices: arrays[list(indices)]
    )
