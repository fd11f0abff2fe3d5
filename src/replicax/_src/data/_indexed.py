"""Sources that are read by index."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._errors import add_note
from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import override
from replicax._src.data._blocks import Numbered
from replicax._src.data._elements import (
    Allocate,
    ElementSpec,
    Structure,
    as_element,
    as_leaf,
    leaves_with_names,
    map_leaves,
    read_only,
    stack,
)
from replicax._src.data._node import INFINITE, Node, Reader, Slices, observed_spec
from replicax._src.data._run import Run

Column = Sequence[Any] | np.ndarray  # the same leaf of several elements
NUMBERS = frozenset("biufcV")  # kinds of dtypes; V is for those of ml_dtypes, such as bfloat16


@runtime_checkable
class Readable(Protocol):
    """What can be read by index; perhaps also by many at once, with `__getitems__`."""

    def __getitem__(self, index: Any, /) -> Any: ...


class FetchedColumns(NamedTuple):
    """Some elements: leaf for leaf, and a function that puts one together of its leaves."""

    columns: Sequence[Column]
    build: Callable[[Sequence[Any]], Any]


Fetch = Callable[[range | np.ndarray], FetchedColumns]


@final
class Fetched(Numbered["Indexed"]):
    """Elements of such a source, by number."""

    __slots__ = ()

    @override
    def rows(self) -> list[Any]:
        if len(self.indices) == 0:
            return []
        columns, build = self._fetched()
        # Not to be written to: it may be what the source has.
        guarded = [[read_only(value) for value in column] for column in columns]
        return [build(row) for row in zip(*guarded, strict=True)]

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        columns, build = self._fetched()
        return build([_stacked(column, allocate) for column in columns])

    def _fetched(self) -> FetchedColumns:
        try:
            return self.source.fetch(self.indices)
        except StopIteration as error:
            # It would be taken for the end of the data.
            raise RuntimeError(
                f"{self.source.label} raised StopIteration for {_which(self.indices)}."
            ) from error
        except Exception as error:
            add_note(error, f"Raised by {self.source.label}, for {_which(self.indices)}.")
            raise


def _which(indices: range | np.ndarray) -> str:
    if len(indices) == 1:
        return f"element {indices[0]}"
    few = ", ".join(str(index) for index in indices[:8])
    return f"the elements {few}" + (f" and {len(indices) - 8} more" if len(indices) > 8 else "")


def _stacked(column: Column, allocate: Allocate | None) -> np.ndarray:
    if not isinstance(column, np.ndarray):
        return stack(column, allocate)
    if column.dtype == STRING or (allocate is None and column.flags.writeable):
        return column
    new = (allocate or np.empty)(column.shape, column.dtype)
    new[...] = column
    return new


@final
class Indexed(Node, runs_user_code=True):
    """A source with a length, and with access to any of its elements."""

    fetch: Fetch
    size: int  # or INFINITE
    kind: str
    yields_records: bool = False
    signature: Any = None  # what the elements look like, where the source says it
    # Whether an element can be a batch: where the library has a batch() of its own.
    may_be_batches: bool = False

    @property
    @override
    def label(self) -> str:
        return self.kind

    @override
    def open(self, run: Run) -> Reader:
        size = sys.maxsize if self.size == INFINITE else self.size
        return Slices(Fetched(self, range(size)))

    @override
    def _cardinality(self) -> int:
        return self.size

    @override
    def _spec(self) -> Any:
        if self.signature is not None:
            return self.signature
        spec = observed_spec(self)
        return of_any_length(spec) if self.may_be_batches else spec

    @override
    def details(self) -> str:
        return "by index" if self.size == INFINITE else f"{self.size} elements by index"


# ------------------------------------------------------------------ fetching


def by_rows(
    source: Readable,
    kind: str,
    missing: str = "",
    as_rows: Callable[[list[Any]], list[Any]] | None = None,
    as_column: Callable[[Column], Column] | None = None,
) -> Fetch:
    """Fetches elements one by one with `source[number]`, or together where the source can.

    Args:
      source: has `__getitem__`, and perhaps `__getitems__` for many numbers at once.
      kind: what it is, for error messages.
      missing: what to say of elements that are None.
      as_rows: what to make of the elements first.
      as_column: what to make of the same leaf of several elements.
    """
    many = getattr(source, "__getitems__", None)

    def fetch(indices: range | np.ndarray) -> FetchedColumns:
        numbers = indices.tolist() if isinstance(indices, np.ndarray) else list(indices)
        if many is not None:
            rows = list(many(numbers))
            if len(rows) != len(numbers):
                raise ValueError(
                    f"__getitems__ of {kind} was asked for {len(numbers)} elements, and returned "
                    f"{len(rows)}."
                )
        else:
            rows = [source[number] for number in numbers]
        for number, row in zip(numbers, rows):
            if row is None:
                raise TypeError(f"Element {number} of {kind} is None. {missing}".rstrip())
        if as_rows is not None:
            rows = as_rows(rows)
        return table_of(rows, as_column or numpy_column)

    return fetch


def table_of(rows: list[Any], as_column: Callable[[Column], Column]) -> FetchedColumns:
    """Returns elements as a user's source gave them, column by column."""
    first = rows[0]
    kind = type(first)
    if kind is tuple and all(map(_is_leaf, first)):
        count = len(first)
        if all(type(row) is tuple and len(row) == count for row in rows):
            return FetchedColumns([as_column(column) for column in zip(*rows)], tuple)
    elif kind is dict and all(map(_is_leaf, first.values())):
        keys = first.keys()
        if all(type(row) is dict and row.keys() == keys for row in rows):
            columns = {key: as_column([row[key] for row in rows]) for key in keys}
            return table_of_dicts(columns)
    elif _is_leaf(first):
        return FetchedColumns([as_column(rows)], _alone)
    elements = [as_element(row) for row in rows]
    structure = Structure(elements[0])
    return FetchedColumns(structure.columns(elements), structure.build)


