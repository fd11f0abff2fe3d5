"""Who is who among data sets of other libraries and plain iterables; none of them is imported.

What can be read by index becomes `Indexed`: it is shuffled, sharded and continued by number.
Everything else is a stream: to continue it is to read and drop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from types import UnionType
from typing import Any, NoReturn

import jax
import numpy as np

from replicax._src import _tree
from replicax._src.data._elements import DatasetBase
from replicax._src.data._indexed import Indexed, Readable, by_rows
from replicax._src.data._node import Node
from replicax._src.data.foreign._classes import is_a
from replicax._src.data.foreign._grain import grain_loader, grain_map, grain_stream
from replicax._src.data.foreign._hugging_face import hugging_face_stream, hugging_face_table
from replicax._src.data.foreign._streams import Once, Stream, iterable
from replicax._src.data.foreign._tensorflow import tensorflow_pipeline
from replicax._src.data.foreign._torch import TORCH, torch_loader, torch_rows, torch_stream


def foreign_node(source: object) -> Node:
    """Returns the node of a data set that is none of ours.

    Raises:
      TypeError: it is no data set; the text says what to write instead.
    """
    if isinstance(source, DatasetBase):
        return source._data_set_node
    refuse_arrays(source)
    for module, name, adapt in _ADAPTERS:
        if is_a(source, module, name):
            return adapt(source)
    _refuse_distributed(source)
    if isinstance(source, Iterator):
        return Stream(Once.of(source), source=_kind(source))
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        return iterable(source, _kind(source))
    if isinstance(source, Readable) and isinstance(source, Sized) and not _is_mapping(source):
        return Indexed(by_rows(source, _kind(source)), len(source), _kind(source))
    _refuse(source)


def _kind(source: object) -> str:
    name = getattr(source, "__qualname__", None)
    if name is not None and hasattr(source, "gi_frame"):
        return f"generator {name}()"
    return f"{type(source).__module__}.{type(source).__qualname__}".removeprefix("builtins.")


# ------------------------------------------------------------------ what is no data set


def refuse_arrays(source: object) -> None:
    """Raises a `TypeError` for arrays and file names, and says what to write instead."""
    if isinstance(source, str | bytes | os.PathLike) or _is_list_of(source, str | bytes):
        raise TypeError(
            f"{source!r} is no data set. To read files use rx.data.TFRecordDataset(names), "
            "rx.data.TextLineDataset(names) or another of rx.data."
        )
    leaves = [source]
    if isinstance(source, list | tuple | dict):
        if _is_list_of(source, tuple | dict):
            return  # batches, one after the other
        leaves = list(_tree.leaves_of(source))
    if not leaves or not all(map(_is_array, leaves)):
        return
    if hasattr(source, "columns") and hasattr(source, "items"):
        line = "rx.data.Dataset.from_tensor_slices(dict(frame)).batch(global_batch_size)"
    else:
        line = "rx.data.Dataset.from_tensor_slices(arrays).batch(global_batch_size)"
    batches = ""
    if isinstance(source, list):
        batches = (
            " If each item of the list is a batch already, write "
            "rx.data.Dataset.from_generator(lambda: batches)."
        )
    raise TypeError(
        f"{_described(source)} is no data set. Make one of arrays with {line}, which yields "
        f"batches of their rows.{batches}"
    )


def _is_list_of(source: object, kinds: type | UnionType) -> bool:
    return isinstance(source, list) and bool(source) and all(isinstance(x, kinds) for x in source)


def _is_array(value: object) -> bool:
    known = np.ndarray | np.generic | jax.Array | int | float | complex
    return isinstance(value, known) or hasattr(type(value), "__array__")


def _described(source: object) -> str:
    text = _tree.describe(source)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _is_mapping(source: object) -> bool:
    return isinstance(source, Mapping) or hasattr(source, "keys")


class Distributed:
    """A data set, or an iterator, whose elements go to the replicas: it is no source of others."""


def _refuse_distributed(source: object) -> None:
    if isinstance(source, Distributed):
        raise TypeError(
            f"{source!r} is distributed already: iterate over it. Operations and another "
            "distribution start from the data set that it was made of."
        )


def _refuse(source: object) -> NoReturn:
    advice = (
        "Pass an rx.data.Dataset, an iterable of batches, or a data set of tf.data, Grain, torch "
        "or Hugging Face."
    )
    if is_a(source, "datasets.dataset_dict.", "DatasetDict"):
        advice = f"It has several: pass one of them, such as datasets[{_first_key(source)!r}]."
    elif callable(source):
        advice = (
            "If it is a function that returns an iterator, write "
            "rx.data.Dataset.from_generator(function)."
        )
    raise TypeError(f"{_short(source)} is no data set. {advice}")


def _first_key(mapping: Any) -> object:
    return next(iter(mapping), "")


def _short(source: object) -> str:
    text = repr(source)
    return text if len(text) <= 200 else f"{text[:200]}..."


# ------------------------------------------------------------------ adapters

# The first that fits is taken. Classes are known by their names: nothing is imported.
_ADAPTERS: list[tuple[str, str, Callable[[Any], Node]]] = [
    ("tensorflow.", "DatasetV2", tensorflow_pipeline),
    ("grain.", "MapDataset", grain_map),
    ("grain.", "IterDataset", grain_stream),
    ("grain.", "DataLoader", grain_loader),
    ("datasets.arrow_dataset.", "Dataset", hugging_face_table),
    ("datasets.iterable_dataset.", "IterableDataset", hugging_face_stream),
    (TORCH, "DataLoader", torch_loader),
    (TORCH, "IterableDataset", torch_stream),
    (TORCH, "Dataset", torch_rows),
]
