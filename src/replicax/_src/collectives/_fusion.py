"""Reducing many small tensors in few collectives, inside a traced SPMD program.

A collective has a fixed cost; a model of 50 small layers pays it 100 times. Tensors below a limit
are flattened, concatenated into packs, reduced, and split again. Large ones go alone: there the
copy costs more than the collective.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

import jax

from replicax._src._arrays import for_mean
from replicax._src.collectives._reduce_op import ReduceOp
from replicax._src.devices import IN_ONE_PROCESS, Packing, ReplicaMesh, over_replicas

DEFAULT_BYTES_PER_PACK = 4 << 20


def plan_packs(
    arrays: Sequence[Any], bytes_per_pack: int, packing: Packing = IN_ONE_PROCESS
) -> list[list[int]]:
    """Returns which tensors are reduced together: lists of positions, each of one dtype.

    Those of one shape are next to each other, so that packs that are alike begin alike.
    """
    limit = bytes_per_pack or DEFAULT_BYTES_PER_PACK
    packs: list[list[int]] = []
    open_packs: dict[Any, tuple[list[int], int]] = {}
    alike: collections.Counter[Any] = collections.Counter()
    for index, array in enumerate(arrays):
        size = math.prod(array.shape) * array.dtype.itemsize
        if size >= min(limit, packing.alone_from_bytes):
            packs.append([index])
            continue
        look = (array.dtype, array.shape)
        number = alike[look] // packing.most_alike if packing.most_alike else 0
        alike[look] += 1
        pack, used = open_packs.get((array.dtype, number), ([], 0))
        if used + size > limit:
            pack, used = [], 0
        if not pack:
            packs.append(pack)
        pack.append(index)
        open_packs[array.dtype, number] = (pack, used + size)
    shapes = {shape: place for place, shape in enumerate(dict.fromkeys(a.shape for a in arrays))}
    return [sorted(pack, key=lambda index: shapes[arrays[index].shape]) for pack in packs]


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
        flat = jax.lax.concatenate([arrays[index].reshape(-1) for index in pack], 0)
        total = over_replicas(jax.lax.psum, flat)
        offset = 0
        for index in pack:
            size = arrays[index].size
            reduced[index] = total[offset : offset + size].reshape(arrays[index].shape)
            offset += size
    return [array / mesh.size for array in reduced] if op is ReduceOp.MEAN else reduced
