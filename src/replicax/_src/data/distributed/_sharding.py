"""Which worker reads what, and by which rule batches are split: decided, and explained."""

from __future__ import annotations

import dataclasses
from typing import final

from replicax._src._warnings import warn
from replicax._src.data._caching import Cache, options_of
from replicax._src.data._choosing import Choose
from replicax._src.data._combining import Enumerate, Interleave
from replicax._src.data._indexed import Indexed
from replicax._src.data._mapping import Filter
from replicax._src.data._node import Node, rewritten, walk
from replicax._src.data._options import AutoShardPolicy
from replicax._src.data._ordering import Shard
from replicax._src.data._run import Run
from replicax._src.data._saving import Snapshot
from replicax._src.data._sources import Files, PythonIterator
from replicax._src.data.distributed._batch_sizes import (
    all_whole_but_the_last,
    batch_size_of,
    refuse_unbatched,
)
from replicax._src.data.distributed._options import InputLayout
from replicax._src.data.distributed._splitting import (
    EachBatch,
    EachOwnBatch,
    RowStream,
    Steps,
    pieces_of,
    shares_of,
)

OFF, AUTO, FILE, DATA, HINT = AutoShardPolicy


@final
@dataclasses.dataclass(frozen=True)
class Sharding:
    """What this worker reads and how it is split.

    Attributes:
      node: what this worker reads.
      policy: the policy that was chosen.
      reason: why, for people.
      batch_size: the global batch size, or None if it is not known.
      by_batch: which rule splits: each batch for itself, or the stream of rows.
    """

    node: Node
    policy: AutoShardPolicy
    reason: str
    batch_size: int | None
    by_batch: bool
    layout: InputLayout

    def open(self, run: Run) -> Steps:
        """Starts a walk over the steps."""
        layout = self.layout
        local = layout.local_replicas
        reader = self.node.open(run)
        if self.by_batch:
            if self.policy is DATA or layout.workers == 1:
                return EachBatch(reader, layout.workers, layout.worker, local)
            return EachOwnBatch(reader, layout.workers, local)
        sizes = shares_of(self.batch_size or 0, layout.replicas)
        first = layout.worker * local
        whole = self.batch_size if self.batches_are_whole else None
        return RowStream(reader, sizes[first:] + sizes[:first], local, whole)

    @property
    def batches_are_whole(self) -> bool:
        """Whether all batches but the last have the same number of rows."""
        return all_whole_but_the_last(self.node)

    def sizes_of_whole_batch(self) -> list[int]:
        """Returns how many rows of a whole batch each replica gets, over all workers."""
        size, replicas = self.batch_size or 0, self.layout.replicas
        if self.by_batch:
            return [len(piece) for piece in pieces_of(size, replicas)]
        return shares_of(size, replicas)

    @property
    def same_steps_everywhere(self) -> bool:
        """Whether a worker knows of the others' steps without asking: how many, how many rows."""
        return self.layout.workers == 1 or self.policy is DATA


def shard(node: Node, layout: InputLayout, policy: AutoShardPolicy | None = None) -> Sharding:
    """Decides what this worker reads of a data set, and how its batches are split."""
    refuse_unbatched(node)
    asked = options_of(node).experimental_distribute.auto_shard_policy if policy is None else policy
    chosen, reason = _chosen(node, asked, layout)
    by_batch = chosen is DATA or layout.replicas == 1  # one replica gets batches as they are
    batch_size = batch_size_of(node, may_run=not by_batch)
    by_batch = by_batch or batch_size is None
    mine = node
    if layout.workers > 1:
        if chosen is FILE:
            mine = by_files(node, layout)
        elif chosen is DATA:
            if asked is not AUTO or _file_count(node) is None:
                _warn_of_dropped_work(node)
    hinted = any(isinstance(each, Shard) and each.num_shards < 0 for each in walk(node))
    if hinted and chosen is not HINT:
        raise ValueError(
            "shard(SHARD_HINT, SHARD_HINT) says where the data set is to be sharded, but its "
            f"auto_shard_policy is {asked.name}. Set AutoShardPolicy.HINT in its options."
        )
    if chosen is HINT:
        mine = _with_hint(node, layout)
    if layout.workers > 1 and chosen in (FILE, HINT):
        mine = rewritten(mine, lambda each: _with_own_file(each, layout))
    return Sharding(mine, chosen, reason, batch_size, by_batch, layout)


