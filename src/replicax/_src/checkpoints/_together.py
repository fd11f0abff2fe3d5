"""What the workers of a job have to do together, and what one of them can do alone.

A save is worker 0's business alone if nothing in it is different on the other workers. To restore
different things would make them diverge, so there the first worker says what it is, and all of
them do it or none.
"""

from __future__ import annotations

from typing import final

from replicax._src import _warnings
from replicax._src._errors import CheckpointError
from replicax._src._local_path import made_absolute
from replicax._src.checkpoints import _folder, _job
from replicax._src.checkpoints._graph import CALL_COUNTER, GraphNode, Kind
from replicax._src.checkpoints._leaf import has_parts_elsewhere
from replicax._src.data.distributed import DistributedIterator
from replicax._src.strategies import replica_mesh_of


def save_needs_all(nodes: list[GraphNode]) -> bool:
    """Returns whether a checkpoint of these things has parts that only other workers have."""
    return any(_differs_over_workers(node) for node in nodes)


def _differs_over_workers(node: GraphNode) -> bool:
    if node.kind == Kind.STATE:
        # Where every worker takes its part of global batches, all are at the same place.
        is_global = isinstance(node.value, DistributedIterator)
        return not is_global or "workers" in node.value.tied_to()
    if node.path == CALL_COUNTER:
        return True  # a save before all leave: nobody may go while another one writes
    return node.kind == Kind.VARIABLE and has_parts_elsewhere(node.value)


def restore_needs_all(nodes: list[GraphNode]) -> bool:
    """Returns whether these things must be the same on all workers.

    Plain variables need not: a worker may restore a model of its own, to look at it. Where there is
    nothing yet, a model is built later.
    """
    leaves = [node for node in nodes if node.is_leaf]
    return not leaves or any(_belongs_to_all(node) for node in leaves)


def _belongs_to_all(node: GraphNode) -> bool:
    if node.kind != Kind.VARIABLE:
        return node.kind == Kind.STATE
    strategy = node.value.distribute_strategy
    return strategy is not None and replica_mesh_of(strategy).spans_workers


@final
class Restoring:
    """One `restore` of a job: the workers agree on what, and whether it went well."""

    def __init__(self, job: _job.Job):
        self._job = job
        self._topic = _job.topic(job)

    def chosen(self, path: str | None) -> str | None:
        """Returns what to restore: what the first worker was told to, or its equal here."""
        path = None if path is None else made_absolute(path)
        mark = None if path is None else _folder.mark_of(path)
        words = self._job.exchange(f"{self._topic}-restore", [path, mark])
        first, first_mark = words[0]
        if first is None:
            other = next((worker for worker, (it, _) in enumerate(words) if it is not None), None)
            if other is None:
                return None
            raise CheckpointError(
                f"Worker 0 is to restore nothing (None), and worker {other} {words[other][0]}: "
                "their variables would differ. All workers restore the same, and the first one "
                "says what. If it has lost its directory, use one that all workers share."
            )
        if mark is not None and mark == first_mark:
            return path
        if path != first:
            _warnings.warn(
                f"Worker {self._job.worker} was to restore {path or 'nothing (None)'}. It restores "
                f"{first}, as worker 0 does: all workers restore the same. Save to a directory "
                "that all workers share, and use manager.restore_or_initialize()."
            )
        return first

    def agree(self, error: Exception | None, mark: str | None) -> None:
        """Raises on all workers if one of them could not, or has read something else."""
        told = None if error is None else f"{type(error).__name__}: {error}"
        words = self._job.exchange(f"{self._topic}-restored", [told, mark])
        if error is not None:
            raise error
        for worker, (text, other) in enumerate(words):
            if text is not None:
                raise CheckpointError(
                    f"Nothing was restored, because worker {worker} failed: {text}"
                )
            if other != mark:
                raise CheckpointError(
                    f"Nothing was restored: worker {worker} has read another checkpoint under the "
                    f"same name than worker {self._job.worker}. Save to a directory that all "
                    "workers share."
                )
