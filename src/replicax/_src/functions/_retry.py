"""Why a trace is given up, and what is done instead. Internal: users never see these.

They are BaseExceptions, so that a user's `except Exception` does not catch them.
"""

from __future__ import annotations

from replicax._src._typing import Device
from replicax._src.variable import Variable


class Retry(BaseException):
    """Base: the trace cannot go on; the text says why."""


class OtherDevicesNeeded(Retry):
    """The function runs replicas on these devices: it is traced again, for them."""

    def __init__(self, devices: tuple[Device, ...]):
        super().__init__("the program is for other devices")
        self.devices = devices


class RefNeeded(Retry):
    """An inner function reads this variable and changes it: trace again, with a mutable cell.

    The body of a loop is traced once. What it reads at its start must be what it wrote at its end,
    and so come from a mutable cell; that is known too late for the trace in which it happens.
    """

    def __init__(self, variable: Variable):
        super().__init__(f"variable {variable.name!r} needs a mutable cell")
        self.variable = variable


class OnlyPython(Retry):
    """The function runs as plain Python."""


class Uneven(OnlyPython):
    """The components of a per-replica value cannot be one array."""


class UnevenShapes(Uneven):
    """They have different shapes, as the shares of a batch that the replicas do not divide."""


class NotOneProgram(Retry):
    """The function runs as Python, with each of its `strategy.run` compiled."""


class NumberNeeded(Retry):
    """Python needs the number of each replica: trace once for each of them, with its number."""

    def __init__(self) -> None:
        super().__init__("Python needs the replica's number")


class NumPyNeeded(Retry):
    """A NumPy array that the function captures is used by NumPy: trace it again as a constant."""

    def __init__(self) -> None:
        super().__init__("NumPy computes with an array that the function captures")
