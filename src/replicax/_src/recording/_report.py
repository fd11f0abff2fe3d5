"""What `replicax replay` says of a step that it has run again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from replicax._src.checkpoints import list_variables
from replicax._src.recording._compared import Replayed
from replicax._src.recording._recorded import Recorded
from replicax._src.recording._ring import DESCRIPTION

_SHOWN = 8  # steps
_JUMP = 50.0  # times as much as in the step before


def heading(recorded: Recorded, step: int, recording: str = "") -> str:
    """Returns what the capsule is of.

    Args:
      recorded: the capsule.
      step: which is run again.
      recording: where it was made from just now, if it was.
    """
    layout, versions = recorded.layout, recorded.descriptions[0].get("versions", {})
    made_by = ", ".join(printable(f"{name} {version}") for name, version in versions.items())
    lines = [
        f"recording {printable(recording)}" if recording else f"capsule {recorded.path}",
        f"  {printable(str(layout.get('strategy')))}, {layout['workers']} worker(s), "
        f"{layout['replicas']} replica(s); {made_by}",
    ]
    if recorded.trap is not None:
        first, *more = str(recorded.trap.get("text")).splitlines() or [""]
        lines.append(f"  trapped: {printable(first)}")
        lines += [f"    {printable(each)}" for each in more]
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
            kept = [
                (f"argument {index} of step {number}: rows of data", described)
                for index, described in enumerate(step.inputs)
            ]
            kept += [(f"variable {name} before step {number}", each) for name, each in step.outside]
            for what, described in kept:
                if described[0] == "files":
                    for dtype, shape, name in described[2]:
                        found[f"{folder}/{name}"] = f"{what}, {dtype}{shape}"
    for name, shape in list_variables(recorded.checkpoint):
        found[f"checkpoint: {name}"] = f"the value of a variable or a state, {list(shape)}"
    for name, shape in [] if recorded.unsaved is None else list_variables(recorded.unsaved):
        found[f"unsaved: {name}"] = f"the value of a variable that it does not have, {list(shape)}"
    return {printable(name): printable(text) for name, text in found.items()}


def printable(text: str) -> str:
    """Returns a text of a capsule, which may be of somebody else, without what steers terminals."""
    return "".join(each if each.isprintable() else "?" for each in text)


def table_of(steps: Sequence[Replayed]) -> str:
    """Returns the steps that were run again, the last ones of them."""
    lines: list[str] = []
    if len(steps) > _SHOWN:
        before = steps[:-_SHOWN]
        same = sum(each.same_bits is True for each in before)
        lines.append(
            f"  steps {before[0].step} to {before[-1].step}: {same} of {len(before)} with the same "
            "bits"
        )
    changed = [each for each in steps if each.other_bits]
    for each in changed[:1]:
        gradients = [bits for bits in each.other_bits if bits[0].startswith("the gradient of ")]
        name, replica = (gradients or each.other_bits)[0]
        others = [bits[0] for bits in each.other_bits if bits[1] == replica and bits[0] != name]
        also = f", as had {', '.join(others[:4])} there" if others else ""
        lines.append(
            f"  step {each.step}: {name} on replica {replica} had another value when it was "
            f"recorded{also} ({len(each.other_bits)} differ in all). It is the first step that "
            "had: unless the data or the program are others now, it was changed from outside of "
            "the step, or by a fault"
        )
    for each in steps[-_SHOWN:]:
        changed = list(each.outside[:_SHOWN])
        if len(each.outside) > _SHOWN:
            changed.append(f"{len(each.outside) - _SHOWN} more were changed")
        if each is not steps[-1] and changed:
            changed = ["; ".join(changed)]
        lines += [f"  before step {each.step}, not by the function: {text}" for text in changed]
        lines.append(f"  step {each.step}: {_numbers(each)}{_verdict(each)}")
    return "\n".join(lines)


def changes_of(steps: Sequence[Replayed], is_wanted: bool) -> str:
    """Returns where a step changed variables far more for their gradients than the one before.

    Args:
      steps: those that were run again, with their changes.
      is_wanted: whether the largest change of the last one is said in any case.
    """
    steps = [each for each in steps if each.changes]
    for before, step in zip(steps, steps[1:]):
        for name, (gradient, change) in step.changes.items():
            gradient_before, change_before = before.changes.get(name, (0.0, 0.0))
            if not (gradient > 0 and gradient_before > 0 and change_before > 0):
                continue
            factor, factor_before = change / gradient, change_before / gradient_before
            # Both: Adam's changes do not grow with gradients, and would only seem to have jumped.
            if factor > _JUMP * factor_before and change > _JUMP * change_before:
                return (
                    f"  step {step.step}: {name} changed by up to {change:.4g} with gradients of "
                    f"up to {gradient:.4g}, {factor:.4g} times as much, and {factor_before:.4g} "
                    "times the step before: look at the learning rate, and at the state of the "
                    "optimizer"
                )
    if not steps or not is_wanted:
        return ""
    changes = steps[-1].changes
    name = max(changes, key=lambda each: changes[each][1])
    gradient, change = changes[name]
    return (
        f"  step {steps[-1].step}: {name} changed most of all, by up to {change:.4g}, with "
        f"gradients of up to {gradient:.4g}"
    )


def _numbers(replayed: Replayed) -> str:
    texts = [_number(part) for parts in replayed.results[:4] for part in parts[:8]]
    return " ".join(texts) or "no small results"


def _number(array: np.ndarray) -> str:
    return f"{array.item():.7g}" if array.size == 1 else f"{array.ravel()[:4].tolist()}"


def _verdict(replayed: Replayed) -> str:
    if replayed.same_bits is None:
        return ", and nothing was recorded that it could be compared with"
    if replayed.same_bits:
        return ", the recorded bits"
    if replayed.agrees:
        return (
            f", the recorded value to {replayed.largest_difference:.1e} (another number of "
            "processes or replicas rounds in another way)"
        )
    was = [_number(part) for parts in replayed.recorded or () for part in parts][:4]
    return f", recorded was {' '.join(was)}: they differ by {replayed.largest_difference:.1e}"
