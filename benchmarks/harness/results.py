"""Stored results: `results/<machine>/<run>.json`, what was measured with where, when and how."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import FOLDER as BENCHMARKS

FOLDER = BENCHMARKS / "results"


@dataclass(frozen=True)
class Result:
    """One run of a benchmark on a machine.

    Args:
      benchmark: the chapter of the page.
      run: which of its runs; the name of the file.
      machine: the name of the folder.
      machine_title: the machine, in words.
      date: when it was measured, or written down if no one knows better.
      command: what shows these numbers, from the root of the repository; None: not kept.
      versions: of what was measured, and of the peers.
      conditions: more about the run.
      measured: the rows of each table, and whatever else the benchmark wrote.
      label: what tells it from another run of the same benchmark on the same machine.
      notes: of this run only, and replaced with it.
      transcribed: copied from a table that was printed, so that its numbers are rounded.
    """

    benchmark: str
    run: str
    machine: str
    machine_title: str
    date: str
    command: str | None
    versions: dict[str, str]
    conditions: dict[str, str]
    measured: dict[str, Any]
    label: str = ""
    notes: Sequence[str] = field(default_factory=list)
    transcribed: bool = False

    @property
    def where(self) -> str:
        return f"{self.machine_title}, {self.label}" if self.label else self.machine_title


def path_of(folder: Path, machine: str, run: str) -> Path:
    """Returns the file of a result."""
    return folder / machine / f"{run}.json"


def store(result: Result, folder: Path = FOLDER) -> Path:
    """Writes a result in place of the last one of this run, and of those copied by hand for it."""
    path = path_of(folder, result.machine, result.run)
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.glob(f"{result.run}-*.json"):
        if load(other).transcribed and not result.transcribed:
            other.unlink()
    path.write_text(json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n")
    return path


def load(path: Path) -> Result:
    """Returns the result in a file; the error says which file if it is none."""
    try:
        return Result(**json.loads(path.read_text()))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a stored result ({error}). Measure it again with `make bench`, or "
            "remove it."
        ) from error


def load_all(folder: Path = FOLDER) -> list[Result]:
    """Returns all stored results."""
    return [load(path) for path in sorted(folder.glob("*/*.json"))]
