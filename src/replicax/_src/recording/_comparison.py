"""Two runs of a step side by side: the first value in which they differ by more than rounding.

Each run writes down its values, in the order in which they are made: variables before the step, its
arguments and what each operation gives ("activations", those of the backward pass as well),
gradients, results, and variables after it. The runs may have other numbers of replicas.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np

_MOST_BYTES = 2 << 30  # of the values that are written down
_ROUNDING = 2000.0  # times the precision of the dtype: sums have many terms
_NAMED = 5
INDEX = "values.json"


@final
class Values:
    """Writes down the values of a run.

    Args:
      folder: where; it exists.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._entries: list[list[Any]] = []
        self._bytes = 0

    def add(self, kind: str, name: str, parts: Sequence[Any] | np.ndarray, line: str = "") -> None:
        """Adds a value.

        Args:
          kind: what it is.
          name: of the variable, or the operation.
          parts: what each replica has of it.
          line: of the program.
        """
        arrays = [np.asarray(part) for part in parts]
        if not arrays or not jnp.issubdtype(arrays[0].dtype, jnp.floating):
            return
        if len({each.shape for each in arrays}) > 1:  # uneven shares
            arrays = [np.concatenate(arrays)]
        precision = float(jnp.finfo(arrays[0].dtype).eps)
        array = np.stack(arrays).astype(np.float64 if precision < 1e-10 else np.float32)
        self._bytes += array.nbytes
        file = ""
        if self._bytes <= _MOST_BYTES:
            file = f"{len(self._entries)}.npy"
            np.save(os.path.join(self._folder, file), array, allow_pickle=False)
        self._entries.append([kind, name, line, precision, file])

    def close(self) -> None:
        """Writes what there is."""
        with open(os.path.join(self._folder, INDEX), "w", encoding="utf-8") as file:
            json.dump(self._entries, file)


@final
@dataclasses.dataclass(frozen=True)
class Difference:
    """A value in which two runs differ."""

    kind: str
    name: str
    line: str
    replica: int | None
    index: tuple[int, ...]
    first: float
    second: float
    relative: float

    def __str__(self) -> str:
        at = f" at {self.line}" if self.line else ""
        on = "" if self.replica is None else f" on replica {self.replica}"
        element = f", element {list(self.index)}" if self.index else ""
        return (
            f"{self.kind} {self.name}{at}{on}{element}: {self.first:.7g} and {self.second:.7g}, "
            f"apart by {self.relative:.1e} of the largest value"
        )


def differences(first: str, second: str) -> tuple[list[Difference], int, int]:
    """Compares the values of two runs.

    Returns:
      The differences in the order of the program; how many values were compared, and how many have
      no counterpart, or none of a shape that could be compared.
    """
    mine, theirs = _entries(first), _entries(second)
    keys = [[tuple(entry[:3]) for entry in each] for each in (mine, theirs)]
    matcher = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    found: list[Difference] = []
    compared = 0
    for a, b, size in matcher.get_matching_blocks():
        for offset in range(size):
            kind, name, line, precision, file = mine[a + offset]
            *_, other_precision, other_file = theirs[b + offset]
            if not file or not other_file:
                continue
            pair = _aligned(
                np.load(os.path.join(first, file), allow_pickle=False),
                np.load(os.path.join(second, other_file), allow_pickle=False),
            )
            if pair is None:
                continue
            compared += 1
            tolerance = max(_ROUNDING * max(precision, other_precision), 1e-9)
            difference = _difference((kind, name, line), pair, min(tolerance, 0.3))
            if difference is not None:
                found.append(difference)
    return found, compared, max(len(mine), len(theirs)) - compared


def said(found: Sequence[Difference], compared: int, left: int) -> str:
    """Returns what two runs differ in, in words."""
    more = f" ({left} have no counterpart of their shape)" if left else ""
    if not found:
        return f"  {compared} values are the same in both, to rounding{more}"
    lines = [
        f"  of {compared} values{more} {len(found)} differ by more than rounding. First of all:"
    ]
    lines.append(f"  {found[0]}")
    for kind in ("variable before", "gradient of", "variable after"):
        names = [each.name for each in found if each.kind == kind and each is not found[0]]
        if names:
            rest = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
            lines.append(f"  also: {kind} {', '.join(names[:_NAMED])}{rest}")
    return "\n".join(lines)


def _entries(folder: str) -> list[list[Any]]:
    with open(os.path.join(folder, INDEX), encoding="utf-8") as file:
        return json.load(file)


def _aligned(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """Returns two values in one shape, and whether its first dimension is that of replicas.

    With other numbers of replicas: rows that were shared out are put together again; of what each
    replica has alone, it is the sum or the same on all that is comparable, whichever is closer.
    """
    if a.shape == b.shape:
        return a, b, True
    for x, y in ((_rows(a), _rows(b)),):
        if x is not None and y is not None and x.shape == y.shape:
            return x, y, False
    if a.shape[1:] != b.shape[1:]:
        return None
    pairs = list(_as_one(a, b))
    return (*min(pairs, key=lambda pair: _apart(*pair)), False)


def _rows(array: np.ndarray) -> np.ndarray | None:
    """Returns the rows of all replicas."""
    return array.reshape(-1, *array.shape[2:]) if array.ndim > 1 else None


def _as_one(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield a.sum(0), b.sum(0)
    yield a.mean(0), b.mean(0)
    yield a[0], b[0]


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.nan_to_num(np.max(np.abs(a - b), initial=0.0), nan=np.inf))


def _difference(
    what: tuple[str, str, str], pair: tuple[np.ndarray, np.ndarray, bool], tolerance: float
) -> Difference | None:
    a, b, has_replicas = pair
    if not a.size:
        return None
    finite = np.isfinite(a) & np.isfinite(b)
    scale = max(
        float(np.max(np.abs(a), where=finite, initial=0.0)),
        float(np.max(np.abs(b), where=finite, initial=0.0)),
        1e-30,
    )
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        off = np.where(same, 0.0, np.where(finite, np.abs(a - b) / scale, np.inf))
    if float(off.max()) <= tolerance:
        return None
    place = tuple(map(int, np.unravel_index(int(np.argmax(off > tolerance)), a.shape)))
    replica, index = (place[0], place[1:]) if has_replicas else (None, place)
    kind, name, line = what
    first, second = float(a[place]), float(b[place])
    return Difference(kind, name, line, replica, index, first, second, float(off.max()))
