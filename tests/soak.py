"""Many faults in one long training job: `python tests/soak.py --faults 100 --workers 4`.

A small model is trained twice: quietly, and while random workers suffer random faults at random
steps, under `replicax launch`, which has to bring the job to its end alone. Then the books of both
runs are compared (`tests/multi_worker/programs/audit.py`): every step must have seen the same rows
and left the same bits in all variables, and every row must have counted once per epoch.
`--save-kills 200` kills workers inside saves as well, 200 times; all checkpoints must stay whole.

Not a test of the suite: it takes an hour. Nothing has to be done by hand; a job that makes no
progress for `--patience` seconds is ended, and counts as hung.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.multi_worker.programs.audit import Audit  # noqa: E402
from tests.multi_worker.programs.faults import Fault, notes, write_plan  # noqa: E402

KINDS = ("kill", "stop", "raise", "exit", "term", "kill-in-save")
ROWS, BATCH = 240, 24  # shared out evenly over 1, 2, 3 or 4 workers
STEPS_PER_EPOCH = ROWS // BATCH
SAVE_EVERY = 3
STEPS_AT_THE_END = 10  # without faults, so that the last one is suffered before the end
_LOOK_SECONDS = 0.05


class Hung(Exception):
    """A job has made no progress for too long, and was ended."""


class Run:
    """One job under the launcher, watched from outside."""

    def __init__(
        self, folder: Path, options: argparse.Namespace, workers: int, steps: int, *arguments: str
    ) -> None:
        self.folder = folder
        self.epochs = -(-steps // STEPS_PER_EPOCH)
        self._options = options
        folder.mkdir(parents=True, exist_ok=True)
        self._command = [
            *(sys.executable, "-m", "replicax", "launch", f"--workers={workers}"),
            f"--max-restarts={10 * options.faults + 1000}",
            f"--stall-timeout={options.stall_timeout:g}",
            f"--join-timeout={options.join_timeout:g}",
            str(ROOT / "tests" / "multi_worker" / "programs" / "train.py"),
            str(folder),
            *(f"--rows={ROWS}", f"--batch={BATCH}", f"--epochs={self.epochs}"),
            *(f"--save-every={SAVE_EVERY}", "--seed=3", "--noise", "--handler", "--verify"),
            *arguments,
        ]
        self.gone: dict[tuple[int, int], float] = {}
        """When each (generation, worker) ended."""
        self.seconds = 0.0
        self._selector = selectors.DefaultSelector()
        self._seen: set[str] = set()

    def finish(self, faults: int = 0) -> None:
        """Runs it to its end; tells of every fault that it has got over."""
        began = time.monotonic()
        path = [*map(str, sys.path[:2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
        with open(self.folder / "log", "wb") as log:
            process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
            try:
                self._watch(process, faults)
            finally:
                process.send_signal(signal.SIGKILL)  # and its workers die with it
                process.wait(10)
                self._selector.close()
        self.seconds = time.monotonic() - began
        if process.returncode != 0:
            raise SystemExit(f"the launcher ended with {process.returncode}:\n{self._last_lines()}")

    def _watch(self, process: subprocess.Popen[bytes], faults: int) -> None:
        told, size, moved = 0, 0, time.monotonic()
        while process.poll() is None:
            self._look_at_processes()
            suffered = notes(self.folder)
            while told < len(suffered) and (times := self.times_of(suffered[told])):
                told += 1
                print(f"[{told:3}/{faults}] {_line(suffered[told - 1], times)}", flush=True)
            written = sum(path.stat().st_size for path in self.folder.glob("audit-*.jsonl"))
            if written != size:
                size, moved = written, time.monotonic()
            elif time.monotonic() - moved > self._options.patience:
                raise Hung(f"no step for {self._options.patience:g} s:\n{self._last_lines()}")
        self._look_at_processes()

    def _look_at_processes(self) -> None:
        for path in self.folder.glob("audit-*.jsonl"):
            text = "" if path.name in self._seen else path.read_text(encoding="utf-8")
            if "\n" in text:
                self._seen.add(path.name)
                self._follow(json.loads(text.partition("\n")[0]))
        end = time.monotonic() + _LOOK_SECONDS
        while (left := end - time.monotonic()) > 0:
            if not self._selector.get_map():
                time.sleep(left)
                return
            for key, _ in self._selector.select(left):
                self.gone[key.data] = time.time()
                self._selector.unregister(key.fd)
                os.close(key.fd)

    def _follow(self, line: dict[str, Any]) -> None:
        who = line["generation"], line["worker"]
        try:
            descriptor = os.pidfd_open(line["pid"])
        except ProcessLookupError:
            self.gone[who] = time.time()
        else:
            self._selector.register(descriptor, selectors.EVENT_READ, who)

    def times_of(self, fault: dict[str, Any]) -> dict[str, float] | None:
        """Seconds from a fault to the end of all workers, and to the first new step, once known."""
        # The next generation may have ended before its first step.
        steps = [self._first_step(fault["generation"] + more) for more in range(1, 4)]
        first = min((step for step in steps if step is not None), default=None)
        if first is None:
            return None
        ends = [when for (number, _), when in self.gone.items() if number == fault["generation"]]
        return {
            "gone": max(ends, default=fault["time"]) - fault["time"],
            "first step": first - fault["time"],
        }

    def _first_step(self, generation: int) -> float | None:
        times = []
        for path in self.folder.glob(f"audit-{generation}-*.jsonl"):
            lines = path.read_text(encoding="utf-8").split("\n")[1:3]
            if len(lines) == 2 and "step" in (line := json.loads(lines[0])):
                times.append(line["time"])
        return min(times, default=None)

    def starts(self) -> int:
        """How many generations the launcher has started."""
        log = (self.folder / "log").read_text(errors="replace").splitlines()
        return 1 + sum(line.startswith("[launch] generation ") for line in log)

    def _last_lines(self) -> str:
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-60:])


def _line(fault: dict[str, Any], times: dict[str, float]) -> str:
    return (
        f"{fault['name']} of worker {fault['worker']} at step {fault['suffered_at']}: "
        f"all gone after {times['gone']:.2f} s, first new step after {times['first step']:.2f} s"
    )


def planned(options: argparse.Namespace, count: int, workers: int, kinds: list[str]) -> list[Fault]:
    """Random faults: each kind as often as the others, in random order."""
    chosen = random.Random(options.seed)
    names = [kinds[index % len(kinds)] for index in range(count)]
    chosen.shuffle(names)
    faults, step = [], 0
    for name in names:
        step += chosen.randint(1, 2 * options.steps_per_fault - 1)
        # Signals come at any moment of a step; the time that a save takes is about as long.
        delay = chosen.random() * (options.longest_save if name == "kill-in-save" else 0.02)
        faults.append(Fault(name, chosen.randrange(workers), step, round(delay, 4)))
    return faults


def suffer(
    folder: Path,
    options: argparse.Namespace,
    count: int,
    workers: int,
    kinds: list[str],
    *arguments: str,
) -> dict[str, Any]:
    """A job with faults; returns what came of it. Raises where something is not as it must be."""
    faults = planned(options, count, workers, kinds)
    steps = faults[-1].step + 2 * SAVE_EVERY + STEPS_AT_THE_END
    run = Run(folder, options, workers, steps, *arguments)
    write_plan(folder, faults)
    run.finish(count)
    audit = Audit(folder)
    committed = audit.check(ROWS, run.epochs)
    suffered = notes(folder)
    damaged = [
        path for lines in audit.starts.values() for line in lines for path in line["damaged"]
    ]
    return {
        "workers": workers,
        "faults": len(suffered),
        "planned": count,
        "inside": sum(note["inside"] for note in suffered),
        "generations": run.starts(),
        "unplanned restarts": run.starts() - 1 - len(suffered),
        "steps": len(committed),
        "steps made again": audit.made() - len(committed),
        "rows committed once per epoch": True,  # or `check` had raised
        "damaged checkpoints": damaged,
        "seconds": round(run.seconds, 1),
        "times": _table([(note, run.times_of(note)) for note in suffered]),
        "states": [step.state for step in committed],
    }


def _table(measured: list[tuple[dict[str, Any], dict[str, float] | None]]) -> dict[str, Any]:
    by_kind: dict[str, list[dict[str, float]]] = collections.defaultdict(list)
    for note, times in measured:
        if times is not None:
            by_kind[note["name"]].append(times)
    return {
        kind: {
            "count": len(rows),
            **{
                f"{name}, {how}": round(of([row[name] for row in rows]), 2)
                for name in ("gone", "first step")
                for how, of in (("median", statistics.median), ("most", max))
            },
        }
        for kind, rows in sorted(by_kind.items())
    }


def soak(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Faults of all kinds, against a quiet run of as many steps."""
    print(f"{options.faults} faults on {options.workers} workers", flush=True)
    found = suffer(folder / "faults", options, options.faults, options.workers, options.kinds)
    print(f"a quiet run of {found['steps']} steps", flush=True)
    quiet = Run(folder / "quiet", options, options.workers, found["steps"])
    quiet.finish()
    states = [step.state for step in Audit(folder / "quiet").check(ROWS, quiet.epochs)]
    found["bit-equal to a quiet run"] = states == found.pop("states")
    return found


