"""Elements: what a data set yields. Structures of tuples and dicts whose leaves are NumPy's.

A leaf is an array, a NumPy scalar, `bytes` (TensorFlow's strings), or a data set (the windows of
`window`). Lists are not structure: as in `tf.data`, they are arrays.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, final

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._arrays import STRING
from replicax._src._typing import DTypeLike, PyTree
from replicax._src.records import RecordArray, SparseTensor

if TYPE_CHECKING:
    from replicax._src.data._node import Node

Allocate = Callable[[tuple[int, ...], Any], np.ndarray]

Element = Any
"""What a data set yields: tuples and dicts, nested, with a `Leaf` in each place."""

ElementSpec = Any
"""A structure like an element, with a `TensorSpec` or `DatasetSpec` in the place of each leaf."""

T = TypeVar("T")


class DatasetBase:
    """The base of `Dataset`: what is known of one where its operations are not."""

    _data_set_node: Node

    @property
    def element_spec(self) -> ElementSpec:
        """What the elements look like: a structure of `rx.TensorSpec`."""
        return self._data_set_node.spec


Leaf = np.ndarray | np.generic | bytes | DatasetBase


@final
class Structure:
    """How the leaves of an element are put together."""

    __slots__ = ("_like", "build", "leaves")

    def __init__(self, element: Element):
        # Numbers in the place of the leaves: a structure must not keep a batch alive.
        if type(element) is tuple and not any(map(_nested, element)):
            self._like: Any = (0,) * len(element)
            self.build: Callable[[Sequence[Any]], Any] = tuple
            self.leaves: Callable[[Any], Sequence[Any]] = _as_it_is
        elif type(element) is dict and not any(map(_nested, element.values())):
            self._like = dict.fromkeys(element, 0)
            self.build = functools.partial(_as_dict, tuple(element))
            self.leaves = _values
        elif not _nested(element):
            self._like = 0
            self.build, self.leaves = _only, _alone
        else:
            self._like = map_leaves(lambda _: 0, element)
            self.build = _tree.flatten(self._like, _is_leaf)[1]
            self.leaves = _leaves

    @property
    def text(self) -> str:
        """The structure in words, with a dot for each leaf."""
        return _describe(self._like)

    def columns(self, elements: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the same leaf of all elements, for each leaf."""
        if self.leaves is _alone:
            if any(issubclass(kind, tuple | dict) for kind in set(map(type, elements))):
                self._refuse(elements)
            return [tuple(elements)]
        if self.leaves is _as_it_is:
            count = len(elements[0])
            if any(type(each) is not tuple or len(each) != count for each in elements):
                self._refuse(elements)
            return list(zip(*elements))
        rows = [self.leaves_like(element) for element in elements]
        if any(row is None for row in rows):
            self._refuse(elements)
        return list(zip(*rows))  # type: ignore[arg-type]

    def leaves_like(self, element: Element) -> list[Any] | None:
        """Returns the leaves of an element in this structure's order; None if its own is another.

        The items of a dict may come in another order.
        """
        like = self._like
        if self.leaves is _as_it_is and type(element) is tuple and len(element) == len(like):
            return None if any(map(_nested, element)) else list(element)
        if self.leaves is _values and type(element) is dict and element.keys() == like.keys():
            found = [element[key] for key in like]
            return None if any(map(_nested, found)) else found
        found = []
        return found if _collect(like, element, found) else None

    def _refuse(self, elements: Sequence[Any]) -> NoReturn:
        others = (_describe(each) for each in elements if self.leaves_like(each) is None)
        other = next(others)
        raise ValueError(
            "The elements of a data set must have one structure, but one is "
            f"{self.text} and another is {other} (each . is an array). A list that a function "
            "returns is a tuple, as in TensorFlow; for one array return np.array(the_list)."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return Structure, (self._like,)


def _collect(like: PyTree, element: Element, found: list[Any]) -> bool:
    level, other = _tree.one_level(like, _is_leaf), _tree.one_level(element, _is_leaf)
    if level is None or other is None:
        found.append(element)
        return level is None and other is None
    if level[2] != other[2]:
        return False
    children = [element[key] for key in like] if isinstance(like, dict) else other[0]
    return all(_collect(a, b, found) for a, b in zip(level[0], children, strict=True))


_only = operator.itemgetter(0)


def _as_dict(keys: tuple[Any, ...], leaves: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(keys, leaves, strict=True))


def _values(element: dict[Any, Any]) -> list[Any]:
    return list(element.values())


def _as_it_is(element: Element) -> Any:
    return element


def _alone(element: Leaf) -> Any:
    return (element,)


def _leaves(element: Element) -> list[Any]:
    return list(_tree.leaves_of(element, _is_leaf))


_LEAVES = (list, np.ndarray, np.generic, bytes, str, DatasetBase)
_ARRAYS = (np.ndarray, np.generic, bytes)  # quicker to ask for than a union, made at each call


def _is_leaf(value: object) -> bool:
    return isinstance(value, _LEAVES)


def _nested(value: object) -> bool:
    if isinstance(value, _ARRAYS):
        return False
    return _tree.one_level(value, _is_leaf) is not None


def _describe(element: Element) -> str:
    level = _tree.one_level(element, _is_leaf)
    if level is None:
        return "."
    parts = [_describe(child) for child in level[0]]
    if isinstance(element, dict):
        parts = [f"{key!r}: {part}" for key, part in zip(element, parts)]
    return f"{type(element).__name__}({', '.join(parts)})"


def map_leaves(fn: Callable[[Any], Any], element: Element) -> Any:
    """Returns `fn` of every leaf of an element, or of a structure of specs."""
    return _tree.map_structure(fn, element, _is_leaf)


def leaves_with_names(element: Element, name: str = "") -> list[tuple[str, Any]]:
    """Returns every leaf with a name for error messages, such as `['image']` or `[0]`."""
    level = _tree.one_level(element, _is_leaf)
    if level is None:
        return [(name, element)]
    keys = list(element) if isinstance(element, dict) else range(len(level[0]))
    found: list[tuple[str, Any]] = []
    for key, child in zip(keys, level[0]):
        found += leaves_with_names(child, f"{name}[{key!r}]")
    return found


# ------------------------------------------------------------------ leaves


def as_leaf(value: object) -> Any:
    """Returns `value` as a leaf, with TensorFlow's types: numbers of 32 bits, text as bytes."""
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray and not isinstance(value, RecordArray):
            value = np.asarray(value)
        if value.dtype.kind not in "biufcV":
            return _checked_array(value)
        native = value.dtype.isnative  # others are what files of some formats hold, not JAX
        return value if native else value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.generic):
        return _checked_array(np.asarray(value))[()] if value.dtype.kind in "SUO" else value
    if isinstance(value, bool | int | float | complex):
        return _python_numbers(np.asarray(value))[()]
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, DatasetBase):
        return value
    if isinstance(value, list | tuple):
        return _array_of_list(value)
    if isinstance(value, jax.Array) or hasattr(value, "__array__"):
        return as_leaf(np.asarray(value))
    raise TypeError(
        f"{_short(value)} cannot be in an element of a data set. Elements are arrays, numbers and "
        "text, and tuples and dicts of those."
    )


