"""Restoring: find for each thing of the program what was saved of it, then set everything.

Names are followed from the root, in the program and in the checkpoint at once. All that does not
fit is found, and told, before anything is changed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

from replicax._src import _errors
from replicax._src.checkpoints import _job
from replicax._src.checkpoints._elsewhere import ReadElsewhere
from replicax._src.checkpoints._graph import CALL_COUNTER, GraphNode, Kind, Spelling
from replicax._src.checkpoints._leaf import (
    converted,
    differing_copies,
    put_value,
    spec_of,
    state_from_json,
)
from replicax._src.checkpoints._problems import UnmatchedError
from replicax._src.checkpoints._saved import Saved
from replicax._src.context import get_strategy, has_strategy
from replicax._src.training import Optimizer

_LISTED = 40  # how many differences an error shows


@final
@dataclasses.dataclass
class Match:
    """How the program and a checkpoint go together."""

    pairs: list[tuple[GraphNode, int]]  # leaves, and the saved object of each
    missing: list[GraphNode]  # leaves without one
    differences: list[str]  # leaves whose saved object is something else
    unbuilt: list[tuple[Optimizer, int]]  # optimizers without a state yet, of which one was saved
    reset: list[Optimizer]  # optimizers with a state, of which none was saved
    bound: dict[int, int]  # saved objects by the identity of the program's
    used: set[int]  # saved objects with a place in the program


def match(nodes: list[GraphNode], saved: Saved) -> Match:
    """Follows the names in both at once."""
    found = Match([], [], [], [], [], {}, set())
    of_node = {0: 0}
    queue = [0]
    for index in queue:
        children = saved.objects[of_node[index]].get("children", {})
        for name, child in nodes[index].children.items():
            target = children.get(name)
            if target is None:
                continue
            if child not in of_node:
                of_node[child] = target
                queue.append(child)
            elif of_node[child] != target and nodes[child].is_leaf:
                theirs = [saved.objects[i]["path"] for i in (of_node[child], target)]
                found.differences.append(
                    f"{nodes[child].path}: one here, but two in the checkpoint: {theirs[0]} and "
                    f"{theirs[1]}"
                )
    for index, node in enumerate(nodes):
        if index not in of_node and (target := saved.named(node)) is not None:
            of_node[index] = target
    for index, node in enumerate(nodes):
        if (node.slots or isinstance(node.value, Optimizer)) and index in of_node:
            _match_slots(index, nodes, saved, of_node, found)
    fresh = {id(optimizer) for optimizer in found.reset}
    skipped = {slot.node for node in nodes if id(node.value) in fresh for slot in node.slots}
    skipped |= {
        slot.node
        for node in nodes
        for slot in node.slots
        if slot.node not in of_node and saved.spelling.may_lack(slot.label)
    }
    for index, node in enumerate(nodes):
        target = of_node.get(index)
        if target is not None:
            found.bound[id(node.value)] = target
            found.used.add(target)
        if not node.is_leaf or index in skipped:
            continue
        if target is None:
            if not is_counter(node.path):
                found.missing.append(node)
        elif (text := difference(node, saved, target)) is not None:
            found.differences.append(text)
        else:
            found.pairs.append((node, target))
    return found


def is_counter(path: str) -> bool:
    """Returns whether it is one of our own counts, which a checkpoint may be without.

    Of the saves: `write` may come before there is one. Of the calls: there may have been no
    `PreemptionCheckpointHandler`.
    """
    return path.rpartition("/")[2] in ("save_counter", CALL_COUNTER)


def _match_slots(
    index: int, nodes: list[GraphNode], saved: Saved, of_node: dict[int, int], found: Match
) -> None:
    node, target = nodes[index], of_node[index]
    theirs = saved.objects[target].get("slots", [])
    if isinstance(node.value, Optimizer):
        if node.slots and not theirs:
            found.reset.append(node.value)
        elif theirs and not node.slots:
            found.unbuilt.append((node.value, target))
    table = SlotTable(theirs, saved.spelling)
    for slot in node.slots:
        owner = None if slot.owner is None else of_node.get(slot.owner)
        saved_slot = table.find(owner, slot.position, slot.label)
        if saved_slot is not None:
            of_node.setdefault(slot.node, saved_slot)


@final
class SlotTable:
    """The saved state of an optimizer, by whose it is, or by the position of that, and by label."""

    def __init__(self, slots: list[list[Any]], spelling: Spelling):
        self._spelling = spelling
        self._by_owner: dict[tuple[int, str], int] = {}
        self._by_position: dict[tuple[int | None, str], int] = {}
        for owner, position, label, node in slots:
            self._by_position[position, label] = node
            if owner is not None:
                self._by_owner[owner, label] = node

    def find(self, owner: int | None, position: int | None, label: str) -> int | None:
        """Returns the saved object of a part of the state; None if there is none."""
        for each in self._spelling.labels_of(label):
            found = self._by_owner.get((owner, each)) if owner is not None else None
            if found is None and (owner is None or not self._by_owner):
                found = self._by_position.get((position, each))
            if found is not None:
                return found
        return None


def difference(node: GraphNode, saved: Saved, target: int) -> str | None:
    """In what a thing of the program and a saved one differ."""
    theirs = saved.objects[target]["kind"]
    mine = describe(node)
    same_kind = node.kind == theirs or {node.kind, theirs} <= {Kind.VARIABLE, Kind.ARRAY}
    if same_kind and (
        node.kind not in (Kind.VARIABLE, Kind.ARRAY) or saved.fits(spec_of(node.value), target)
    ):
        return None
    if node.kind == Kind.NUMBER and saved.number(target) is not None:
        return None
    return f"{node.path}: saved {saved.describe(target)}, wanted {mine}"


def describe(node: GraphNode) -> str:
    """Returns what the program has there, for messages."""
    if node.kind in (Kind.VARIABLE, Kind.ARRAY):
        return str(spec_of(node.value))
    if node.kind == Kind.NUMBER:
        return f"a number (now {node.value!r})"
    return "the position of an iterator"


# --- applying -------------------------------------------------------------------------------------


def require_fit(found: Match, saved: Saved, partial: bool) -> None:
    """`CheckpointError` that lists everything that does not fit."""
    lines = list(found.differences)
    if not partial:
        lines += [f"{n.path}: not in the checkpoint, wanted {describe(n)}" for n in found.missing]
    if not lines:
        return
    unused = [
        f"{saved.objects[index]['path']}: {saved.describe(index)}"
        for index in saved.leaves()
        if index not in found.used
    ]
    text = f"The checkpoint {saved.path} does not fit the program; nothing was restored.\n  "
    text += "\n  ".join(_shortened(lines))
    if unused and found.missing:
        text += "\nIn the checkpoint and not in the program:\n  " + "\n  ".join(_shortened(unused))
    if not found.differences:
        text += "\nTo leave what is missing as it is, write restore(path, partial=True)."
    raise UnmatchedError(text)


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= _LISTED:
        return lines
    return [*lines[:_LISTED], f"... and {len(lines) - _LISTED} more"]


def require_own_strategy(nodes: list[GraphNode]) -> None:
    """Variables of another strategy than the current one cannot be set."""
    if not has_strategy():
        return
    for node in nodes:
        strategy = node.kind == Kind.VARIABLE and node.value.distribute_strategy
        if strategy and strategy is not get_strategy():
            raise _errors.WrongContextError(
                f"The checkpoint holds {node.path}, a variable of {strategy!r}, and cannot be "
                f"restored in the scope of {get_strategy()!r}. Restore outside of scopes."
            )


@final
class PreparedValues:
    """Everything is read, and positions are set, which are the only ones that may refuse."""

    def __init__(self, pairs: list[tuple[GraphNode, int]], saved: Saved):
        job = _job.current_job()
        self._saved = saved
        require_own_strategy([node for node, _ in pairs])
        self._numbers = [
            (n.put, saved.number(i))
            for n, i in pairs
            if n.kind == Kind.NUMBER and n.put is not None
        ]
        in_arrays = [(n, i) for n, i in pairs if n.kind in (Kind.VARIABLE, Kind.ARRAY)]
        self._elsewhere = ReadElsewhere(in_arrays, saved)
        try:
            self._read(self._elsewhere.rest, job)
            states = [(n, i) for n, i in pairs if n.kind == Kind.STATE]
            self._before = _set_states(states, saved, job)
        except BaseException:
            self._elsewhere.end()
            raise

    def _read(self, in_arrays: list[tuple[GraphNode, int]], job: _job.Job) -> None:
        saved = self._saved
        self._in_arrays = in_arrays
        self._values = saved.arrays(sorted({index for _, index in self._in_arrays}))
        # What is to become another dtype may refuse to, and has to do so now.
        self._converted = {
            id(node): converted(self._values[index], spec_of(node.value), node.path)
            for node, index in self._in_arrays
            if spec_of(node.value) != saved.spec(index)
        }
        self._copies = saved.copies(
            job.worker,
            [i for n, i in self._in_arrays if _same_copies(n, saved.objects[i], job.workers)],
        )

    def commit(self) -> None:
        """Sets the things of the program."""
        self._elsewhere.adopt()
        paths = self._saved.watched([node.path for node, _ in self._in_arrays])
        for (node, index), _ in zip(self._in_arrays, paths, strict=True):
            given = self._converted.get(id(node))
            value = self._values[index] if given is None else given
            put_value(node, value, self._copies.get(index))
        for put, number in self._numbers:
            put(number)

    def undo(self) -> None:
        """Leaves everything as it was."""
        self._elsewhere.end()
        for value, before in self._before:
            value.set_state(before)


def _same_copies(node: GraphNode, saved: dict[str, Any], workers: int) -> bool:
    """Returns whether each copy can have its own value: the replicas are those of the save."""
    mine = len(differing_copies(node.value)) if node.kind == Kind.VARIABLE else 0
    return mine > 0 and saved.get("copies") == [mine] * workers


def _set_states(
    pairs: list[tuple[GraphNode, int]], saved: Saved, job: _job.Job
) -> list[tuple[Any, Any]]:
    """Sets positions; returns the iterators, and where they were."""
    done: list[tuple[Any, Any]] = []
    try:
        for node, index in pairs:
            states = saved.objects[index]["states"]
            if len(states) > 1 and len(states) != job.workers:
                raise UnmatchedError(
                    f"{node.path}: the checkpoint {saved.path} has a position of its own for each "
                    f"of {len(states)} workers, and this job has {job.workers}. Only data sets of "
                    "which every worker takes its part of global batches (AutoShardPolicy.DATA) "
                    "can be continued by another number of workers."
                )
            state = state_from_json(states[job.worker if len(states) > 1 else 0])
            done.append((node.value, node.value.get_state()))
            try:
                node.value.set_state(state)
            except Exception as error:  # it is the user's, or given to it is anybody's
                raise UnmatchedError(
                    f"{node.path}: the position in the checkpoint {saved.path} does not fit this "
                    f"iterator; nothing was restored. {error}"
                ) from error
    except BaseException:
        for value, before in done:
            value.set_state(before)
        raise
    return done
