"""Data sets of other libraries, and plain iterables. None of the libraries is imported here.

What can be read by index becomes `Indexed`: it is shuffled, sharded and continued by number.
Everything else is a stream: to continue it is to read and drop.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from replicax import _tree
from replicax._arrays import STRING
from replicax._errors import add_note
from replicax.data._blocks import Block, as_slice
from replicax.data._caching import WithOptions
from replicax.data._elements import as_element, object_array, own
from replicax.data._indexed import (
    Column,
    Indexed,
    Table,
    arrow_block,
    arrow_spec,
    arrow_table,
    by_rows,
    numpy_column,
    of_any_length,
    table_of,
    table_of_dicts,
)
from replicax.data._node import (
    INFINITE,
    UNKNOWN,
    Node,
    Pulled,
    Reader,
    Slices,
    merged_specs,
    observed_spec,
    spec_of,
)
from replicax.data._options import AutoShardPolicy, DistributeOptions, Options
from replicax.data._run import Run
from replicax.data._sources import PythonIterator, TensorSlices
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
    for module, name, adapt in _ADAPTERS:
        if _is_a(source, module, name):
            return adapt(source)
    _refuse_distributed(source)
    if isinstance(source, Iterator):
        return Stream(Once.of(source), source=_kind(source))
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        return _iterable(source, _kind(source))
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not _is_mapping(source):
        return Indexed(by_rows(source, _kind(source)), len(source), _kind(source))
    _refuse(source)


def _is_a(source: Any, module: str, name: str) -> bool:
    """Whether `source` is of a class of this name that a module of another package defines."""
    return any(
        kind.__name__ == name and f"{kind.__module__}.".startswith(module)
        for kind in type(source).__mro__
    )


def _kind(source: Any) -> str:
    name = getattr(source, "__qualname__", None)
    if name is not None and hasattr(source, "gi_frame"):
        return f"generator {name}()"
    return f"{type(source).__module__}.{type(source).__qualname__}".removeprefix("builtins.")


# ------------------------------------------------------------------ what is no data set


def refuse_arrays(source: Any) -> None:
    """A clear word for those who pass arrays."""
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


def _is_list_of(source: Any, kinds: Any) -> bool:
    return isinstance(source, list) and bool(source) and all(isinstance(x, kinds) for x in source)


def _is_array(value: Any) -> bool:
    known = np.ndarray | np.generic | jax.Array | int | float | complex
    return isinstance(value, known) or hasattr(type(value), "__array__")


def _described(source: Any) -> str:
    text = _tree.describe(source)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _is_mapping(source: Any) -> bool:
    return isinstance(source, Mapping) or hasattr(source, "keys")


def _refuse_distributed(source: Any) -> None:
    if type(source).__module__.startswith("replicax.input."):
        raise TypeError(
            f"{source!r} is distributed already: iterate over it. Operations and another "
            "distribution start from the data set that it was made of."
        )


def _refuse(source: Any) -> NoReturn:
    advice = (
        "Pass an rx.data.Dataset, an iterable of batches, or a data set of tf.data, Grain, torch "
        "or Hugging Face."
    )
    if _is_a(source, "datasets.dataset_dict.", "DatasetDict"):
        advice = f"It has several: pass one of them, such as datasets[{next(iter(source), '')!r}]."
    elif callable(source):
        advice = (
            "If it is a function that returns an iterator, write "
            "rx.data.Dataset.from_generator(function)."
        )
    raise TypeError(f"{_short(source)} is no data set. {advice}")


def _short(source: Any) -> str:
    text = repr(source)
    return text if len(text) <= 200 else f"{text[:200]}..."


# ------------------------------------------------------------------ streams


@dataclasses.dataclass(frozen=True, eq=False)
class Stream(PythonIterator):
    """The elements of an iterable that cannot be read from the middle."""

    # Starts without the first elements, where the library can leave them out faster.
    start_at: Callable[[int], Iterator[Any]] | None = None
    one_size: bool = False  # whether all batches are known to have as many rows
    seen: list[Any] = dataclasses.field(default_factory=list)  # the specs of the first elements

    @property
    def label(self) -> str:  # type: ignore[override]
        return self.source

    def open(self, run: Run) -> Reader:
        return StreamReader(self, run)

    def blocks(self, run: Run, start: int = 0) -> Generator[Block]:
        """One walk, without the first elements."""
        if start == 0 or self.start_at is None:
            return self._blocks(run)
        start_at = self.start_at
        return dataclasses.replace(self, make=lambda: start_at(start))._blocks(run)

    def _checked(self, value: Any, index: int) -> Any:
        element = super()._checked(value, index)
        # To open another walk only to look could disturb this one: some loaders allow one.
        if self.signature is None and len(self.seen) < 2:
            self.seen.append(spec_of(element))
        return element

    def _spec(self) -> Any:
        if self.signature is not None:
            return self.signature
        spec = observed_spec(self) if not self.seen else self.seen[0]
        for other in self.seen[1:]:
            spec = merged_specs(spec, other) or spec
        return spec if self.one_size else of_any_length(spec)

    def details(self) -> str:
        return "from the start"


class StreamReader(Pulled):
    """A walk over a stream."""

    def __init__(self, node: Stream, run: Run):
        super().__init__(node.blocks(run))
        self._node = node
        self._run = run
        self._fresh = True

    def take(self, count: int) -> Block:
        self._fresh = False
        return super().take(count)

    def skip(self, count: int) -> int:
        if count and self._fresh and self._node.start_at is not None:
            blocks = self._node.blocks(self._run, count)
            first = next(blocks, None)
            if first is not None:
                self._fresh, self._blocks, self._rest = False, blocks, Slices(first)
                return count
        return super().skip(count)  # also to count them, where there are fewer


class Once:
    """An iterator, which can be read once.

    Its first two elements are kept, so that they can be read again, and so is what was only looked
    at.
    """

    _KEPT = 2
    # Two data sets may be made of one iterator, and must not take elements from each other.
    _made: weakref.WeakValueDictionary[int, Once] = weakref.WeakValueDictionary()

    @classmethod
    def of(cls, iterator: Iterator[Any]) -> Once:
        once = cls._made.get(id(iterator))
        if once is None:
            once = cls._made[id(iterator)] = cls(iterator)
        return once

    def __init__(self, iterator: Iterator[Any]):
        self._iterator = iterator
        self._first: list[Any] = []
        self._failure: Exception | None = None
        self._ended = False
        self._reader: object = None  # the walk that went past the first elements

    def __call__(self) -> Iterator[Any]:
        self._claim(None)
        return self._walk(self._KEPT)

    def look(self) -> Iterator[Any]:
        """A walk that takes nothing away, however far it goes."""
        self._claim(None)
        return self._walk(sys.maxsize)

    def _claim(self, reader: object) -> None:
        if self._reader is not None and self._reader is not reader:
            raise RuntimeError(
                "This data set was made of an iterator, which was read already. To read the data "
                "more than once, pass something that can start anew: "
                "rx.data.Dataset.from_generator(function_that_returns_an_iterator)."
            )
        self._reader = reader

    def _walk(self, kept: int) -> Generator[Any]:
        me = object()
        try:
            for number in itertools.count():
                if number < len(self._first):
                    yield self._first[number]
                    continue
                self._claim(None if number < kept else me)
                if number >= kept:
                    self._first.clear()
                if self._ended:
                    return
                value = self._next()
                if self._ended:
                    return
                if number < kept:
                    value = _kept(value)
                    self._first.append(value)
                yield value
        finally:
            if self._reader is me and hasattr(self._iterator, "close"):
                self._iterator.close()  # type: ignore[attr-defined]

    def _next(self) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._iterator)
        except StopIteration:
            self._ended = True
        except Exception as error:
            self._failure = error  # the second time it would seem to be the end
            raise


def _kept(value: Any) -> Any:
    """The same value, also when the iterator fills its buffer again."""
    try:
        return own(as_element(value))
    except (TypeError, ValueError):
        return value  # which is refused where it is looked at


def _iterable(source: Iterable[Any], kind: str, convert: Any = None, **known: Any) -> Stream:
    def make() -> Iterator[Any]:
        return iter(source) if convert is None else map(convert, source)

    return Stream(make, source=kind, **{"size": _size(source), **known})


def _size(source: Any) -> int:
    try:
        return len(source)
    except Exception:  # torch raises what it likes for data sets without a length
        return UNKNOWN


# ------------------------------------------------------------------ tf.data


def _tensorflow(source: Any) -> Node:
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


# ------------------------------------------------------------------ Grain


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


# ------------------------------------------------------------------ torch


def _torch_loader(loader: Any) -> Stream:
    batched = getattr(loader, "batch_sampler", None) is not None
    collate = getattr(loader, "collate_fn", None)
    new = getattr(loader, "num_workers", 0) or getattr(collate, "__name__", "") == "default_collate"
    # The length of an iterable data set is a guess, as torch says itself.
    guess = _is_a(getattr(loader, "dataset", None), _TORCH, "IterableDataset")
    return _iterable(
        loader,
        "torch DataLoader",
        functools.partial(_from_torch, texts=batched, convert=_numpy_of if new else _copy_of),
        size=UNKNOWN if guess else _size(loader),
        one_size=batched and bool(getattr(loader, "drop_last", False)),
    )


def _torch_rows(source: Any) -> Node:
    if type(source).__name__ == "TensorDataset" and type(source).__module__.startswith(_TORCH):
        return TensorSlices.of(tuple(map(_numpy_of, source.tensors)))
    kind = f"{type(source).__name__} (torch)"
    if not hasattr(source, "__len__"):
        raise TypeError(
            f"{kind} has no length, which a map-style data set needs: define __len__, or make "
            "it a torch.utils.data.IterableDataset."
        )
    return Indexed(
        by_rows(source, kind, as_rows=_torch_row_list, as_column=_torch_column), len(source), kind
    )


def _torch_stream(source: Any) -> Stream:
    return _iterable(source, f"{type(source).__name__} (torch)", _torch_element, size=UNKNOWN)


def _torch_element(element: Any) -> Any:
    return _from_torch(element, texts=False, convert=_copy_of)


def _from_torch(element: Any, texts: bool, convert: Callable[[Any], Any]) -> Any:
    """Tensors as NumPy arrays; torch's lists are the tuples of its data set.

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
    return convert(element) if _is_tensor(element) else element