def _python_numbers(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.int64:
        info = np.iinfo(np.int32)
        fits = array.size == 0 or (array.min() >= info.min and array.max() <= info.max)
        return array.astype(np.int32) if fits else array
    if array.dtype == np.float64:
        return array.astype(np.float32)
    return array.astype(np.complex64) if array.dtype == np.complex128 else array


def _array_of_list(values: Sequence[Any]) -> np.ndarray:
    """Returns an array of nested lists; those of Python's numbers have 32 bits."""
    first: Any = values
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if isinstance(first, jax.Array) or (hasattr(first, "__array__") and _depth(values) == 1):
        values = [np.asarray(value) for value in values]
    text = isinstance(first, str | bytes)
    try:
        # As objects, because NumPy's own bytes end before the last zeros.
        array = np.array(values, object if text else None)
    except ValueError:
        raise ValueError(
            f"A list in an element of a data set becomes one array, but its rows have different "
            f"lengths: {_short(values)}. Give arrays of one shape, or yield the rows one by one "
            "(from_generator) and use padded_batch."
        ) from None
    if text != (array.dtype.kind in "OSU"):
        raise ValueError(
            f"A list in an element of a data set mixes numbers and text: {_short(values)}."
        )
    if isinstance(first, bool | int | float | complex):
        return _python_numbers(array)
    if isinstance(first, list | tuple):  # there is no item
        return array.astype(np.float32)
    return as_leaf(array)


def _depth(values: object) -> int:
    depth = 0
    while isinstance(values, list | tuple) and values:
        values, depth = values[0], depth + 1
    return depth


def _checked_array(array: np.ndarray) -> np.ndarray:
    """Returns an array of text or objects, as one of bytes."""
    if isinstance(array, RecordArray):
        return array
    if array.dtype.kind == "U":
        flat: list[Any] = [text.encode() for text in array.ravel().tolist()]
    elif array.dtype.kind == "S":
        flat = array.ravel().tolist()
    else:
        flat = array.ravel().tolist()
        if all(kind is bytes for kind in set(map(type, flat))):
            return array
        flat = [_as_bytes(item, array) for item in flat]
    return object_array(flat).reshape(array.shape)


def refuse_sparse(element: Element, what: str) -> None:
    """Raises a `ValueError` for sparse values, which are no rows of arrays."""
    if isinstance(element, SparseTensor):
        raise ValueError(
            f"{what} was given a sparse value (of a VarLenFeature), whose arrays are no rows. "
            "Make it dense in map(), with rx.io.to_dense, or parse after batch(): "
            "dataset.batch(n).map(lambda records: rx.io.parse_example(records, features))."
        )
    if isinstance(element, tuple | dict):
        for child in element.values() if isinstance(element, dict) else element:
            refuse_sparse(child, what)


def _as_bytes(item: object, array: np.ndarray) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return item
    raise TypeError(
        f"An array of Python objects cannot be in an element of a data set, because it holds "
        f"{_short(item)} (shape {array.shape}). Arrays hold numbers, text or bytes; rows of "
        "different lengths go through from_generator and padded_batch."
    )


def object_array(values: Sequence[Any]) -> np.ndarray:
    """Returns a one-dimensional array of objects, also where the objects have lengths."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def as_element(value: object, list_is_tuple: bool = False) -> Any:
    """Returns what a user's function or iterator gave, as an element."""
    if list_is_tuple and isinstance(value, list):
        value = tuple(value)
    kind = type(value)
    if kind is np.ndarray or kind is bytes or isinstance(value, np.generic):
        return as_leaf(value)
    return map_leaves(as_leaf, value)


def own(element: Element) -> Any:
    """Returns the same element, in arrays and containers that nobody else can change.

    A user's function or generator may fill one buffer, or one dict, again and again.
    """
    if isinstance(element, np.generic | bytes):
        return element
    if type(element) is np.ndarray:
        leaves, build = [element], _only
    else:
        structure = Structure(element)
        leaves, build = list(structure.leaves(element)), structure.build
    del element
    for index in range(len(leaves)):
        if _held_elsewhere(leaves, index):
            leaves[index] = np.array(leaves[index])
    return build(leaves)


def _held_elsewhere(leaves: list[Any], index: int) -> bool:
    if type(leaves[index]) is not np.ndarray:
        return False
    if leaves[index].base is None:
        alone = sys.getrefcount(leaves[index]) <= _ALONE
        return not alone and leaves[index].flags.writeable
    owner = leaves[index]
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    # A view, be it a read-only one, changes with the array that owns the memory.
    of_whom = owner if isinstance(owner, np.ndarray) else leaves[index]
    return of_whom.flags.writeable


# References to an array that is in one list only, as `_held_elsewhere` counts them; it depends on
# the version of Python.
_ALONE = (lambda leaves: sys.getrefcount(leaves[0]))([np.empty(1)])


def read_only(leaf: T) -> T:
    """Returns the same leaf; if it is an array, one that cannot be written to through this name."""
    if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
        leaf = leaf.view()
        leaf.flags.writeable = False
    return leaf


def plain(element: Element) -> Any:
    """Returns the same element, with arrays of records as plain arrays that are the user's own."""
    return map_leaves(
        lambda leaf: np.array(leaf, object) if isinstance(leaf, RecordArray) else leaf, element
    )


# ------------------------------------------------------------------ stacking


def stack(leaves: Sequence[Any], allocate: Allocate | None = None) -> np.ndarray:
    """Returns one array from the same leaf of several elements.

    Raises:
      ShapesDiffer: the leaves have different shapes or dtypes.
    """
    first = leaves[0]
    if len(set(map(type, leaves))) > 1 and any(isinstance(leaf, bytes) for leaf in leaves):
        raise ShapesDiffer(leaves)
    if isinstance(first, bytes | DatasetBase):
        return object_array(leaves)
    shape, dtype = first.shape, first.dtype
    for leaf in leaves:
        if leaf.shape != shape or leaf.dtype != dtype:
            raise ShapesDiffer(leaves)
    if dtype == STRING:
        return np.stack(leaves)
    new = (np.empty if allocate is None else allocate)((len(leaves), *shape), dtype)
    if shape:
        np.stack(leaves, out=new)
    else:
        new[:] = leaves
    return new


class ShapesDiffer(Exception):
    """Internal: elements that should become one array are not alike. The caller says whose."""

    def __init__(self, leaves: Sequence[Any]):
        super().__init__()
        descriptions = dict.fromkeys(map(_leaf_text, leaves))
        self.descriptions = ", ".join(list(descriptions)[:4])


def _leaf_text(leaf: Leaf) -> str:
    if isinstance(leaf, np.ndarray | np.generic):
        return f"{'string' if leaf.dtype == STRING else leaf.dtype}{list(leaf.shape)}"
    return "string[]" if isinstance(leaf, bytes) else type(leaf).__name__


_QUICKLY_COPIED = 8192  # bytes


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Returns an empty array at an address that a CPU device takes over without a copy.

    A small one is copied, which is quicker than to find such an address.
    """
    dtype = np.dtype(dtype)
    size = dtype.itemsize
    for each in shape:
        size *= each
    if size < _QUICKLY_COPIED or dtype == STRING:
        return np.empty(shape, dtype)
    raw = np.empty(size + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + size].view(dtype).reshape(shape)
