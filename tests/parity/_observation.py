"""Observations: what a scenario saw, as JSON, and how two of them are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

Observation: TypeAlias = Any
"""Whatever `json` can write: None, bool, int, float, str, and lists and dicts of them."""

TOLERANCE = 1e-5


class Seen(dict[str, Any]):
    """A finished description of a value, to be kept as it is when it is observed again."""


def describe_array(array: np.ndarray) -> dict[str, Any]:
    """Describes an array by type and contents, and by shape where the contents do not show it."""
    description: dict[str, Any] = {"dtype": array.dtype.name, "value": array.tolist()}
    if array.size == 0:
        description["shape"] = list(array.shape)
    return description


def describe_structure(value: Any, observe: Callable[[Any], Observation]) -> Observation:
    """Describes plain Python: the nests of the two libraries, NumPy values and everything else."""
    if isinstance(value, Seen):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return Seen(kind="numpy", **describe_array(np.asarray(value)))
    if isinstance(value, Mapping):
        return {str(key): observe(item) for key, item in value.items()}
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        if fields is None:
            return Seen(tuple=[observe(item) for item in value])
        items = {name: observe(getattr(value, name)) for name in fields}
        return Seen({type(value).__name__: items})
    if isinstance(value, list):
        return [observe(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return Seen(kind=type(value).__name__)


def describe_spec(shape: Iterable[int | None] | None, dtype: str) -> str:
    """Describes a spec as in "float32[?, 3]"; "float32[...]" where even the rank is unknown."""
    if shape is None:
        return f"{dtype}[...]"
    return f"{dtype}[{', '.join('?' if size is None else str(size) for size in shape)}]"


def differences(expected: Observation, got: Observation, path: str = "") -> Iterator[str]:
    """Yields one readable line for each place where two observations differ."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        for key in expected:
            yield from differences(expected[key], got[key], f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, pair in enumerate(zip(expected, got, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif not _same_leaf(expected, got):
        yield f"{path.lstrip('.') or 'result'}: expected {expected!r}, got {got!r}"


def _same_leaf(expected: Observation, got: Observation) -> bool:
    if type(expected) is float and type(got) is float:
        both_nan = math.isnan(expected) and math.isnan(got)
        return both_nan or math.isclose(expected, got, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(expected) is type(got) and expected == got
