"""The same leaf of many elements as bytes, and back: a column of a file.

A column has a section of bytes that names, for each element, which of its *types* (kind, dtype and
shape) the leaf has, and then for each type a section with all leaves that have it, one after the
other. What is read is not trusted.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from replicax._src._arrays import STRING
from replicax._src.data._described import dtype_called, integer, is_dtype
from replicax._src.data._elements import (
    DatasetBase,
    Element,
    Leaf,
    Structure,
    object_array,
    read_only,
)


class LeafKind(enum.StrEnum):
    """What a leaf is; the values are what the file has."""

    ARRAY = "array"
    SCALAR = "scalar"  # NumPy's
    BYTES = "bytes"  # a text that stands alone

    @property
    def stands_alone(self) -> bool:
        return self is not LeafKind.ARRAY


class LeafType(NamedTuple):
    """What a leaf looks like.

    Attributes:
      kind: what it is.
      dtype: its name, or "string".
      shape: the dimensions.
    """

    kind: LeafKind
    dtype: str
    shape: tuple[int, ...]


def check_can_be_kept(element: Element, operation: str = "cache(filename)") -> None:
    """Refuses what has no place in a file, before all of it is computed."""
    for leaf in Structure(element).leaves(element):
        _type_of(leaf, operation)


def encoded(column: Sequence[Any]) -> tuple[list[LeafType], list[bytes]]:
    """Returns the types of a column's leaves, and its sections."""
    groups: dict[LeafType, list[Any]] = {}
    which: list[int] = []
    numbers: dict[LeafType, int] = {}
    for leaf in column:
        type_ = _type_of(leaf)
        which.append(numbers.setdefault(type_, len(numbers)))
        groups.setdefault(type_, []).append(leaf)
    sections = [np.array(which, "<i4").tobytes()]
    for type_, leaves in groups.items():
        sections.append(_texts(leaves) if type_.dtype == "string" else _numbers(leaves))
    return list(groups), sections


def _numbers(leaves: Sequence[Any]) -> bytes:
    return b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in leaves)


def _texts(leaves: Sequence[Any]) -> bytes:
    texts: list[bytes] = []
    for leaf in leaves:
        texts += [leaf] if isinstance(leaf, bytes) else leaf.ravel().tolist()
    return np.array(list(map(len, texts)), "<i8").tobytes() + b"".join(texts)


def _type_of(leaf: Leaf, operation: str = "cache(filename)") -> LeafType:
    if isinstance(leaf, bytes):
        return LeafType(LeafKind.BYTES, "string", ())
    if isinstance(leaf, DatasetBase):
        raise TypeError(
            f"{operation} cannot keep data sets, such as the windows of window(), in a file. "
            "Make arrays of them first: .flat_map(lambda window: window.batch(size)). cache() "
            "without a file name keeps them in memory."
        )
    name = "string" if leaf.dtype == STRING else leaf.dtype.name
    if name != "string" and dtype_called(name) != leaf.dtype:
        raise TypeError(
            f"{operation} keeps arrays of numbers and of text; it was given one of {leaf.dtype}"
            ". Take it apart in map() first. cache() without a file name keeps it in memory."
        )
    kind = LeafKind.ARRAY if isinstance(leaf, np.ndarray) else LeafKind.SCALAR
    return LeafType(kind, name, leaf.shape)


class Damaged(Exception):
    """Internal: what is wrong with a file."""


def count_in(value: object) -> int:
    """Returns what JSON had, if it is an integer that is not below 0."""
    number = integer(value)
    if number < 0:
        raise ValueError(f"{number} is below 0")
    return number


def checked_type(kind: object, dtype: object, shape: Sequence[object]) -> LeafType:
    """Returns what JSON had, if it is the type of a leaf."""
    if not isinstance(dtype, str) or not is_dtype(dtype):
        raise ValueError(f"{kind!r:.40} of {dtype!r:.40}")
    known = LeafKind(kind)
    if (known is LeafKind.BYTES and dtype != "string") or (known.stands_alone and shape != []):
        raise ValueError(f"{kind} of {dtype} and shape {shape!r:.40}")
    return LeafType(known, dtype, tuple(count_in(size) for size in shape))


def decoded(types: Sequence[LeafType], sections: Iterator[np.ndarray], count: int) -> list[Any]:
    """Returns the leaves of one column, of which each type has a section."""
    which = _next(sections)
    if which.size != 4 * count or count == 0:
        raise Damaged("a column does not have a leaf for each element")
    which = which.view("<i4")
    if which.min() < 0 or which.max() >= len(types):
        raise Damaged("a leaf has a type that is not described")
    found: list[Any] = []
    for type_, number in zip(types, np.bincount(which, minlength=len(types)).tolist()):
        decode = _texts_in if type_.dtype == "string" else _numbers_in
        found += decode(_next(sections), type_, number)
    leaves: list[Any] = [None] * count
    for leaf, place in zip(found, np.argsort(which, kind="stable").tolist()):
        leaves[place] = leaf
    return leaves


def _next(sections: Iterator[np.ndarray]) -> np.ndarray:
    section = next(sections, None)
    if section is None:
        raise Damaged("it has fewer sections than columns")
    return section


def _numbers_in(section: np.ndarray, type_: LeafType, count: int) -> list[Any]:
    dtype = np.dtype(type_.dtype)
    if section.size != count * math.prod(type_.shape) * dtype.itemsize:
        raise Damaged(f"a column of {count} leaves {type_} has {section.size} bytes")
    if dtype == np.bool_ and section.size and section.max() > 1:
        raise Damaged("a bool is neither True nor False")
    array = _reshaped(section.view(dtype), (count, *type_.shape))
    if type_.kind is LeafKind.SCALAR:
        return list(array)
    return [array[index, ...] for index in range(count)]  # an array also where it has 0 dimensions


def _texts_in(section: np.ndarray, type_: LeafType, count: int) -> list[Any]:
    each = math.prod(type_.shape)
    texts = count * each
    if 8 * texts > section.size:
        raise Damaged(f"a column of {count} leaves {type_} has {section.size} bytes")
    lengths = section[: 8 * texts].view("<i8")
    content = section[8 * texts :].tobytes()
    if (lengths < 0).any() or sum(lengths.tolist()) != len(content):
        raise Damaged("the lengths of texts are not those of their bytes")
    ends = np.cumsum(lengths).tolist()
    flat = [content[end - size : end] for end, size in zip(ends, lengths.tolist())]
    if type_.kind is LeafKind.BYTES:
        return flat
    array = _reshaped(object_array(flat), (count, *type_.shape))
    return [read_only(array[index, ...]) for index in range(count)]


def _reshaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise Damaged(f"its arrays have an impossible shape ({error})") from None