def kill_in_saves(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Kills inside saves, and a look at every checkpoint after each."""
    print(
        f"{options.save_kills} kills inside a save, of {options.save_workers} workers", flush=True
    )
    found = suffer(
        folder / "saves",
        options,
        options.save_kills,
        options.save_workers,
        ["kill-in-save"],
        f"--ballast={options.ballast}",
    )
    del found["states"]
    return found


def _show(title: str, found: dict[str, Any]) -> None:
    print(f"\n{title}")
    for name, value in found.items():
        if name == "times":
            print(f"  {'kind':14}{'count':>6}{'gone s, median/most':>22}{'first step s':>20}")
            for kind, row in value.items():
                gone = f"{row['gone, median']} / {row['gone, most']}"
                step = f"{row['first step, median']} / {row['first step, most']}"
                print(f"  {kind:14}{row['count']:6}{gone:>22}{step:>20}")
        else:
            print(f"  {name}: {value}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=0, help="how many (0: none)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps-per-fault", type=int, default=5, help="on average")
    parser.add_argument("--save-kills", type=int, default=0, help="kills inside saves (0: none)")
    parser.add_argument("--save-workers", type=int, default=2, help="workers of the job with these")
    parser.add_argument("--ballast", type=int, default=2, help="MB in a checkpoint of that job")
    parser.add_argument(
        "--longest-save", type=float, default=0.03, help="kills come up to so many s into a save"
    )
    parser.add_argument("--stall-timeout", type=float, default=5.0)
    parser.add_argument("--join-timeout", type=float, default=60.0)
    parser.add_argument("--patience", type=float, default=180.0, help="s without a step: it hangs")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--keep", type=Path, help="a folder for logs and books, kept at the end")
    return parser.parse_args()


def main() -> int:
    """Runs what was asked for; returns 0 if all of it is as it must be."""
    options = _options()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="replicax-soak-"))
    results: dict[str, Any] = {"cpus": os.cpu_count(), "load before": os.getloadavg()}
    good = True
    try:
        if options.faults:
            found = results["soak"] = soak(folder, options)
            _show("soak", found)
            good &= found["bit-equal to a quiet run"] and not found["damaged checkpoints"]
            good &= found["faults"] == found["planned"]
        if options.save_kills:
            found = results["save kills"] = kill_in_saves(folder, options)
            _show("kills inside saves", found)
            good &= not found["damaged checkpoints"] and found["inside"] == options.save_kills
    except (AssertionError, Hung) as failure:
        good = False
        results["failure"] = str(failure)
        print(f"FAILED: {failure}", flush=True)
    results["load after"] = os.getloadavg()
    results["good"] = good
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    unplanned = any(
        isinstance(found, dict) and found["unplanned restarts"] for found in results.values()
    )
    if options.keep is not None or unplanned or not good:
        print(f"logs and books are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print("good" if good else "NOT GOOD")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
