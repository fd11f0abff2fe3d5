"""The books of a training run: what each worker did at each step, and what of it has counted.

Every worker of every generation writes lines as it goes. Of what a generation has done, that counts
which a checkpoint carried over into a later generation, or which was there at the end of the run.
`Audit` reads the lines and proves that every row has counted once per epoch.
"""

from __future__ import annotations

import collections
import json
import time
from pathlib import Path
from typing import Any, NamedTuple


class Book:
    """Where one worker of one generation writes."""

    def __init__(self, folder: Path, generation: int, worker: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(
            folder / f"audit-{generation}-{worker}.jsonl", "a", buffering=1, encoding="utf-8"
        )
        self._common = {"generation": generation, "worker": worker}

    def write(self, **facts: Any) -> None:
        """One line; it survives the end of the process."""
        self._file.write(json.dumps({**self._common, "time": time.time(), **facts}) + "\n")


class Step(NamedTuple):
    """One step that has counted, put together from what the workers of its generation wrote."""

    number: int
    generation: int
    rows: tuple[int, ...]
    """Of the global batch, in order."""
    loss: float
    state: str
    """A hash of all variables after it."""


class Audit:
    """What the books say. Made at the end of a run, or in the middle of it."""

    def __init__(self, folder: Path) -> None:
        self.starts: dict[int, list[dict[str, Any]]] = collections.defaultdict(list)
        """By generation, the first line of each worker."""
        self.ends: dict[int, list[dict[str, Any]]] = collections.defaultdict(list)
        self._lines: dict[int, dict[int, list[dict[str, Any]]]] = {}
        for path in folder.glob("audit-*.jsonl"):
            # Who was killed while writing has left half a line.
            for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
                self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        generation = line["generation"]
        if "restored" in line:
            self.starts[generation].append(line)
        elif "end" in line:
            self.ends[generation].append(line)
        else:
            steps = self._lines.setdefault(generation, {})
            steps.setdefault(line["step"], []).append(line)

    @property
    def generations(self) -> list[int]:
        """Those in which a worker came as far as restoring."""
        return sorted(self.starts)

    def restored(self, generation: int) -> int:
        """The step from which a generation has gone on; all its workers must say the same."""
        found = {(line["restored"], line["state"]) for line in self.starts[generation]}
        assert len(found) == 1, f"the workers of generation {generation} restored {found}"
        return found.pop()[0]

    def rows(self, generation: int) -> dict[int, list[int]]:
        """What a generation has read at each step, whether it has counted or not."""
        done = self._lines.get(generation, {})
        return {step: [r for line in lines for r in line["rows"]] for step, lines in done.items()}

    def made(self) -> int:
        """How many steps were made in all, whether they have counted or not."""
        return sum(len(steps) for steps in self._lines.values())

    def committed(self) -> list[Step]:
        """The steps that have counted, in order; raises if there are gaps, or some counted twice.

        And if a generation did not go on from the very state in which the earlier one was.
        """
        steps: list[Step] = []
        generations = self.generations
        for generation, following in zip(generations, [*generations[1:], None], strict=True):
            start = self.restored(generation)
            assert start == len(steps), f"generation {generation} began at {start} of {len(steps)}"
            state = self.starts[generation][0]["state"]
            assert not steps or state == steps[-1].state, f"generation {generation}: other state"
            done = self._lines.get(generation, {})
            end = max(done, default=start) if following is None else self.restored(following)
            assert end >= start, f"generation {generation} began at {start}, the next at {end}"
            steps += [self._step(generation, number) for number in range(start + 1, end + 1)]
        return steps

    def _step(self, generation: int, number: int) -> Step:
        lines = sorted(
            self._lines.get(generation, {}).get(number, []), key=lambda line: line["worker"]
        )
        workers = self.starts[generation][0]["workers"]
        where = f"step {number} of generation {generation}"
        assert [line["worker"] for line in lines] == list(range(workers)), f"{where}: {lines}"
        same = {(line["loss"], line["state"]) for line in lines}
        assert len(same) == 1, f"{where}: the workers have {same}"
        loss, state = same.pop()
        rows = tuple(row for line in lines for row in line["rows"])
        return Step(number, generation, rows, loss, state)

    def check(self, rows: int, epochs: int) -> list[Step]:
        """Returns the committed steps; raises unless every row counts once in each epoch."""
        steps = self.committed()
        in_order = [row for step in steps for row in step.rows]
        assert len(in_order) == rows * epochs, f"{len(in_order)} rows in {len(steps)} steps"
        for epoch in range(epochs):
            counts = collections.Counter(in_order[epoch * rows : (epoch + 1) * rows])
            wrong = {row: counts[row] for row in range(rows) if counts[row] != 1}
            assert not wrong, f"epoch {epoch}: rows that were not committed once: {wrong}"
        return steps
