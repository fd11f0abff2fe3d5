"""`Run`: what the walks over a pipeline that belong together share, and what tells them apart."""

from __future__ import annotations

import collections
import dataclasses
import secrets
from typing import Any, final

import numpy as np


def draw() -> int:
    """Returns a random seed, for an operation to which the user gave none."""
    return secrets.randbits(63)


@final
@dataclasses.dataclass(frozen=True)
class Run:
    """One iteration over a data set.

    Attributes:
      iteration: how many times the data set was iterated over before.
      seeds: what is used in the place of seeds that nodes drew for themselves, by those.
      inner_seeds: the same for nodes of data sets that are made on the way, of elements.
      epoch: which repetition this is, for every `repeat` around.
      walks: how many walks there were over each node, in each epoch.
      is_preview: whether only the first elements are read, to see what they look like.
    """

    iteration: int = 0
    seeds: dict[int, int] = dataclasses.field(default_factory=dict)
    inner_seeds: dict[int, int] = dataclasses.field(default_factory=dict)
    epoch: tuple[int, ...] = ()
    walks: collections.Counter[Any] = dataclasses.field(default_factory=collections.Counter)
    is_preview: bool = False

    def restarted(self) -> Run:
        """Returns the same iteration, to be walked over again from its start."""
        return dataclasses.replace(self, walks=collections.Counter())

    def in_epoch(self, number: int) -> Run:
        return dataclasses.replace(self, epoch=(*self.epoch, number))

    def with_defaults(self, seeds: dict[int, int]) -> Run:
        """Returns the same run with these seeds for nodes that have none in `seeds`."""
        return dataclasses.replace(self, seeds={**seeds, **self.seeds})

    def with_inner_seeds(self, seeds: dict[int, int]) -> Run:
        return dataclasses.replace(self, inner_seeds={**self.inner_seeds, **seeds})

    def from_the_start(self) -> Run:
        """Returns the first walk of the first iteration, as what is computed once sees it."""
        return Run(seeds=self.seeds, inner_seeds=self.inner_seeds)

    def seed_of(self, drawn: int) -> int:
        return self.inner_seeds.get(drawn, self.seeds.get(drawn, drawn))

    @property
    def other_seeds(self) -> dict[int, int]:
        """Those of `seeds` that are not what the nodes drew: of a state that is continued."""
        return {drawn: seed for drawn, seed in self.seeds.items() if seed != drawn}

    def random(self, seed: int, node: int, same_each_time: bool) -> np.random.Generator:
        """Returns the random numbers of one walk over a node."""
        key = self.key(seed, node, same_each_time)
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))

    def key(self, seed: int, node: int, same_each_time: bool = False) -> list[int]:
        """Returns numbers that tell one walk over a node from others."""
        key = [seed % 2**64]
        if not same_each_time:
            walk = self.walks[node, self.epoch]  # a node may be read twice: ds.concatenate(ds)
            self.walks[node, self.epoch] += 1
            key += [self.iteration + 1, *[epoch + 1 for epoch in self.epoch], walk]
        return key


@final
class Iterations:
    """Counts the iterations over a data set."""

    def __init__(self) -> None:
        self._next = 0
        self._seeds: dict[int, int] = {}

    def begin(self) -> Run:
        """Returns the run of the next iteration."""
        number, self._next = self._next, self._next + 1
        return Run(number, self._seeds)

    def use(self, seeds: dict[int, int]) -> None:
        """Uses these in the place of seeds that nodes drew for themselves."""
        self._seeds = seeds

    def resume(self, run: Run) -> None:
        """Notes that `run` is continued: later iterations are those that would have followed it."""
        self._next, self._seeds = run.iteration + 1, run.seeds


def derived(seed: int, *numbers: int) -> int:
    """Returns another seed, computed from a seed and some numbers."""
    state = np.random.SeedSequence([seed % 2**64, *numbers]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