def _torch_row_list(rows: list[Any]) -> list[Any]:
    """Elements of a map-style data set; the tensors of flat ones are still to be converted."""
    first = rows[0]
    kind = type(first)
    parts = first if kind is tuple or kind is list else (first,)
    if kind is dict:
        parts = tuple(first.values())
    if any(isinstance(part, list | tuple | Mapping) for part in parts):
        return [_torch_element(row) for row in rows]
    return [tuple(row) for row in rows] if kind is list else rows


def _torch_column(values: Column) -> Column:
    if all(map(_is_tensor, values)):
        try:
            return _numpy_of(sys.modules["torch"].stack(values))
        except RuntimeError:  # they have different shapes
            return [_numpy_of(value) for value in values]
    return numpy_column(values)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach")


def _numpy_of(tensor: Any) -> np.ndarray:
    # `force`: also from a GPU, and of those that have gradients.
    if str(tensor.dtype) == "torch.bfloat16":  # which NumPy does not have
        bits = tensor.detach().contiguous().view(sys.modules["torch"].int16)
        return bits.numpy(force=True).view(jnp.bfloat16)
    return tensor.numpy(force=True)


def _copy_of(tensor: Any) -> np.ndarray:
    return _numpy_of(tensor).copy()  # the user's code may fill one buffer again and again


