"""What `replicax replay` says of a step that it has run again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from replicax._src.checkpoints import list_variables
from replicax._src.recording._capsule import Recorded
from replicax._src.recording._replay import Replayed
from replicax._src.recording._ring import DESCRIPTION

_SHOWN = 8  # steps


def heading(recorded: Recorded, step: int) -> str:
    """Returns what the capsule is of."""
    layout, versions = recorded.layout, recorded.descriptions[0].get("versions", {})
    made_by = ", ".join(printable(f"{name} {version}") for name, version in versions.items())
    lines = [
        f"capsule {recorded.path}",
        f"  {printable(str(layout.get('strategy')))}, {layout['workers']} worker(s), "
        f"{layout['replicas']} replica(s); {made_by}",
    ]
    if recorded.trap is not None:
        lines.append(f"  trapped: {printable(str(recorded.trap.get('text')))}")
    lines.append(f"  step {step}, from a checkpoint of step {recorded.after}")
    return "\n".join(lines)


def contents_of(recorded: Recorded) -> dict[str, str]:
    """Returns what each file of a capsule holds, in words."""
    found = {"capsule.json": "the step, what a trap said, and a checksum of each file"}
    for worker, steps in zip(recorded.workers, recorded.steps, strict=True):
        folder = f"worker-{worker}"
        found[f"{folder}/{DESCRIPTION}"] = "versions, the recorded function, and the layout"
        found[f"{folder}/steps.jsonl"] = (
            f"{len(steps)} step(s): positions and seeds of data, Python arguments, small results"
        )
        for number, step in steps.items():
            for index, described in enumerate(step.inputs):
                if described[0] == "files":
                    for dtype, shape, name in described[2]:
                        found[f"{folder}/{name}"] = (
                            f"argument {index} of step {number}: rows of data, {dtype}{shape}"
                        )
    for name, shape in list_variables(recorded.checkpoint):
        found[f"checkpoint: {name}"] = f"the value of a variable or a state, {list(shape)}"
    return {printable(name): printable(text) for name, text in found.items()}


def printable(text: str) -> str:
    """Returns a text of a capsule, which may be of somebody else, without what steers terminals."""
    return "".join(each if each.isprintable() else "?" for each in text)


def table_of(steps: Sequence[Replayed]) -> str:
    """Returns the steps that were run again, the last ones of them."""
    lines: list[str] = []
    if len(steps) > _SHOWN:
        before = steps[:-_SHOWN]
        same = sum(each.same_bits is not False for each in before)
        lines.append(f"  steps {before[0].step} to {before[-1].step}: {same} with the same bits")
    changed = [each for each in steps if each.other_bits]
    for each in changed[:1]:
        gradients = [bits for bits in each.other_bits if bits[0].startswith("the gradient of ")]
        name, replica = (gradients or each.other_bits)[0]
        lines.append(
            f"  step {each.step}: {name} on replica {replica} had another value when it was "
            f"recorded ({len(each.other_bits)} differ in all), and is the first that had: unless "
            "the data or the program are others now, it was changed from outside of the step, or "
            "by a fault"
        )
    for each in steps[-_SHOWN:]:
        lines.append(f"  step {each.step}: {_numbers(each)}{_verdict(each)}")
    return "\n".join(lines)


def _numbers(replayed: Replayed) -> str:
    texts = [_number(part) for parts in replayed.results[:4] for part in parts[:8]]
    return " ".join(texts) or "no small results"


def _number(array: np.ndarray) -> str:
    return f"{array.item():.7g}" if array.size == 1 else f"{array.ravel()[:4].tolist()}"


def _verdict(replayed: Replayed) -> str:
    if replayed.same_bits is None:
        return ", of which nothing was recorded"
    if replayed.same_bits:
        return ", the recorded bits"
    if replayed.agrees:
        return (
            f", the recorded value to {replayed.largest_difference:.1e} (replicas of several "
            "workers are in one process here, and round in another way)"
        )
    was = [_number(part) for parts in replayed.recorded or () for part in parts][:4]
    return f", recorded was {' '.join(was)}: they differ by {replayed.largest_difference:.1e}"
