"""Reducing many small tensors in few collectives, inside a traced SPMD program.

A collective has a fixed cost; a model of 50 small layers pays it 100 times. Tensors below a limit
are flattened, concatenated into packs, reduced, and split again. Large ones go alone: there the
copy costs more than the collective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from replicax._src._arrays import for_mean
from replicax._src.collectives._reduce_op import ReduceOp
from replicax._src.devices import ReplicaMesh, over_replicas

DEFAULT_BYTES_PER_PACK = 4 << 20


class Packing(NamedTuple):
    """What goes into a pack."""

    alone_from_bytes: int
    """From this size on a tensor goes alone."""
    by_shape: bool
    """Whether a pack is of one shape. Otherwise vectors go with vectors.

    Vectors tend to be sums (the gradients of biases), which XLA on the CPU puts into the loop that
    copies the pack, and carries out again for every item of it: a net of four layers took 100 times
    as long with its matrices in the same pack.
    """
    most_tensors: int | None
    """In one pack.

    What is done with a tensor after the pack was split begins with its place in the pack, and XLA
    compiles it for each place. Tensors of one shape in many small packs share their places. For a
    net of fifty layers, 16 wide, the first call then takes 60% of the time; its steps, as long on
    two devices and a fifth longer on eight, where one by one they would take twice as long.
    """


# Inside one process a collective is cheap, and the loop that copies a pack is not (nets of 3 to 30
# layers); between workers it is the other way round.
IN_ONE_PROCESS = Packing(128 << 10, by_shape=True, most_tensors=16)
BETWEEN_WORKERS = Packing(1 << 20, by_shape=False, most_tensors=None)


def plan_packs(
    arrays: Sequence[Any], bytes_per_pack: int, packing: Packing = IN_ONE_PROCESS
) -> list[list[int]]:
    """Which tensors are reduced together: lists of positions, each of one dtype."""
    limit = bytes_per_pack or DEFAULT_BYTES_PER_PACK
    packs: list[list[int]] = []
    open_pack: dict[Any, tuple[list[int], int]] = {}
    for index, array in enumerate(arrays):
        size = math.prod(array.shape) * array.dtype.itemsize
        if size >= min(limit, packing.alone_from_bytes):
            packs.append([index])
            continue
        kind = (array.dtype, array.shape if packing.by_shape else len(array.shape) < 2)
        pack, used = open_pack.get(kind, ([], 0))
        if used + size > limit or len(pack) == packing.most_tensors:
            pack, used = [], 0
        if not pack:
            packs.append(pack)
        pack.append(index)
        open_pack[kind] = (pack, used + size)
    return packs


def all_reduce_traced(
    arrays: Sequence[jax.Array], op: ReduceOp, mesh: ReplicaMesh, bytes_per_pack: int
) -> list[jax.Array]:
    """The reduction of each array over the replica axis, fused; for use inside `shard_map`."""
    if op is ReduceOp.MEAN:
        arrays = [for_mean(array) for array in arrays]
    reduced: list[Any] = list(arrays)
    # An array without items has nothing to send, and XLA does not take it into a collective.
    sent = [index for index, array in enumerate(arrays) if array.size]
    packing = BETWEEN_WORKERS if mesh.spans_workers else IN_ONE_PROCESS
    for positions in plan_packs([arrays[index] for index in sent], bytes_per_pack, packing):
        pack = [sent[position] for position in positions]
        if len(pack) == 1:
            reduced[pack[0]] = over_replicas(jax.lax.psum, arrays[pack[0]])
            continue
        flat = jnp.concatenate([arrays[index].ravel() for index in pack])
        total = over_replicas(jax.lax.psum, flat)
        offset = 0
        for index in pack:
            size = arrays[index].size
            reduced[index] = total[offset : offset + size].reshape(arrays[index].shape)
            offset += size
    return [array / mesh.size for array in reduced] if op is ReduceOp.MEAN else reduced