# ------------------------------------------------------------------ Hugging Face


def _hugging_face(source: Any) -> Indexed:
    given = source.format
    view, signature = source, None
    if given["type"] is None:
        # Arrow's values have the types of the columns; "numpy" makes 8 bytes of every integer.
        schema = [source.features.arrow_schema.field(name) for name in given["columns"]]
        signature = arrow_spec(schema)
        form = "numpy" if signature is None else "arrow"
        view = source.with_format(form, columns=given["columns"])

    def fetch(indices: range | np.ndarray) -> Table:
        rows = view[as_slice(indices) if isinstance(indices, range) else indices.tolist()]
        if hasattr(rows, "column_names"):
            return arrow_table(rows)
        return _table_of_any(rows, len(indices))

    return Indexed(fetch, len(source), "Hugging Face data set", signature=signature)


def _table_of_any(columns: Mapping[str, Any], count: int) -> Table:
    """Rows as a format or transform of the user's has them: dicts of anything with rows."""
    columns = {name: _rows_of_any(columns[name]) for name in columns}
    if any(isinstance(column[0], Mapping) for column in columns.values()):
        rows = [{name: columns[name][row] for name in columns} for row in range(count)]
        return table_of(rows, _torch_column)
    return table_of_dicts({name: _torch_column(column) for name, column in columns.items()})


def _rows_of_any(column: Any) -> Column:
    if _is_tensor(column):
        return _numpy_of(column)
    return np.asarray(column) if isinstance(column, jax.Array) else column


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _rows_of_any(row[name]) for name in row}


def _hugging_face_stream(source: Any) -> Stream:
    kind = "Hugging Face stream"
    view, signature = source, None
    if getattr(source, "_formatting", None) is None and source.features is not None:
        signature = arrow_spec(source.features.arrow_schema)
        view = source.with_format("numpy" if signature is None else "arrow")
    if signature is None:
        return _iterable(
            view,
            kind,
            _plain_row,
            size=UNKNOWN,
            start_at=lambda count: map(_plain_row, view.skip(count)),
        )
    return Tables(
        lambda: view.iter(_ROWS_AT_A_TIME),
        signature,
        source=kind,
        start_at=lambda count: view.skip(count).iter(_ROWS_AT_A_TIME),
    )


# One row of a table costs as much as many; but each of them may be a batch already.
_ROWS_AT_A_TIME = 32


class Tables(Stream):
    """A stream of Arrow tables, whose rows are the elements."""

    def _blocks(self, run: Run) -> Generator[Block]:
        index = 0
        try:
            for table in self.make():
                block = arrow_block(table)
                yield block
                index += len(block)
        except Exception as error:
            add_note(error, f"Raised by {self.source}, after item {index}.")
            raise


# ------------------------------------------------------------------ who is who

_TORCH = "torch.utils.data."

# The first that fits is taken. Classes are known by their names: nothing is imported.
_ADAPTERS: list[tuple[str, str, Callable[[Any], Node]]] = [
    ("tensorflow.", "DatasetV2", _tensorflow),
    ("grain.", "MapDataset", _grain_map),
    ("grain.", "IterDataset", lambda source: _iterable(source, "grain iter data set")),
    ("grain.", "DataLoader", lambda source: _iterable(source, "grain DataLoader")),
    ("datasets.arrow_dataset.", "Dataset", _hugging_face),
    ("datasets.iterable_dataset.", "IterableDataset", _hugging_face_stream),
    (_TORCH, "DataLoader", _torch_loader),
    (_TORCH, "IterableDataset", _torch_stream),
    (_TORCH, "Dataset", _torch_rows),
]
