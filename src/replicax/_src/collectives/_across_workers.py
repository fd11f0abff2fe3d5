"""What eager code needs from the other workers besides reductions: the first's value, and gathers.

Programs of one mesh must be the same on all workers, and eager values may differ in shape: so
shapes travel first.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import Device
from replicax._src.collectives._all_reduce import array_of, checked_axis
from replicax._src.devices import REPLICA_AXIS, ReplicaMesh, put
from replicax._src.values import TracedBuffers

_MOST_DIMENSIONS = 14
_SMALLEST_MESSAGE = 256  # words


@functools.lru_cache(maxsize=64)
def _first_program(mesh: ReplicaMesh) -> Any:
    def broadcast(array: jax.Array) -> Any:
        return TracedBuffers(mesh, array).first

    return mesh.spmd(broadcast)


@functools.lru_cache(maxsize=256)
def _gather_program(mesh: ReplicaMesh, axis: int) -> Any:
    def gather(array: jax.Array) -> Any:
        return jax.lax.all_gather(array, REPLICA_AXIS, axis=axis, tiled=True)

    return mesh.spmd(gather)


def of_first_replica(mesh: ReplicaMesh, components: Sequence[Any]) -> jax.Array:
    """Returns the component of the very first replica, on every worker; all have the same shape."""
    parts = [put(part, device) for part, device in zip(components, mesh.devices, strict=True)]
    if parts[0].size == 0:
        return parts[0]
    return mesh.component(_first_program(mesh)(mesh.assemble(parts)), 0)


def of_first_worker(mesh: ReplicaMesh, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the first worker's arrays, on all workers, where shapes and dtypes are equal.

    They travel together, as words, in messages of few sizes: a model has many shapes, and would
    compile a program for each.
    """
    sizes = [array.nbytes for array in arrays]
    ends = [*itertools.accumulate(sizes)]
    words = np.zeros(_message_size(math.ceil(sum(sizes) / 4)), np.uint32)
    sent = words.view(np.uint8)
    for array, end in zip(arrays, ends, strict=True):
        sent[end - array.nbytes : end] = np.frombuffer(array.tobytes(), np.uint8)
    message = np.asarray(of_first_replica(mesh, [words] * len(mesh.devices))).view(np.uint8)
    return [
        np.frombuffer(message[end - array.nbytes : end].tobytes(), array.dtype).reshape(array.shape)
        for array, end in zip(arrays, ends, strict=True)
    ]


def _message_size(words: int) -> int:
    """Returns a size from `words` to an eighth more: there are eight for each power of two."""
    grain = max(_SMALLEST_MESSAGE, 1 << max(words - 1, 1).bit_length() >> 4)
    return math.ceil(words / grain) * grain


def gather_across(
    mesh: ReplicaMesh, parts: Sequence[Any], axis: int, device: Device, what: str
) -> jax.Array:
    """Returns the components of all workers' replicas, joined along `axis`, on one device here.

    Raises:
      ValueError: as `concatenate` does, and on all workers.
    """
    arrays = [array_of(part, what) for part in parts]
    if jnp.issubdtype(arrays[0].dtype, jax.dtypes.prng_key):
        axis = checked_axis(arrays, axis, what)
        numbers = [jax.random.key_data(array) for array in arrays]
        data = gather_across(mesh, numbers, axis, device, what)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(arrays[0]))
    looks = _looks_everywhere(mesh, arrays)
    axis = checked_axis(looks, axis, what)
    sizes = [look.shape[axis] for look in looks]
    most = max(sizes)
    if not looks[0].size and not sum(look.size for look in looks):
        return put(jnp.zeros(_with_size(arrays[0].shape, axis, sum(sizes)), looks[0].dtype), device)
    padded = [_padded(array, axis, most) for array in arrays]
    homes = [put(array, home) for array, home in zip(padded, mesh.devices, strict=True)]
    joined = mesh.component(_gather_program(mesh, axis)(mesh.assemble(homes)), 0)
    if min(sizes) == most:
        return put(joined, device)
    rows = np.concatenate([np.arange(n) + index * most for index, n in enumerate(sizes)])
    return put(jnp.take(joined, rows, axis=axis), device)


def _looks_everywhere(mesh: ReplicaMesh, arrays: Sequence[jax.Array]) -> list[jax.ShapeDtypeStruct]:
    messages = []
    for array in arrays:
        if array.ndim > _MOST_DIMENSIONS:
            raise ValueError(
                f"gather over workers takes arrays of up to {_MOST_DIMENSIONS} dimensions; got "
                f"{array.ndim}."
            )
        rest = [0] * (_MOST_DIMENSIONS - array.ndim)
        messages.append([_DTYPES.index(array.dtype.name), array.ndim, *array.shape, *rest])
    table = _rows_everywhere(mesh, messages)
    return [
        jax.ShapeDtypeStruct(tuple(int(n) for n in row[2 : 2 + row[1]]), _DTYPES[row[0]])
        for row in table
    ]


def numbers_everywhere(mesh: ReplicaMesh, numbers: Sequence[int]) -> list[int]:
    """Returns a number of each replica here, as those of all replicas."""
    return [int(row[0]) for row in _rows_everywhere(mesh, [[number] for number in numbers])]


def _rows_everywhere(mesh: ReplicaMesh, rows: Sequence[Sequence[int]]) -> np.ndarray:
    parts = [
        put(np.array([row], np.int32), home) for row, home in zip(rows, mesh.devices, strict=True)
    ]
    return np.asarray(mesh.component(_gather_program(mesh, 0)(mesh.assemble(parts)), 0))


# By name, in an order that every worker has: its number in this list is what travels.
_DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("int4", "uint4", "int2", "uint2"),
]


def _padded(array: jax.Array, axis: int, size: int) -> jax.Array:
    missing = size - array.shape[axis]
    if not missing:
        return array
    filler = jnp.zeros(_with_size(array.shape, axis, missing), array.dtype)
    return jnp.concatenate([array, filler], axis=axis)


def _with_size(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])
