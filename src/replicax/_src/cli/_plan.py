"""`replicax plan`: what a script would need on hardware that is not here."""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from replicax._src.cli._workers import dies_with_us
from replicax._src.planning import Exchange, Plan, Tensor, amount, seconds, table

DESCRIPTION = """\
Runs a script with planned devices instead of those that its strategy asks for. Nothing is computed
or written. Each of its functions is compiled once, and the report says what it needs on each
device: memory, communication, time. If it does not fit, it also says which changes would help."""

EPILOG = """\
examples:
  replicax plan train.py --on v5e:16x16           does it fit on 256 TPUs?
  replicax plan train.py --on v5e:4x4 --on v6e:4x4 --on h200:2x8
  replicax plan train.py --on v6e:4x4 --find-batch
  replicax plan train.py --on cpu:8 --memory 16GB -- --layers 12

TPUs need the package libtpu: pip install "replicax[plan]". GPUs need JAX's CUDA plug-in and one
such GPU. Exit status: 0 if everything fits, 1 if something does not, 2 if no plan could be made."""

_TRIALS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("state of optimizers in parts", {"over_replicas": "optimizer"}),
    ("everything in parts", {"over_replicas": "everything"}),
    ("2 logical devices for each replica", {"logical_devices": 2}),
    ("losses under jax.checkpoint", {"checkpointed": True}),
    ("half the batch", {"batch_factor": 0.5}),
    ("everything in parts, half the batch", {"over_replicas": "everything", "batch_factor": 0.5}),
)
_MOST_DOUBLINGS = 12


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replicax plan` to a parser."""
    parser.add_argument("script", help="a Python script, unchanged; its arguments follow after --")
    parser.add_argument(
        "--on", action="append", required=True, metavar="HARDWARE", help="such as v5e:16x16"
    )
    parser.add_argument("--memory", metavar="SIZE", help="of each device, such as 16GB or 15.75GiB")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument(
        "--find-batch", action="store_true", help="find the largest global batch that fits"
    )
    parser.add_argument("--show", action="store_true", help="show the output of the script")
    parser.add_argument(
        "--timeout", type=float, default=900, metavar="SECONDS", help="for each plan (900)"
    )


@final
@dataclasses.dataclass(frozen=True)
class Outcome:
    """What was found of a script on one kind of hardware.

    Attributes:
      on: the hardware.
      plans: of its functions.
      batch: the rows of its largest batch; 0 if not known.
      ended: why the script was not followed to its end, or "".
      refused: why no plan could be made, or "".
      failed: the traceback of an error in the script, or "".
      differs: in what another host would do something else, or "".
      left: whether it was not followed further, as nothing new came for long.
    """

    on: str
    plans: list[Plan]
    batch: int = 0
    ended: str = ""
    refused: str = ""
    failed: str = ""
    differs: str = ""
    left: bool = False

    @property
    def heaviest(self) -> Plan | None:
        """The plan that needs the most memory."""
        return max(self.plans, key=lambda each: each.peak, default=None)

    @property
    def hosts(self) -> int:
        """How many hosts have the devices."""
        return max((each.hosts for each in self.plans), default=1)

    @property
    def fits(self) -> bool | None:
        """Whether all functions fit; None if that is not known."""
        found = {each.fits for each in self.plans}
        return None if not found or None in found else False not in found


class Tried(NamedTuple):
    """What was tried, and what came of it."""

    what: str
    outcome: Outcome


def run(arguments: argparse.Namespace, own: Sequence[str] = ()) -> int:
    """Runs `replicax plan`; returns the exit status.

    Args:
      arguments: of the command line.
      own: the script's.
    """
    if not os.path.isfile(arguments.script):
        print(f"replicax plan: there is no file {arguments.script!r}.", file=sys.stderr)
        return 2
    try:
        memory = None if arguments.memory is None else _bytes(arguments.memory)
    except ValueError as error:
        print(f"replicax plan: {error}", file=sys.stderr)
        return 2
    follower = _Follower(arguments, own, memory)
    outcomes = [_compared(follower, follower.outcome(name)) for name in arguments.on]
    trials = {each.on: _trials(follower, each) for each in outcomes if each.fits is False}
    batches: dict[str, list[Tried]] = {}
    if arguments.find_batch:
        batches = {each.on: _find_batch(follower, each) for each in outcomes if each.plans}
    if arguments.json:
        print(json.dumps(_as_object(outcomes, trials, batches), indent=2))
    else:
        print(_as_text(outcomes, trials, batches))
    if any(not each.plans for each in outcomes):
        return 2
    return 1 if any(each.fits is False or each.differs for each in outcomes) else 0


@final
class _Follower:
    """Follows the script in processes of their own."""

    def __init__(self, arguments: argparse.Namespace, own: Sequence[str], memory: int | None):
        self._arguments = arguments
        self._own = list(own)
        self._memory = memory

    def outcome(self, on: str, host: int = 0, **supposed: object) -> Outcome:
        """Returns what the script needs on some hardware, if it did what is supposed, on a host."""
        with tempfile.TemporaryDirectory(prefix="replicax-plan-") as folder:
            request = os.path.join(folder, "request.json")
            result = os.path.join(folder, "result.json")
            with open(request, "w", encoding="utf-8") as file:
                json.dump(
                    {
                        "script": self._arguments.script,
                        "arguments": self._own,
                        "on": on,
                        "memory": self._memory,
                        "host": host,
                        "supposed": supposed,
                        "show": self._arguments.show,
                        "result": result,
                    },
                    file,
                )
            command = dies_with_us(["-m", "replicax._src.cli._planned_script", request])
            try:
                ended = subprocess.run(
                    command,
                    env=_environment(on, folder, host),
                    stdin=None if self._arguments.show else subprocess.DEVNULL,
                    stdout=sys.stderr if self._arguments.show else subprocess.DEVNULL,
                    stderr=None if self._arguments.show else subprocess.PIPE,
                    timeout=self._arguments.timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                took = f"it took longer than {self._arguments.timeout:g} s; see --timeout"
                return Outcome(on, [], refused=took)
            try:
                with open(result, encoding="utf-8") as file:
                    found = json.load(file)
            except (OSError, ValueError):
                words = (ended.stderr or b"").decode(errors="replace").strip().splitlines()
                last = words[-1] if words else "it said nothing"
                text = f"the process ended with status {ended.returncode}: {last}"
                return Outcome(on, [], refused=text)
        if "refused" in found:
            return Outcome(on, [], refused=found["refused"])
        plans = [_plan_of(each) for each in found["plans"]]
        return Outcome(
            on, plans, found["batch"], found["ended"], failed=found["failed"], left=found["left"]
        )


def _environment(on: str, folder: str, host: int) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TF_CONFIG", "JAX_COMPILATION_CACHE_DIR")
    }
    environment |= {
        "TMPDIR": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": str(host),  # sets have another order in each process
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "TPU_LOG_DIR": "disabled",
        "TPU_STDERR_LOG_LEVEL": "3",
        "TPU_MIN_LOG_LEVEL": "3",
    }
    if on.lower().startswith(("cpu", "v")):  # what is small is computed here
        environment["JAX_PLATFORMS"] = "cpu"
    return environment


def _plan_of(found: dict[str, Any]) -> Plan:
    known = {field.name for field in dataclasses.fields(Plan)}
    fields = {name: value for name, value in found.items() if name in known}
    fields["exchanges"] = [Exchange(**each) for each in found["exchanges"]]
    fields["largest"] = [Tensor(**each) for each in found["largest"]]
    return Plan(**fields)


# ------------------------------------------------------------------ what other hosts would run


def _compared(follower: _Follower, outcome: Outcome) -> Outcome:
    """Follows the script once more, as the process of the last host: it must be one program."""
    last = outcome.hosts - 1
    if not last:
        return outcome
    other = follower.outcome(outcome.on, last, only_lowered=True)
    return dataclasses.replace(outcome, differs=_difference(outcome, other, last))


def _difference(first: Outcome, other: Outcome, host: int) -> str:
    """In what two hosts differ, or ""."""
    problem = other.refused or other.failed.strip().rpartition("\n")[2]
    if problem and not (first.refused or first.failed):
        return f"on host {host} it fails: {problem}"
    mine, theirs = ([each.name for each in one.plans] for one in (first, other))
    if mine != theirs and not (first.left or other.left):
        return f"host 0 calls {', '.join(mine)}, and host {host} {', '.join(theirs) or 'nothing'}"
    for plan, its in zip(first.plans, other.plans):  # one may have been left earlier
        if plan.mark != its.mark:
            return f"{plan.name!r} is another program on host {host} than on host 0"
    return ""


# ------------------------------------------------------------------ what would fit


def _trials(follower: _Follower, outcome: Outcome) -> list[Tried]:
    return [Tried(what, follower.outcome(outcome.on, **how)) for what, how in _TRIALS]


def _find_batch(follower: _Follower, outcome: Outcome) -> list[Tried]:
    """Returns what was tried; the last that fits is the largest, to a few percent."""
    if outcome.fits is None:
        return []
    tried: list[Tried] = []

    def attempt(factor: float) -> bool:
        found = follower.outcome(outcome.on, batch_factor=factor)
        rows = f"{found.batch} rows" if found.batch else f"{factor:g} times the batch"
        tried.append(Tried(rows, found))
        return bool(found.fits)

    low, high = 0.0, 1.0
    if outcome.fits:
        low, high = 1.0, 2.0
        while attempt(high):
            low, high = high, 2 * high
            if high > 2**_MOST_DOUBLINGS:
                return tried
    while high - low > max(0.04 * high, _one_row(outcome)):
        middle = (low + high) / 2
        if middle < 2**-10:
            break
        low, high = (middle, high) if attempt(middle) else (low, middle)
    return sorted(tried, key=lambda each: each.outcome.batch)


def _one_row(outcome: Outcome) -> float:
    """Returns the change of the batch by one row for each replica, as a factor."""
    heaviest = outcome.heaviest
    if heaviest is None or not outcome.batch:
        return 0.0
    return heaviest.replicas / outcome.batch


# ------------------------------------------------------------------ what is said


def _as_object(
    outcomes: Sequence[Outcome], trials: dict[str, list[Tried]], batches: dict[str, list[Tried]]
) -> dict[str, Any]:
    def as_object(outcome: Outcome) -> dict[str, Any]:
        return {
            "on": outcome.on,
            "fits": outcome.fits,
            "batch": outcome.batch,
            "plans": [each.as_dict() for each in outcome.plans],
            "ended": outcome.ended,
            "refused": outcome.refused,
            "differs": outcome.differs,
        }

    def tried(lists: dict[str, list[Tried]]) -> dict[str, Any]:
        return {
            on: [{"what": each.what, **as_object(each.outcome)} for each in found]
            for on, found in lists.items()
        }

    return {
        "outcomes": [as_object(each) for each in outcomes],
        "what_would_fit": tried(trials),
        "batches": tried(batches),
    }


def _as_text(
    outcomes: Sequence[Outcome], trials: dict[str, list[Tried]], batches: dict[str, list[Tried]]
) -> str:
    parts: list[str] = []
    for outcome in outcomes:
        parts += [str(each) for each in outcome.plans]
        if outcome.refused:
            parts.append(f"no plan on {outcome.on}: {outcome.refused}")
        elif not outcome.plans:
            parts.append(
                f"no plan on {outcome.on}: the script called no rx.function and no strategy.run "
                f"({outcome.ended or 'it came to its end'})"
            )
            parts.append(outcome.failed.rstrip())
        if outcome.differs:
            parts.append(
                f"NOT ONE PROGRAM on {outcome.on}: {outcome.differs}. The hosts would wait for "
                "each other forever. Let all of them make the same variables in the same order, "
                "and call the same functions with the same shapes; iterate over sorted(names), "
                "not over a set."
            )
        elif outcome.plans and outcome.hosts > 1:
            last = outcome.hosts - 1
            parts.append(f"one program on {outcome.on}: hosts 0 and {last} would run the same")
        if outcome.plans and outcome.ended:
            parts.append(f"(on {outcome.on} the script was followed to where {outcome.ended})")
    if len(outcomes) > 1:
        parts.append(_summary(outcomes))
    for on, found in trials.items():
        parts.append(f"what would fit on {on}\n\n{_tried(found)}")
    for on, found in batches.items():
        parts.append(_batches(on, found))
    return "\n\n".join(part for part in parts if part)


def _summary(outcomes: Sequence[Outcome]) -> str:
    head = ("on", "devices", "memory", "has", "fits", "exchanged", "estimate")
    rows = [row for each in outcomes for row in [_row(each.on, each)]]
    return table(head, rows)


def _row(label: str, outcome: Outcome) -> tuple[str, ...]:
    plan = outcome.heaviest
    if plan is None:
        return (label, "", "", "", "no plan", "", "")
    exchanged = sum(each.bytes for each in plan.exchanges)
    estimate = plan.step_seconds
    return (
        label,
        str(plan.devices),
        amount(plan.peak),
        "" if plan.available is None else amount(plan.available),
        {True: "yes", False: "no", None: "?"}[outcome.fits],
        amount(exchanged),
        "" if estimate is None else seconds(estimate),
    )


def _tried(found: Sequence[Tried]) -> str:
    head = ("tried", "devices", "memory", "has", "fits", "exchanged", "estimate")
    return table(head, [_row(each.what, each.outcome) for each in found])


def _batches(on: str, found: Sequence[Tried]) -> str:
    fitting = [each for each in found if each.outcome.fits]
    if not found:
        return f"the largest batch on {on}: not known, as the memory of these devices is not"
    best = fitting[-1].what if fitting else "none that was tried"
    return f"the largest global batch that fits on {on}: {best}\n\n{_tried(found)}"


_SIZE = re.compile(r"^(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kMGT]i?)?B?$")


def _bytes(text: str) -> int:
    """16GB, 15.75GiB or a number of bytes."""
    match = _SIZE.match(text.strip())
    if match is None:
        raise ValueError(f"--memory takes a size such as 16GB or 15.75GiB; got {text!r}.")
    unit = match["unit"] or ""
    base = 1024 if unit.endswith("i") else 1000
    power = "kMGT".index(unit[0]) + 1 if unit else 0
    return int(float(match["number"]) * base**power)
