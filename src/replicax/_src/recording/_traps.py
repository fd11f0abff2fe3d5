"""Traps: what is looked at in each step, and what is said where it is wrong."""

from __future__ import annotations

import dataclasses
import numbers
from typing import final

import numpy as np


@final
@dataclasses.dataclass(frozen=True)
class Traps:
    """What an `rx.debug.Recorder` looks for. Nothing, unless it is asked for.

    >>> import replicax as rx
    >>> rx.debug.Traps(finite=True, slower_than=10.0).finite
    True

    Attributes:
      finite: finds infinite values and NaNs among the results of the step, the gradients that each
        replica gives an optimizer, and the trainable variables after the step.
      bound: finds values of the same beyond it, such as 1e6; implies `finite`.
      bits: records the sum of the bits of each of these gradients and variables, so that a replay
        sees a single bit that was another one; implies `finite`. Without it, the largest absolute
        values are compared.
      copies_every: compares the copies of all variables, on all replicas of all workers, after
        every so many steps, as `rx.debug.check_replicas` does.
      slower_than: finds steps that take more than so many times the median of the last ones,
        from the call until the results are there. A pause between two calls does not count, but in
        a job of many workers the others wait for it inside of theirs. Nor does a step for which a
        program is compiled: the first one with other shapes.
    """

    finite: bool = False
    bound: float | None = None
    bits: bool = False
    copies_every: int | None = None
    slower_than: float | None = None

    def __post_init__(self) -> None:
        for name in ("finite", "bits"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"Traps: `{name}` is True or False; got {getattr(self, name)!r}.")
        if self.bound is not None and not (_is_number(self.bound) and self.bound > 0):
            raise ValueError(
                f"Traps: `bound` is a number above 0, such as 1e6; got {self.bound!r}."
            )
        every = self.copies_every
        if every is not None and not (_is_number(every) and every == int(every) and every >= 1):
            raise ValueError(f"Traps: `copies_every` is a number of steps; got {every!r}.")
        if self.slower_than is not None and not (
            _is_number(self.slower_than) and self.slower_than > 1
        ):
            raise ValueError(
                f"Traps: `slower_than` is a factor above 1, such as 10; got {self.slower_than!r}."
            )


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value


@final
@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that a trap has found.

    Attributes:
      step: where.
      kind: of the trap.
      text: what is wrong.
      worker: the one where it is wrong; None if it is not that of one.
      excess: seconds more than usual.
    """

    step: int
    kind: str
    text: str
    worker: int | None = None
    excess: float = 0.0
