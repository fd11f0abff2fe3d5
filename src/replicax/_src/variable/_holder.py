"""Values that are in other processes, which can write and read them themselves."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import numpy as np


@final
class Piece(NamedTuple):
    """Rows of a variable, all or some, in one process.

    Attributes:
      process: its number.
      key: what the process calls them.
      start: the number of the first row.
      stop: the number after the last row; of a variable without rows, 1.
    """

    process: int
    key: int
    start: int
    stop: int


class Task(abc.ABC):
    """Functions that run in the processes of a holder."""

    @abc.abstractmethod
    def results(self) -> dict[int, Any]:
        """Waits for them. Returns what each process has to say; raises the error of one."""

    @abc.abstractmethod
    def end(self) -> None:
        """Waits for them, whatever becomes of them; they keep nothing."""

    @abc.abstractmethod
    def adopt(self) -> None:
        """Makes what was read the values of the variables."""


class Holder(abc.ABC):
    """Processes that hold the values of variables."""

    @abc.abstractmethod
    def pieces(self, variable: Any, with_copies: bool) -> list[Piece]:
        """Returns where the value of a variable is, by rows.

        Args:
          variable: one of this holder's.
          with_copies: whether to name all processes that have the same rows, and not the first.
        """

    @abc.abstractmethod
    def ask(self, question: Callable[[], Any]) -> list[Any]:
        """Calls a function in all processes. Returns the answers in their order."""

    @abc.abstractmethod
    def write(
        self, calls: Mapping[int, tuple[Callable[[dict[str, np.ndarray]], Any], dict[str, int]]]
    ) -> Task:
        """Lets processes call functions with values as they are now, by name.

        Args:
          calls: for each process, its function, and the keys of what it gets.
        """

    @abc.abstractmethod
    def read(self, calls: Mapping[int, Callable[[], dict[int, np.ndarray]]]) -> Task:
        """Lets processes call functions that return new values, by key."""
