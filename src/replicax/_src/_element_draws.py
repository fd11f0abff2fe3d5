"""Random numbers for a function of `map` that follow from the element's place in the data.

An element that is read again, by a state that is continued, is then made as it was. `rx.data` says
which element a thread is at, and `rx.image` asks.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence

import numpy as np


class _Here(threading.local):
    """Where the thread is: the key of an element, and why there is none."""

    key: tuple[int, ...] | None = None
    drawn = itertools.count()
    refusal: str | None = None


_here = _Here()
_outside: dict[int, np.random.Generator] = {}  # by seed, for calls outside of pipelines
_lock = threading.Lock()


@contextlib.contextmanager
def at_element(key: Sequence[int]) -> Iterator[None]:
    """Numbers that are drawn inside the block are those of an element.

    Args:
      key: the seed of the operation, and the place of the element.
    """
    before = _here.key, _here.drawn
    _here.key, _here.drawn = tuple(key), itertools.count()
    try:
        yield
    finally:
        _here.key, _here.drawn = before


@contextlib.contextmanager
def no_draws(reason: str) -> Iterator[None]:
    """Refuses to draw inside the block, with this reason."""
    before, _here.refusal = _here.refusal, reason
    try:
        yield
    finally:
        _here.refusal = before


def generator_for(seed: int | None) -> np.random.Generator:
    """Returns the numbers of one call: of the element that the thread is at, or just the next ones.

    Args:
      seed: the user's; without it, the operation's own.
    """
    if _here.refusal is not None:
        raise RuntimeError(_here.refusal)
    if _here.key is not None:
        own, *place = _here.key
        marks = [0, own] if seed is None else [1, seed]
        key = [*marks, *place, next(_here.drawn)]
        return np.random.Generator(
            np.random.Philox(np.random.SeedSequence([k % 2**64 for k in key]))
        )
    if seed is None:
        return np.random.default_rng()
    with _lock:
        if seed not in _outside:
            _outside[seed] = np.random.default_rng(seed % 2**64)
        return np.random.default_rng(int(_outside[seed].integers(2**63)))
