"""Data sets and loaders of torch, and its tensors as NumPy arrays."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from replicax._src._typing import PyTree
from replicax._src.data._elements import object_array
from replicax._src.data._indexed import Column, Indexed, by_rows, numpy_column
from replicax._src.data._node import UNKNOWN, Node
from replicax._src.data._sources import TensorSlices
from replicax._src.data.foreign._streams import Stream, is_a, iterable, size_of

TORCH = "torch.utils.data."  # the modules that define them


def torch_loader(loader: Any) -> Stream:
    batched = getattr(loader, "batch_sampler", None) is not None
    collate = getattr(loader, "collate_fn", None)
    new = getattr(loader, "num_workers", 0) or getattr(collate, "__name__", "") == "default_collate"
    # The length of an iterable data set is a guess, as torch says itself.
    guess = is_a(getattr(loader, "dataset", None), TORCH, "IterableDataset")
    return iterable(
        loader,
        "torch DataLoader",
        functools.partial(_from_torch, texts=batched, convert=numpy_of if new else _copy_of),
        size=UNKNOWN if guess else size_of(loader),
        one_size=batched and bool(getattr(loader, "drop_last", False)),
    )


def torch_rows(source: Any) -> Node:
    if type(source).__name__ == "TensorDataset" and type(source).__module__.startswith(TORCH):
        return TensorSlices.of(tuple(map(numpy_of, source.tensors)))
    kind = f"{type(source).__name__} (torch)"
    if not hasattr(source, "__len__"):
        raise TypeError(
            f"{kind} has no length, which a map-style data set needs: define __len__, or make "
            "it a torch.utils.data.IterableDataset."
        )
    return Indexed(
        by_rows(source, kind, as_rows=_torch_row_list, as_column=torch_column), len(source), kind
    )


def torch_stream(source: Any) -> Stream:
    return iterable(source, f"{type(source).__name__} (torch)", _torch_element, size=UNKNOWN)


def _torch_element(element: PyTree) -> Any:
    return _from_torch(element, texts=False, convert=_copy_of)


def _from_torch(element: PyTree, texts: bool, convert: Callable[[Any], Any]) -> Any:
    """Returns tensors as NumPy arrays; torch's lists are the tuples of its data set.

    Args:
      element: of a data set, or a batch.
      texts: whether lists of texts are leaves, as in batches.
      convert: makes arrays of tensors.
    """
    if isinstance(element, Mapping):
        return {key: _from_torch(value, texts, convert) for key, value in element.items()}
    if isinstance(element, list | tuple):
        if texts and element and all(isinstance(value, str | bytes) for value in element):
            return object_array([x.encode() if isinstance(x, str) else x for x in element])
        parts = [_from_torch(value, texts, convert) for value in element]
        return type(element)(*parts) if hasattr(element, "_fields") else tuple(parts)
    return convert(element) if is_tensor(element) else element


def _torch_row_list(rows: list[Any]) -> list[Any]:
    """Returns elements of a map-style data set; flat ones still have tensors in them."""
    first = rows[0]
    kind = type(first)
    parts = first if kind is tuple or kind is list else (first,)
    if kind is dict:
        parts = tuple(first.values())
    if any(isinstance(part, list | tuple | Mapping) for part in parts):
        return [_torch_element(row) for row in rows]
    return [tuple(row) for row in rows] if kind is list else rows


def torch_column(values: Column) -> Column:
    if all(map(is_tensor, values)):
        try:
            return numpy_of(sys.modules["torch"].stack(values))
        except RuntimeError:  # they have different shapes
            return [numpy_of(value) for value in values]
    return numpy_column(values)


def is_tensor(value: object) -> bool:
    return hasattr(value, "detach")


def numpy_of(tensor: Any) -> np.ndarray:
    # `force`: also from a GPU, and of those that have gradients.
    if str(tensor.dtype) == "torch.bfloat16":  # which NumPy does not have
        bits = tensor.detach().contiguous().view(sys.modules["torch"].int16)
        return bits.numpy(force=True).view(jnp.bfloat16)
    return tensor.numpy(force=True)


def _copy_of(tensor: Any) -> np.ndarray:
    return numpy_of(tensor).copy()  # the user's code may fill one buffer again and again