def table_of_dicts(columns: Mapping[str, Column]) -> FetchedColumns:
    """Returns elements that are dicts with these columns."""
    names = tuple(columns)
    return FetchedColumns(list(columns.values()), lambda row: dict(zip(names, row)))


def _alone(row: Sequence[Any]) -> Any:
    return row[0]


def _is_leaf(value: object) -> bool:
    # What is one for certain; a structure of any other type goes the slower way.
    return isinstance(value, _LEAVES) or hasattr(value, "__array__")


_LEAVES = (np.ndarray, np.generic, bool, int, float, str, bytes)


def numpy_column(values: Column) -> Column:
    """Returns the same leaf of several elements, each as `as_leaf` has it."""
    if isinstance(values, np.ndarray) and values.dtype.kind in NUMBERS:
        return values
    kinds = set(map(type, values))
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is np.ndarray:
        if {value.dtype.kind for value in values} <= NUMBERS:
            return values
    elif kind is bool or kind is float:
        return np.array(values, np.float32 if kind is float else np.bool_)
    elif kind is int:
        with contextlib.suppress(OverflowError):
            return np.array(values, np.int32)
    elif kind is not None and issubclass(kind, np.number | np.bool_):
        return np.array(values)
    return [as_leaf(value) for value in values]


def of_any_length(spec: ElementSpec) -> Any:
    """Returns the spec for more elements than were seen: other batches may have other sizes."""
    shapes = [leaf.shape for _, leaf in leaves_with_names(spec) if hasattr(leaf, "dtype")]
    if len({shape[0] if shape else None for shape in shapes}) != 1 or not shapes[0]:
        return spec  # no batches: those have as many rows in each array
    return map_leaves(lambda leaf: TensorSpec.on_host((None, *leaf.shape[1:]), leaf.dtype), spec)