def _chosen(node: Node, asked: AutoShardPolicy, layout: InputLayout) -> tuple[AutoShardPolicy, str]:
    sources = leaves(node)
    others = [each for each in sources if not isinstance(each, Files)]
    if asked is not AUTO:
        if asked is FILE and layout.workers > 1:
            if others:
                raise ValueError(
                    "The auto_shard_policy is FILE, but the data set is not read from files: it "
                    f"has the source {others[0].label}. Use AutoShardPolicy.DATA, or AUTO."
                )
            _refuse_few_files(node, layout)
        return asked, "asked for"
    if others:
        how = "is read by index" if isinstance(others[0], Indexed) else "is not read from files"
        return DATA, f"{others[0].label} {how}"
    if layout.workers > 1:
        count = _file_count(node)
        if count is not None and count < layout.workers:
            warn(
                f"The data set is read from {count} file(s), fewer than there are workers "
                f"({layout.workers}). Every worker reads all of them and keeps its part of each "
                "batch (AutoShardPolicy.DATA). With a file for each worker, each would read its "
                "own."
            )
            return DATA, f"{count} file(s) for {layout.workers} workers"
    return FILE, "every source is read from files"


# ------------------------------------------------------------------ files


def leaves(node: Node) -> list[Node]:
    """Returns the sources: readers of files (whatever names them), and nodes without inputs."""
    if isinstance(node, Files) or not node.inputs:
        return [node]
    if isinstance(node, Enumerate):  # the numbers are of all files together
        return [node, *leaves(node.input)]
    if isinstance(node, Choose):  # every worker chooses, from its own files
        return [leaf for part in node.parts for leaf in leaves(part)]
    if isinstance(node, Interleave):
        made = node.first_made
        inner = leaves(made) if made is not None else []
        if inner and all(isinstance(each, Files) for each in inner):
            return inner
    return [leaf for each in node.inputs for leaf in leaves(each)]


def by_files(node: Node, layout: InputLayout) -> Node:
    """Returns the tree in which every reader has every n-th of its files."""

    def names_of_mine(names: Node) -> Node:
        # The names are shuffled after they are dealt out, or a file could be read twice.
        if names.keeps_elements and len(names.inputs) == 1:
            return names.with_inputs([names_of_mine(names.inputs[0])])
        return Shard(names, layout.workers, layout.worker)

    def change(each: Node) -> Node | None:
        if isinstance(each, Files):
            return dataclasses.replace(each, names=names_of_mine(each.names))
        if isinstance(each, Interleave) and all(isinstance(leaf, Files) for leaf in leaves(each)):
            if not any(isinstance(below, Files) for below in walk(each.input)):
                return each.with_inputs([names_of_mine(each.input)])
        return None

    return rewritten(node, change)


def _name_nodes(node: Node) -> list[Node]:
    if isinstance(node, Files):
        return [node.names]
    if isinstance(node, Interleave) and not any(isinstance(e, Files) for e in walk(node.input)):
        return [node.input]
    return [found for each in node.inputs for found in _name_nodes(each)]


def _file_count(node: Node) -> int | None:
    """Returns the smallest number of files that a reader has, where that is known."""
    counts = [names.cardinality for names in _name_nodes(node)]
    known = [count for count in counts if count >= 0]
    return min(known) if known else None


def _refuse_few_files(node: Node, layout: InputLayout) -> None:
    count = _file_count(node)
    if count is not None and count < layout.workers:
        raise ValueError(
            f"The auto_shard_policy is FILE, but there are {count} file(s) for {layout.workers} "
            "workers, and each needs at least one. Write more files, or use AutoShardPolicy.DATA."
        )


def _with_own_file(node: Node, layout: InputLayout) -> Node | None:
    """Returns a cache with a file of this worker's own; None if the node is no such cache."""
    if not isinstance(node, Cache | Snapshot) or not node.filename:
        return None
    name = f"{node.filename}.{layout.worker}-of-{layout.workers}"
    input_ = rewritten(node.input, lambda each: _with_own_file(each, layout))
    return dataclasses.replace(node, input=input_, filename=name)


def _with_hint(node: Node, layout: InputLayout) -> Node:
    def change(each: Node) -> Node | None:
        if isinstance(each, Shard) and each.num_shards < 0:
            input_ = rewritten(each.input, change)
            return Shard(input_, layout.workers, layout.worker)
        return None

    return rewritten(node, change)


def _warn_of_dropped_work(node: Node) -> None:
    """Says what all workers do alike, if there is something."""
    for each in walk(node):
        if isinstance(each, Files | PythonIterator | Filter | Interleave):
            warn(
                f"AutoShardPolicy.DATA: every worker reads all of {each.label} and keeps its part "
                "of each batch, because it cannot be read from the middle. All of them must read "
                "the same in the same order: give it seeds if it shuffles. Parsing and functions "
                "of map() before the batch run for the kept part only. To divide the reading "
                "too, use files and AutoShardPolicy.FILE, or "
                "strategy.distribute_datasets_from_function with a shard() of its own."
            )
            return
