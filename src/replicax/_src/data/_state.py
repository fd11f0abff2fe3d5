"""The state of an iterator: how much was received, and the seeds. To continue is to skip."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from replicax._src.data._node import Node, drawing_nodes, walk
from replicax._src.data._run import Run

VERSION = 1


def fingerprint(nodes: Sequence[Node]) -> str:
    """Returns a short text that differs for pipelines with different elements, as far as it shows.

    What functions do does not show, nor what is in files and arrays.
    """
    parts: list[str] = []
    for node in nodes:
        for each in walk(node):
            if each.passes_on:
                continue
            parts += [each.label, each.settings()]
            if not each.inputs:
                parts.append(str(each.cardinality))
    return hashlib.blake2s(" ".join(parts).encode(), digest_size=4).hexdigest()


def state_of(nodes: Sequence[Node], run: Run, position: int) -> dict[str, Any]:
    """Returns what an iterator over these pipelines has to remember."""
    state: dict[str, Any] = {
        "version": VERSION,
        "dataset": fingerprint(nodes),
        "position": position,
        "iteration": run.iteration,
    }
    seeds = [run.seed_of(each.drawn) for node in nodes for each in drawing_nodes(node)]
    return {**state, "seeds": seeds} if seeds else state


def run_from(nodes: Sequence[Node], state: object) -> tuple[Run, int]:
    """Returns the run and the position that a state describes."""
    if not isinstance(state, dict) or "version" not in state:
        raise TypeError(f"set_state takes what get_state returned, a dict; got {state!r}.")
    if state["version"] != VERSION:
        raise ValueError(
            f"The state has version {state['version']!r}, and this replicax reads version "
            f"{VERSION}. Use the replicax that wrote it."
        )
    drawing = [each for node in nodes for each in drawing_nodes(node)]
    seeds = state.get("seeds", [])
    if state.get("dataset") != fingerprint(nodes) or len(seeds) != len(drawing):
        raise ValueError(
            "The state is of another data set: its operations, batch sizes or number of elements "
            "are not those of this one. A state continues the same pipeline over the same data."
        )
    drawn = {each.drawn: int(seed) for each, seed in zip(drawing, seeds)}
    return Run(int(state["iteration"]), drawn), int(state["position"])
