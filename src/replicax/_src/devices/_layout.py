"""How one array lies on the devices of replicas: what is cut over what."""

# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def whole_numbers(parts: object, what: str, size_of: str) -> tuple[int, ...]:
    """Returns a list of numbers of parts, checked: each is at least 1."""
    if isinstance(parts, str | bytes) or not isinstance(parts, Sequence | np.ndarray):
        raise TypeError(f"{what}: `{size_of}` is a list of integers; got {parts!r}.")
    given: list[Any] = list(parts)  # pyright: ignore[reportUnknownArgumentType]  # checked below
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in given):
        raise TypeError(f"{what}: `{size_of}` is a list of integers; got {given!r}.")
    found = tuple(int(n) for n in given)
    if any(n < 1 for n in found):
        raise ValueError(f"{what}: `{size_of}` has numbers below 1: {list(found)}.")
    return found


@dataclasses.dataclass(frozen=True)
class Layout:
    """How an array is placed on the devices.

    Attributes:
      parts: into how many parts each dimension is cut over the logical devices of a replica; empty
        if each of them has all of it.
      replica_dim: the dimension that is cut over the replicas; None if each of these has it all.
    """

    parts: tuple[int, ...] = ()
    replica_dim: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", whole_numbers(self.parts, "Layout", "parts"))
        dim = self.replica_dim
        if dim is not None and (not isinstance(dim, int) or isinstance(dim, bool) or dim < 0):
            raise ValueError(
                f"Layout: `replica_dim` is the number of a dimension, from 0, or None; got {dim!r}."
            )

    @property
    def is_plain(self) -> bool:
        """Whether every device has everything."""
        return not self.parts and self.replica_dim is None

    def axes_over(self, replica_axis: str) -> list[tuple[str, ...]]:
        """Returns the axes of a mesh for each dimension up to that which is cut over replicas."""
        if self.replica_dim is None:
            return []
        return [()] * self.replica_dim + [(replica_axis,)]

    def __str__(self) -> str:
        texts: list[str] = []
        if self.parts:
            texts.append(f"split {list(self.parts)} over the logical devices")
        if self.replica_dim is not None:
            texts.append(f"dimension {self.replica_dim} sharded over the replicas")
        return ", ".join(texts) or "a copy on each device"


PLAIN = Layout()


def checked_parts(
    shape: Sequence[int] | None, parts: object, logical_devices: int, what: str, size_of: str
) -> tuple[int, ...]:
    """`parts` as a tuple of integers, checked against a shape and the number of logical devices.

    Args:
      shape: of the array; None if it is not known.
      parts: what the user gave.
      logical_devices: how many a replica has.
      what: the call, for messages.
      size_of: the argument, for messages.

    Raises:
      TypeError: it is no list of integers.
      ValueError: its length, its product, or a size that it does not divide.
    """
    found = whole_numbers(parts, what, size_of)
    if shape is not None and len(found) != len(shape):
        raise ValueError(
            f"{what}: `{size_of}` is {list(found)}, with {len(found)} number(s), but the tensor "
            f"has {len(shape)} dimension(s), {tuple(shape)}. Give one number for each dimension: "
            "1 where it is not to be split."
        )
    if math.prod(found) != logical_devices:
        raise ValueError(
            f"{what}: the product of `{size_of}` {list(found)} is {math.prod(found)}, but a "
            f"replica has {logical_devices} logical device(s). It must be equal: choose other "
            "numbers, or another number of logical devices when you make the strategy."
        )
    if shape is not None:
        for dim, (size, count) in enumerate(zip(shape, found, strict=True)):
            if size % count:
                raise ValueError(
                    f"{what}: dimension {dim} of the tensor has size {size}, which cannot be split "
                    f"into {count} equal parts (shape {tuple(shape)}, `{size_of}` {list(found)}). "
                    "Pad the tensor, or split another dimension."
                )
    return found


def prime_factors(number: int) -> tuple[int, ...]:
    """In rising order; of 1, none."""
    found: list[int] = []
    factor = 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return tuple(found)
