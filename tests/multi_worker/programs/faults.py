"""Faults for real: a worker that kills, stops, raises, leaves or hangs itself as it was planned to.

A plan is a list of faults in a file of the run. Each happens once, the next one not before the job
has started again: a fault leaves a mark in the run's folder, with the generation that suffered it.
Nothing here knows replicax.
"""

from __future__ import annotations

import dataclasses
import errno
import glob
import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

PLAN = "plan.json"
LONGEST_WAIT = 120.0
FILLER = "filler"


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to which worker, at the end of a step."""

    name: str
    """One of `KINDS`."""
    worker: int
    """Its rank; of as many as there are then."""
    step: int
    """At this step, or at the first after it that comes; 0: before the first step."""
    delay: float = 0.0
    """Seconds later, for faults that come from outside (kill, stop, term, kill-in-save)."""


def write_plan(folder: Path, faults: list[Fault]) -> None:
    """Leaves a plan in the folder of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PLAN).write_text(json.dumps([dataclasses.asdict(fault) for fault in faults]))


class Faults:
    """The plan, as one worker carries it out."""

    def __init__(self, folder: Path, worker: int, workers: int, generation: int) -> None:
        self._folder = folder
        self._worker = worker
        self._workers = workers
        self._generation = generation
        plan = folder / PLAN
        self._plan = (
            [Fault(**each) for each in json.loads(plan.read_text())] if plan.exists() else []
        )
        with_marks = [index for index in range(len(self._plan)) if self._mark(index).exists()]
        # One fault for each generation. What other workers mark meanwhile does not count.
        self._next = len(with_marks)
        self._hunting = False

    def at(self, step: int) -> None:
        """Suffers what is planned for this step, if anything."""
        fault = self._due(step)
        if fault is not None and fault.name != "kill-in-save":
            self._note(step)
            KINDS[fault.name](fault, self._folder)

    def before_save(self, step: int, checkpoints: Path) -> None:
        """Before a checkpoint is saved: a fault may be planned for the middle of it."""
        fault = self._due(step)
        if fault is not None and fault.name == "kill-in-save" and not self._hunting:
            self._hunting = True
            arguments = (fault, step, checkpoints)
            threading.Thread(target=self._kill_in_save, args=arguments, daemon=True).start()

    def _due(self, step: int) -> Fault | None:
        if self._next >= len(self._plan):
            return None
        fault = self._plan[self._next]
        mine = fault.worker % self._workers == self._worker
        return (
            fault if mine and step >= fault.step and not self._mark(self._next).exists() else None
        )

    def _kill_in_save(self, fault: Fault, step: int, checkpoints: Path) -> None:
        """Waits for a save, lets it come so far, and kills this process inside it."""
        delay = fault.delay
        rename = os.rename

        def rename_late(source: str, target: str) -> None:
            if str(source).endswith(
                ".partial"
            ):  # on a busy machine it would be over before it is seen
                time.sleep(delay + 1)
            rename(source, target)

        os.rename = rename_late
        while True:
            while not glob.glob(f"{checkpoints}/*.partial"):
                time.sleep(0.0005)  # nobody tells of a new folder
            time.sleep(delay)
            if glob.glob(f"{checkpoints}/*.partial"):
                self._note(step, inside=True)
                os.kill(os.getpid(), signal.SIGKILL)
            delay /= 2  # it was too late; the next save is not as long

    def _mark(self, index: int) -> Path:
        return self._folder / f"fault-{index}.json"

    def _note(self, step: int, inside: bool = False) -> None:
        note = {
            **dataclasses.asdict(self._plan[self._next]),
            "generation": self._generation,
            "worker": self._worker,
            "suffered_at": step,
            "time": time.time() + self._plan[self._next].delay * (not inside),
            "inside": inside,
        }
        with open(self._mark(self._next), "x", encoding="utf-8") as file:
            json.dump(note, file)


def notes(folder: Path) -> list[dict]:
    """What has happened so far, in order."""
    found = sorted(folder.glob("fault-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    return [json.loads(path.read_text()) for path in found]


def _signal(number: signal.Signals, fault: Fault) -> None:
    """Sends a signal to this process: now, or a moment later, wherever it is by then."""
    if not fault.delay:
        os.kill(os.getpid(), number)
        return
    timer = threading.Timer(fault.delay, os.kill, [os.getpid(), number])
    timer.daemon = True
    timer.start()


def _raise(fault: Fault) -> None:
    raise ValueError(f"bad row in step {fault.step}")


def _hang() -> None:
    while True:
        pass


def _await_term() -> None:
    """Stands still until somebody sends SIGTERM; what the program does about it comes after."""
    handled: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    assert callable(before), "the program does nothing about SIGTERM"

    def handle(number: int, frame: FrameType | None) -> None:
        handled.append(number)
        before(number, frame)

    signal.signal(signal.SIGTERM, handle)
    print("awaits SIGTERM", flush=True)
    end = time.monotonic() + LONGEST_WAIT
    while not handled and time.monotonic() < end:
        time.sleep(0.01)  # which a signal ends
    signal.signal(signal.SIGTERM, before)


def _await_go(folder: Path) -> None:
    """Stands still until somebody leaves a file "go" in the folder."""
    print("awaits go", flush=True)
    end = time.monotonic() + LONGEST_WAIT
    while not (folder / "go").exists() and time.monotonic() < end:
        time.sleep(0.01)  # nobody tells of a new file


def _fill_disk(folder: Path) -> None:
    """Leaves no room where the checkpoints go."""
    with open(folder / "checkpoints" / FILLER, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def _limit_files() -> None:
    """From now on this process can write small files only, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))


KINDS = {
    "kill": lambda fault, _: _signal(signal.SIGKILL, fault),
    "stop": lambda fault, _: _signal(signal.SIGSTOP, fault),
    "term": lambda fault, _: _signal(signal.SIGTERM, fault),
    "await-term": lambda fault, _: _await_term(),
    "await-go": lambda fault, folder: _await_go(folder),
    "raise": lambda fault, _: _raise(fault),
    "exit": lambda fault, _: sys.exit(0),
    "exit-3": lambda fault, _: sys.exit(3),
    "hang": lambda fault, _: _hang(),
    "full-disk": lambda fault, folder: _fill_disk(folder),
    "small-files": lambda fault, _: _limit_files(),
    "kill-in-save": None,
}
