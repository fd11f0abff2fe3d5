"""Who is who among data sets of other libraries and plain iterables; none of them is imported.

What can be read by index becomes `Indexed`: it is shuffled, sharded and continued by number.
Everything else is a stream: to continue it is to read and drop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import partial
from types import UnionType
from typing import Any, NoReturn

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._arrays import STRING
from replicax._src._tensor_spec import TensorSpec
from replicax._src.data._caching import WithOptions
from replicax._src.data._elements import DatasetBase
from replicax._src.data._indexed import Indexed, Readable, by_rows
from replicax._src.data._node import INFINITE, Node
from replicax._src.data._options import AutoShardPolicy, DistributeOptions, Options
from replicax._src.data.foreign._hugging_face import hugging_face_stream, hugging_face_table
from replicax._src.data.foreign._streams import Once, Stream, is_a, iterable
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
    if isinstance(source, Distributed):
        raise TypeError(
            f"{source!r} is distributed already: iterate over it. Operations and another "
            "distribution start from the data set that it was made of."
        )
    if isinstance(source, Iterator):
        return Stream(Once.of(source), source=_kind(source))
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        return iterable(source, _kind(source))
    is_mapping = isinstance(source, Mapping) or hasattr(source, "keys")
    if isinstance(source, Readable) and isinstance(source, Sized) and not is_mapping:
        return _by_index(source)
    _refuse(source)


def _by_index(source: Any) -> Indexed:
    return Indexed(by_rows(source, _kind(source)), len(source), _kind(source))


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
        f"{_short(_tree.describe(source))} is no data set. Make one of arrays with {line}, "
        f"which yields batches of their rows.{batches}"
    )


def _is_list_of(source: object, kinds: type | UnionType) -> bool:
    return isinstance(source, list) and bool(source) and all(isinstance(x, kinds) for x in source)


def _is_array(value: object) -> bool:
    known = np.ndarray | np.generic | jax.Array | int | float | complex
    return isinstance(value, known) or hasattr(type(value), "__array__")


class Distributed:
    """A data set, or an iterator, whose elements go to the replicas: it is no source of others."""


def _refuse(source: Any) -> NoReturn:
    advice = (
        "Pass an rx.data.Dataset, an iterable of batches, or a data set of tf.data, Grain, torch "
        "or Hugging Face."
    )
    if is_a(source, "datasets.dataset_dict.", "DatasetDict"):
        advice = f"It has several: pass one of them, such as datasets[{next(iter(source), '')!r}]."
    elif callable(source):
        advice = (
            "If it is a function that returns an iterator, write "
            "rx.data.Dataset.from_generator(function)."
        )
    raise TypeError(f"{_short(repr(source))} is no data set. {advice}")


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


# ------------------------------------------------------------------ adapters


def _grain_map(source: Any) -> Indexed:
    kind, size = "grain map data set", len(source)
    missing = (
        "A filter leaves gaps in a MapDataset; write dataset.to_iter_dataset(), which closes them."
    )
    return Indexed(
        by_rows(source, kind, missing),
        INFINITE if size >= sys.maxsize else size,
        kind,
        may_be_batches=True,
    )


def _tensorflow_pipeline(source: Any) -> Node:
    node = Stream(
        source.as_numpy_iterator,
        signature=_tensorflow_spec(source.element_spec),
        size=int(source.cardinality()),
        source="tf.data pipeline",
        start_at=lambda count: source.skip(count).as_numpy_iterator(),
    )
    # Whether workers divide the data is said in its options; they cannot divide its files here.
    policy = source.options().experimental_distribute.auto_shard_policy.name
    if policy not in ("OFF", "DATA"):
        return node
    return WithOptions(node, Options(DistributeOptions(AutoShardPolicy[policy])))


def _tensorflow_spec(spec: Any, name: str = "") -> Any:
    if isinstance(spec, dict):
        return {key: _tensorflow_spec(spec[key], f"{name}[{key!r}]") for key in spec}
    if isinstance(spec, tuple):
        parts = [_tensorflow_spec(part, f"{name}[{index}]") for index, part in enumerate(spec)]
        return type(spec)(*parts) if hasattr(spec, "_fields") else tuple(parts)
    kind = type(spec).__name__
    if kind != "TensorSpec" or spec.dtype.name in ("variant", "resource"):
        remedy = {
            "RaggedTensorSpec": "Fill it up in the tf.data pipeline: map with .to_tensor().",
            "SparseTensorSpec": "Fill it up in the tf.data pipeline: map with tf.sparse.to_dense.",
            "DatasetSpec": "Batch the windows in the tf.data pipeline: flat_map.",
        }.get(kind, "Leave it out, or make an array of it, in the tf.data pipeline.")
        raise TypeError(
            f"element{name} of the tf.data.Dataset is no array, but a {kind}: {spec!r}. {remedy}"
        )
    shape = None if spec.shape.rank is None else tuple(spec.shape)
    return TensorSpec.on_host(
        shape, STRING if spec.dtype.name == "string" else spec.dtype.as_numpy_dtype
    )


# The first that fits is taken. Classes are known by their names: nothing is imported.
_ADAPTERS: list[tuple[str, str, Callable[[Any], Node]]] = [
    ("tensorflow.", "DatasetV2", _tensorflow_pipeline),
    ("grain.", "MapDataset", _grain_map),
    ("grain.", "IterDataset", partial(iterable, kind="grain iter data set")),
    ("grain.", "DataLoader", partial(iterable, kind="grain DataLoader")),
    ("tensorflow_datasets.", "BaseDataSource", _by_index),
    ("datasets.arrow_dataset.", "Dataset", hugging_face_table),
    ("datasets.iterable_dataset.", "IterableDataset", hugging_face_stream),
    (TORCH, "DataLoader", torch_loader),
    (TORCH, "IterableDataset", torch_stream),
    (TORCH, "Dataset", torch_rows),
]
