"""Looks for programs that break a law: `python -m tests.fuzz --minutes 30` (`make fuzz`).

Every law gets its turn, in processes that run some of its programs and end, because compiled
programs fill the memory. A process that dies or hangs is a finding, too.
"""

import argparse
import dataclasses
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LAWS = sorted(path.stem.removeprefix("test_") for path in HERE.glob("test_*.py"))
# Programs that a law has in one turn, in one process or, where they fill its memory, in several.
TURN = 40
# Seconds without a word from a process, after which it hangs: a program takes one or two.
PATIENCE = 300.0


@dataclasses.dataclass
class Score:
    """What the programs of one law have shown so far."""

    programs: int = 0
    comparisons: int = 0
    findings: dict[int, str] = dataclasses.field(default_factory=dict)


class Turns:
    """Hands out which programs to run next, law by law, until the time is over."""

    def __init__(self, laws: list[str], first: int, programs: int | None, minutes: float):
        self._laws = itertools.cycle(laws)
        self._next = dict.fromkeys(laws, first)
        self._end = first + programs if programs is not None else None
        self._deadline = time.monotonic() + minutes * 60
        self._lock = threading.Lock()

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        while self.seconds_left > 0:
            with self._lock:
                for law in itertools.islice(self._laws, len(self._next)):
                    first = self._next[law]
                    count = TURN if self._end is None else min(TURN, self._end - first)
                    if count > 0:
                        self._next[law] += count
                        break
                else:
                    return
            yield law, first, count


def run_turn(law: str, first: int, count: int, turns: Turns, score: Score) -> int:
    """Runs programs of a law in a process of their own; returns how many were run or given up."""
    command = [sys.executable, "-m", "tests.fuzz.worker", law, str(first), str(count)]
    process: Any = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE.parent.parent
    )
    events: queue.Queue[str | None] = queue.Queue()
    said: list[str] = []
    readers = [
        threading.Thread(target=_read, args=(process.stdout, events.put)),
        threading.Thread(target=_read, args=(process.stderr, said.append)),
    ]
    for reader in readers:
        reader.start()
    running, ended = first, "did not start"
    try:
        while True:
            try:
                event = events.get(timeout=PATIENCE)
            except queue.Empty:
                ended = f"said nothing for {PATIENCE:.0f} s and was ended"
                break
            if event is None:
                ended = _how_it_ended(process)
                break
            if not event.startswith('{"seed"'):  # printed by the program
                continue
            running = _note(json.loads(event), score)
            if turns.seconds_left < 0:
                ended = ""
                break
    finally:
        process.kill()
        process.wait()
        for reader in readers:
            reader.join()
        for stream in (process.stdout, process.stderr):
            stream.close()
    if ended:
        last = "".join(line for line in said[-30:] if line)
        score.findings[running] = f"The process {ended}.\n{last}"
    return running - first + 1


def _how_it_ended(process: subprocess.Popen[str]) -> str:
    """Returns what was wrong with its end, or an empty text."""
    try:
        status = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return f"did not end in {PATIENCE:.0f} s after its last program"
    return f"ended with status {status}" if status else ""


def _read(stream: Any, put: Any) -> None:
    for line in stream:
        put(line)
    put(None)


def _note(event: dict[str, Any], score: Score) -> int:
    seed = event["seed"]
    if "comparisons" in event:
        score.programs += 1
        score.comparisons += event["comparisons"]
    elif "finding" in event:
        score.programs += 1
        score.findings[seed] = event["finding"]
    return seed


def search(laws: list[str], turns: Turns, jobs: int) -> dict[str, Score]:
    """Runs programs in `jobs` processes at a time until the time is over."""
    scores = {law: Score() for law in laws}

    def take_turns() -> None:
        for law, first, count in turns:
            done = 0
            while done < count and turns.seconds_left > 0:
                done += run_turn(law, first + done, count - done, turns, scores[law])

    threads = [threading.Thread(target=take_turns) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return scores


def show(scores: dict[str, Score]) -> None:
    """Prints the table, and after it each finding with its seed."""
    print(f"{'law':14}{'programs':>10}{'comparisons':>13}{'findings':>10}")
    for law, score in scores.items():
        print(f"{law:14}{score.programs:10}{score.comparisons:13}{len(score.findings):10}")
    for law, score in scores.items():
        for seed, finding in sorted(score.findings.items()):
            print(f"\n--- {law}, seed {seed}\n{finding.rstrip()}")


def main() -> int:
    """Returns 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--law", choices=LAWS, action="append", help="may be given several times")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, help="of the first program of each law (else by time)")
    parser.add_argument("--programs", type=int, help="of each law, at most")
    options = parser.parse_args()
    laws = options.law or LAWS
    first = options.seed if options.seed is not None else int(time.time()) % 10**6 * 1000
    print(f"{len(laws)} laws, {options.minutes:g} minutes, --seed {first}", flush=True)
    scores = search(laws, Turns(laws, first, options.programs, options.minutes), options.jobs)
    show(scores)
    return 1 if any(score.findings for score in scores.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
