"""Which places of a mesh become which cores of which replica: the arithmetic of assignments.

A computation is a block of cores, `shape`, `stride` apart. The axes are x, y, z and core, and the
orders are TensorFlow's, number by number.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np


def replicas_by_axis(mesh: np.ndarray, shape: np.ndarray, stride: np.ndarray) -> np.ndarray:
    """Returns how many computations fit along each axis; those that interleave count all."""
    return mesh // (shape * stride) * stride


def in_mesh_order(
    mesh: np.ndarray, shape: np.ndarray, stride: np.ndarray, replicas: int
) -> np.ndarray:
    """Replicas and their cores one row after the other: (replicas, cores, axes)."""
    grid = _replica_grid(replicas_by_axis(mesh, shape, stride), replicas)
    # Neighbours are the cores of a chip first, then chips along x, along y, along z.
    z, y, x, core = np.unravel_index(np.arange(replicas), (*grid[2::-1], grid[3]))
    position = np.stack([x, y, z, core], axis=-1)
    start = position // stride * (shape * stride) + position % stride
    block = np.indices(shape.tolist()).reshape(len(shape), -1).T * stride
    return (start[:, None] + block[None]).astype(np.int32)


def in_ring_order(mesh: np.ndarray, shape: np.ndarray, replicas: int) -> np.ndarray:
    """Returns the same with replicas in a ring, and the chips of each in a ring.

    Only where replicas fill the mesh without gaps, and have all cores of their chips.
    """
    grid = _replica_grid(mesh // shape, replicas)
    starts = np.array(ring(grid[:3])) * shape[:3]
    chips = (starts[:, None] + np.array(ring(shape[:3].tolist()))[None]).tolist()
    cores = range(mesh[-1])
    places = [[[*chip, core] for chip in replica for core in cores] for replica in chips]
    return np.array(places, np.int32)


def in_task_order(device_coordinates: np.ndarray, cores: int, replicas: int) -> np.ndarray:
    """Returns the same with devices as they come: the first are the cores of replica 0."""
    axes = device_coordinates.shape[-1]
    places = device_coordinates.reshape(-1, axes)[: replicas * cores]
    return places.reshape(replicas, cores, axes)


def ring(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Returns a round trip through chips: each is beside the one before, the last by the first.

    Where there is none (in a line, or if a side is odd) it is x after x, row by row.

    >>> ring([2, 2, 1])
    [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]
    """
    x_size, y_size, z_size = sizes
    longer = [size for size in sizes if size > 1]
    if len(longer) < 2 or any(size % 2 for size in longer):
        order = itertools.product(range(z_size), range(y_size), range(x_size))
        return [(x, y, z) for z, y, x in order]
    # A flat block lies in the first two axes of the trip, whichever they are in the mesh.
    axes = sorted(range(3), key=lambda axis: sizes[axis] == 1)
    width, height, depth = (sizes[axis] for axis in axes)
    trip = [(0, 0, 0)]
    for level in range(depth):
        loop = _open_loop(width, height)
        trip += [(a, b, level) for a, b in (reversed(loop) if level % 2 else loop)]
    trip += [(0, 0, level) for level in range(depth - 1, 0, -1)]
    where = [axes.index(axis) for axis in range(3)]
    return [(chip[where[0]], chip[where[1]], chip[where[2]]) for chip in trip]


def _open_loop(width: int, height: int) -> list[tuple[int, int]]:
    """From beside the corner through all of an area to below the corner, without the corner.

    Back and forth through the rows, and home along the first column.
    """
    rows = [(x, y) for y in range(height) for x in range(1, width)[:: -1 if y % 2 else 1]]
    return rows + [(0, y) for y in range(height - 1, 0, -1)]


def _replica_grid(most: np.ndarray, replicas: int) -> list[int]:
    """Returns a grid for so many replicas, near to a cube, with at most so many along each axis.

    The shortest axes choose first, for they have the least choice; among equals the cores, so that
    neighbours share a chip, then x, y and z.
    """
    rank = len(most)
    grid = [0] * rank
    remaining = replicas
    in_turn = sorted(range(rank), key=lambda axis: (most[axis], (axis + 1) % rank))
    for axes_left, axis in zip(range(rank, 0, -1), in_turn, strict=True):
        wanted = math.ceil(remaining ** (1.0 / axes_left))  # rounded as TensorFlow rounds
        grid[axis] = min(wanted, int(most[axis]))
        remaining = -(-remaining // grid[axis])
    assert remaining == 1
    return grid
