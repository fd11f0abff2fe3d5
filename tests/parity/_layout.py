"""Layouts: how many workers a job has, with how many devices each, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Workers times devices, as in "2x2"."""

    workers: int
    devices: int
    chief: bool = False
    """Whether the first worker is the chief, and the others are workers from 0 on."""

    @property
    def name(self) -> str:
        """The name by which recordings and tests know it."""
        return f"{self.workers}x{self.devices}"

    @property
    def replicas(self) -> int:
        """How many replicas all workers have together."""
        return self.workers * self.devices


LAYOUTS = {
    layout.name: layout
    for layout in (Layout(2, 1), Layout(3, 1, chief=True), Layout(2, 2), Layout(4, 1))
}
