"""What elements look like, as JSON: for the files of `cache`, `save` and `snapshot`.

Classes of containers are not looked up by name: where elements have any but tuples and dicts, there
is a text instead, and the data set itself says which.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from replicax._src._typing import PyTree
from replicax._src.data._elements import Element, Structure, map_leaves
from replicax._src.data._indexed import NUMBERS
from replicax._src.records import PaddedRows, SparseTensor


def is_dtype(name: object) -> bool:
    """Returns whether leaves of a dtype with this name can be in a file."""
    return name == "string" or dtype_called(name) is not None


def dtype_called(name: object) -> np.dtype | None:
    """Returns the dtype of numbers with this name, if there is one."""
    if not isinstance(name, str) or not name.isidentifier():
        return None
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    numbers = dtype.kind in NUMBERS and dtype.type is not np.void
    return dtype if numbers and dtype.name == name else None


_TUPLES = {tuple: "tuple", SparseTensor: "sparse", PaddedRows: "padded"}


def described(element: Element) -> Any:
    """Returns the structure as JSON, where it is of tuples and dicts; as a text otherwise."""
    nested = _nested(map_leaves(lambda _: 0, element))
    return Structure(element).text if nested is None else nested


def _nested(like: PyTree) -> Any:
    kind = type(like)
    if kind is int:
        return []
    if kind is dict and all(type(key) is str for key in like):
        parts = [[key, _nested(child)] for key, child in like.items()]
        return None if any(part is None for _, part in parts) else ["dict", *parts]
    if kind in _TUPLES:
        children = [_nested(child) for child in like]
        name = _TUPLES[kind]
        return None if any(child is None for child in children) else [name, *children]
    return None


def integer(value: object) -> int:
    """Returns what JSON had, if it is an integer."""
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no integer")
    return value


def structure_like(described: list[Any]) -> Any:
    """Returns a structure with numbers in the place of its leaves, of what `described` gave.

    Raises:
      ValueError, TypeError, LookupError, RecursionError: it is something else.
    """
    if not described:
        return 0
    kind, *parts = described
    match kind:
        case "dict":
            return {_key(key): structure_like(child) for key, child in parts}
        case "tuple":
            return tuple(structure_like(child) for child in parts)
        case "sparse":
            return SparseTensor(*[structure_like(child) for child in parts])
        case "padded":
            return PaddedRows(*[structure_like(child) for child in parts])
    raise ValueError(f"{kind!r:.40} is no container")


def _key(key: object) -> str:
    if type(key) is not str:
        raise TypeError(f"{key!r:.40} is no text")
    return key
