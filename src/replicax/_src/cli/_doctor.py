"""`replicax doctor`: looks at the machine, the devices and the cluster, and says what is wrong.

Every part has a time-out of its own and runs in a thread, so that one that hangs (a driver, a name
server) is named and the others are still done. The parts are in `_examinations.py`.
"""

import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, TextIO

from replicax._src.cli._examinations import (
    Diagnosis,
    Part,
    Problem,
    examine_devices,
    examine_gpus,
    examine_machine,
    examine_plans,
    examine_versions,
    examine_workers,
)
from replicax._src.cli._log import Paint, painter
from replicax._src.cli._network import examine_cluster, examine_network

# JAX takes seconds to start on a GPU; the processes are ended a little before the part is given up.
_PROBE_SECONDS = 60.0

PARTS = (
    Part("versions", examine_versions, 10, "The file system of the Python packages may hang."),
    Part("gpus", examine_gpus, 15, "The NVIDIA driver hangs: reload it, or reboot."),
    Part("plans", examine_plans, 10, "The file system of the Python packages may hang."),
    Part("machine", examine_machine, 10, "A file system may hang: see `df`."),
    Part("network", examine_network, 15, "The name server does not answer: see /etc/resolv.conf."),
    Part("cluster", examine_cluster, 60, "The name server or a host of the cluster hangs."),
    Part(
        "devices",
        lambda so_far: examine_devices(so_far, _PROBE_SECONDS),
        _PROBE_SECONDS + 10,
        "The driver hangs: reload it, or reboot.",
    ),
    Part(
        "workers",
        lambda _: examine_workers(_PROBE_SECONDS),
        _PROBE_SECONDS + 10,
        "Look for a firewall on loopback.",
    ),
)


def doctor(as_json: bool = False, parts: Sequence[Part] = PARTS, to: TextIO | None = None) -> int:
    """Examines everything and prints what was found; returns 1 if something is wrong, else 0.

    Args:
      as_json: Print one JSON object instead of text.
      parts: What to look at.
      to: Where to print; by default, standard output.
    """
    out: TextIO = to or sys.stdout
    paint = painter(out, plainly=as_json)
    findings: dict[str, tuple[Diagnosis, float]] = {}
    for part in parts:
        begun = time.monotonic()
        finding = _examine(part, {name: each for name, (each, _) in findings.items()})
        findings[part.name] = finding, time.monotonic() - begun
        if not as_json:
            print(_as_text(part.name, finding, paint), file=out, flush=True)
    problems = [
        (name, problem) for name, (finding, _) in findings.items() for problem in finding.problems
    ]
    if as_json:
        print(json.dumps(_as_object(findings, problems), indent=2), file=out, flush=True)
    else:
        print(_advice(problems, paint), file=out, flush=True)
    return 1 if problems else 0


def _examine(part: Part, so_far: dict[str, Diagnosis]) -> Diagnosis:
    """Runs one part, for as long as it may take."""
    results: list[Diagnosis] = []

    def work() -> None:
        try:
            results.append(part.examine(so_far))
        except Exception as error:  # a bug in an examination must not hide the others
            text = f"could not be examined: {type(error).__name__}: {error}"
            results.append(Diagnosis(problems=[Problem(text, "Please report this.")]))

    thread = threading.Thread(target=work, name=f"replicax-doctor-{part.name}", daemon=True)
    thread.start()
    thread.join(part.seconds)
    if results:
        return results[0]
    return Diagnosis(
        problems=[Problem(f"no answer after {part.seconds:g} s", part.if_it_hangs)],
    )


def _as_text(name: str, finding: Diagnosis, paint: Paint) -> str:
    mark = paint("31", "!!") if finding.problems else paint("32", "ok")
    lines = [*finding.lines, *(paint("31", problem.text) for problem in finding.problems)]
    head = f"{mark}  {paint('1', f'{name:<12}')}"
    return "\n".join(
        f"{head if not number else ' ' * 16}{line}" for number, line in enumerate(lines or [""])
    )


def _advice(problems: list[tuple[str, Problem]], paint: Paint) -> str:
    if not problems:
        return "\nNothing is wrong."
    lines = ["", paint("1", "What is wrong, and how to fix it:")]
    for number, (name, problem) in enumerate(problems, 1):
        lines.append(f"{number}. {name}: {problem.text}")
        lines.append(f"   {paint('36', problem.fix)}")
    return "\n".join(lines)


def _as_object(
    findings: dict[str, tuple[Diagnosis, float]], problems: list[tuple[str, Problem]]
) -> dict[str, Any]:
    return {
        "ok": not problems,
        "parts": {
            name: {
                "ok": not finding.problems,
                "seconds": round(seconds, 2),
                "lines": finding.lines,
                **finding.facts,
            }
            for name, (finding, seconds) in findings.items()
        },
        "problems": [
            {"part": name, "text": problem.text, "fix": problem.fix} for name, problem in problems
        ],
    }
