"""Reducing many small tensors in few collectives, inside a traced SPMD program.

A collective has a fixed cost; a model of 50 small layers pays it 100 times. Tensors below a limit
are flattened, concatenated into packs, reduced, and split again. Large ones go alone: there the
copy costs more than the collective.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from replicax._src._arrays import for_mean
from replicax._src.collectives._reduce_op import ReduceOp
from replicax._src.devices import IN_ONE_PROCESS, Packing, ReplicaMesh, over_replicas

DEFAULT_BYTES_PER_PACK = 4 << 20


def plan_packs(
    arrays: Sequence[Any], bytes_per_pack: int, packing: Packing = IN_ONE_PROCESS
) -> list[list[int]]:
    """Returns which tensors are reduced together: lists of positions, each of one dtype."""
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
    """Returns the reductions of arrays over the replica axis, fused; inside `shard_map`."""
    if op is ReduceOp.MEAN:
        arrays = [for_mean(array) for array in arrays]
    reduced: list[Any] = list(arrays)
    # An array without items has nothing to send, and XLA does not take it into a collective.
    sent = [index for index, array in enumerate(arrays) if array.size]
    for positions in plan_packs([arrays[index] for index in sent], bytes_per_pack, mesh.packing):
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
