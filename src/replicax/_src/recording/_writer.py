"""The thread that writes what a `Recorder` has seen: it waits for results, and looks at them."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src._warnings import Line, warn
from replicax._src.recording._inputs import Kept, in_line
from replicax._src.recording._probe import Probe
from replicax._src.recording._ring import Ring
from replicax._src.recording._traps import Finding
from replicax._src.values import DistributedValues, PerReplica, is_leaf

_MOST_RESULTS, _LARGEST_RESULT = 16, 64  # leaves of what a step returns, and items in them


@dataclasses.dataclass
class RecordedCall:
    """One call of the function, on its way to the disk."""

    step: int
    states: list[dict[str, Any]]
    structure: Any
    inputs: list[Any]
    called: float
    results: list[Any] = dataclasses.field(default_factory=list)
    figures: Any = None
    outside: Sequence[tuple[Any, Any]] = ()
    is_first: bool = False  # of its program, which was compiled
    error: str | None = None


def write_all(
    waiting: queue.SimpleQueue[Any],
    ring: Ring,
    probe: Probe,
    findings: queue.SimpleQueue[Finding],
    rows: bool | None,
    line: Line,
) -> None:
    """Writes what comes, until there is None. Knows nothing of the recorder, which may be gone.

    Warnings are given at `line`, where that was made.
    """
    done_at: float | None = None
    while (call := waiting.get()) is not None:
        if isinstance(call, threading.Event):
            call.set()
            continue
        try:
            if isinstance(call, Exception):
                raise call
            if isinstance(call, dict):
                ring.begin_segment(**call)
            else:
                done_at = _write(call, ring, probe, findings, rows, done_at, line)
        except Exception as error:  # whatever it is: those who wait are told, the program goes on
            has_traps = not ring.is_broken
            ring.is_broken = True
            try:
                warn(
                    f"Recording has ended: {type(error).__name__}: {error}. The program goes on, "
                    "and its steps from here on cannot be replayed.",
                    line,
                )
                if has_traps and isinstance(call, RecordedCall):  # they need no disk
                    done_at = _write(call, ring, probe, findings, rows, done_at, line)
                    continue
            except Exception:  # also where warnings are errors
                has_traps = False
            if not has_traps:
                _discard(waiting)
                return


def _discard(waiting: queue.SimpleQueue[Any]) -> None:
    """Takes what comes, until there is None."""
    while (call := waiting.get()) is not None:
        if isinstance(call, threading.Event):
            call.set()


def _write(
    call: RecordedCall,
    ring: Ring,
    probe: Probe,
    findings: queue.SimpleQueue[Finding],
    rows: bool | None,
    done_before: float | None,
    place: Line,
) -> float:
    """Writes a call and then its results; returns when these were there."""
    for state in call.states:
        ring.write(state)
    was_full = ring.is_full
    inputs = [
        ring.kept(call.step, index, each, rows is not False) if isinstance(each, Kept) else each
        for index, each in enumerate(call.inputs)
    ]
    line: dict[str, Any] = {"step": call.step, "inputs": inputs}
    positions = {
        str(index): each.position
        for index, each in enumerate(call.inputs)
        if isinstance(each, Kept) and each.position is not None
    }
    if positions:
        line["positions"] = positions
    if call.outside:
        line["outside"] = [
            [name, ring.kept(call.step, index, value, rows=True)]
            if isinstance(value, Kept)
            else [name, value]
            for index, (name, value) in enumerate(call.outside, start=len(call.inputs))
        ]
    if call.structure is not None:
        line["structure"] = call.structure
    if call.error is not None:
        line["error"] = call.error
    ring.write(line)
    if ring.is_full and not was_full:
        warn(
            "The inputs that a Recorder keeps have reached its limit; those of later steps are "
            "left out until the next checkpoint. Raise `limit`, save checkpoints more often, or "
            "take the inputs from an iterator of rx.data, of which a position is enough.",
            place,
        )
    if call.error is not None:
        return time.perf_counter()
    try:
        results = [[in_line(part) for part in parts] for parts in call.results]
        figures = probe.on_host(call.figures)
    except Exception as error:  # the program has failed; its caller is told
        ring.write({"step": call.step, "error": f"{type(error).__name__}: {error}"[:1000]})
        return time.perf_counter()
    done = time.perf_counter()
    began = max(call.called, done_before or 0.0)
    idle = 0.0 if done_before is None else max(0.0, call.called - done_before)
    times = {"idle": round(idle, 6), "step": round(done - began, 6)}
    line = {"step": call.step, "results": results, "times": times}
    names = () if call.figures is None else call.figures[0]
    if figures:
        line["figures"] = {name: in_line(values) for name, values in figures.items()}
        if names != ring.names:
            ring.names = names
            line["names"] = list(names)
    ring.write(line)
    finding = probe.finding(call.step, call.results, names, figures, times, call.is_first)
    if finding is not None:
        findings.put(finding)
    return done


def small_results(result: PyTree) -> list[list[Any]]:
    """Returns the small arrays in what a step returns; of each, the parts of the replicas here."""
    found: list[list[Any]] = []
    for leaf in _tree.leaves_of(result, is_leaf):
        if isinstance(leaf, PerReplica):
            parts = list(leaf.values)
        elif isinstance(leaf, DistributedValues):
            parts = [leaf.values[0]]
        else:
            parts = [leaf]
        if len(found) < _MOST_RESULTS and all(map(_is_small, parts)):
            found.append(
                [part if isinstance(part, jax.Array) else np.asarray(part) for part in parts]
            )
    return found


def _is_small(part: object) -> bool:
    if isinstance(part, jax.Array | np.ndarray):
        return part.size <= _LARGEST_RESULT
    return isinstance(part, bool | int | float | np.generic)
