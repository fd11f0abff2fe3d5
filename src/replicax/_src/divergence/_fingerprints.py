"""Fingerprints of the copies of variables, made on the devices, and where two copies differ.

Bits count, not numbers: -0.0 is not 0.0, and a NaN equals itself. A fingerprint is two sums of 32
bits, over all words of a copy, each mixed with its position. Mixing is one-to-one, so that a single
word that differs is always found; of other differences, one in 2**64 is missed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src.devices import REPLICA_AXIS, ReplicaMesh

# Odd numbers with about as many ones as zeros: a step per position, and two rounds of mixing.
_MIXERS = ((0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35), (0xB5297A4D, 0x7FEB352D, 0x846CA68B))
_SMALL = 1 << 16  # words


@dataclasses.dataclass(frozen=True)
class Difference:
    """How the copy of one replica differs from the copy that it is compared with."""

    replica: int
    elements: int  # how many differ
    index: tuple[int, ...]  # of the first of them
    value: str
    expected: str


def fingerprints(mesh: ReplicaMesh, arrays: Sequence[jax.Array]) -> np.ndarray:
    """Returns two numbers for each replica of all workers and each array: `[replica, array, 2]`."""
    gathered = _fingerprint_program(mesh)(list(arrays))
    return np.asarray(mesh.component(gathered, 0))


def differences(mesh: ReplicaMesh, array: jax.Array, reference: int) -> list[Difference]:
    """Returns where the copies of an array differ from that of the replica `reference`."""
    rows = np.asarray(mesh.component(_difference_program(mesh, reference)(array), 0))
    found = []
    for replica, row in enumerate(rows):
        count, first, words = int(row[0]), int(row[1]), row[2:]
        if count:
            mine, expected = _texts(words[: len(words) // 2], words[len(words) // 2 :], array.dtype)
            index = tuple(int(i) for i in np.unravel_index(first, array.shape))
            found.append(Difference(replica, count, index, mine, expected))
    return found


@functools.lru_cache(maxsize=16)
def _fingerprint_program(mesh: ReplicaMesh) -> Any:
    def check_replicas(arrays: list[jax.Array]) -> jax.Array:
        rows = [_words(array) for array in arrays]
        marks: list[Any] = [None] * len(rows)
        for group in _of_one_size([row.size for row in rows]):
            together = jnp.concatenate([rows[index] for index in group])
            found = _fingerprint(together.reshape(len(group), rows[group[0]].size))
            for index, mark in zip(group, found, strict=True):
                marks[index] = mark
        return jax.lax.all_gather(jnp.stack(marks), REPLICA_AXIS)

    return mesh.spmd(check_replicas)


def _of_one_size(sizes: list[int]) -> list[list[int]]:
    """Positions of small rows in groups of one size: for a loop each, XLA would compile minutes."""
    groups: dict[Any, list[int]] = {}
    for index, size in enumerate(sizes):
        groups.setdefault(size if size <= _SMALL else (size, index), []).append(index)
    return list(groups.values())


@functools.lru_cache(maxsize=16)
def _difference_program(mesh: ReplicaMesh, reference: int) -> Any:
    def compare_replicas(array: jax.Array) -> jax.Array:
        words = _words(array)
        is_reference = jax.lax.axis_index(REPLICA_AXIS) == reference
        expected = jax.lax.psum(jnp.where(is_reference, words, 0), REPLICA_AXIS)
        per_element = words.size // array.size
        differs = jnp.any((words != expected).reshape(-1, per_element), axis=1)
        first = jnp.argmax(differs)
        row = [jnp.sum(differs, dtype=jnp.uint32)[None], first.astype(jnp.uint32)[None]]
        for each in (words, expected):
            row.append(jax.lax.dynamic_slice_in_dim(each, first * per_element, per_element))
        return jax.lax.all_gather(jnp.concatenate(row), REPLICA_AXIS)

    return mesh.spmd(compare_replicas)


def sum_of_bits(array: jax.Array) -> jax.Array:
    """Returns the sum of an array's words: another one if a single bit of it is another one."""
    return jnp.sum(_words(array), dtype=jnp.uint32)


def _fingerprint(rows: jax.Array) -> jax.Array:
    """Returns two numbers for each row of words."""
    positions = jax.lax.broadcasted_iota(jnp.uint32, rows.shape, 1)
    mixed = [
        _mixed(rows ^ (positions * np.uint32(step)), np.uint32(a), np.uint32(b))
        for step, a, b in _MIXERS
    ]
    # Both sums in one pass: `jnp.sum` of each takes XLA 80 times as long on the CPU.
    sums = jax.lax.reduce(mixed, [np.uint32(0)] * 2, lambda x, y: [x[0] + y[0], x[1] + y[1]], (1,))
    return jnp.stack(sums, axis=1)


def _mixed(words: jax.Array, first: np.uint32, second: np.uint32) -> jax.Array:
    """Returns every bit of a word spread over all of them; one-to-one."""
    words = (words ^ (words >> 16)) * first
    words = (words ^ (words >> 13)) * second
    return words ^ (words >> 16)


def _words(array: jax.Array) -> jax.Array:
    """Returns the bits of an array, as a row of 32-bit words; as many for each element."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    if jnp.iscomplexobj(array):
        array = jnp.stack([array.real, array.imag], axis=-1)
    if array.dtype != jnp.bool_:
        array = jax.lax.bitcast_convert_type(array, f"uint{min(_bits(array.dtype), 32)}")
    return array.astype(jnp.uint32).reshape(-1)


def _bits(dtype: np.dtype) -> int:
    info = jnp.finfo if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo
    return info(dtype).bits


def _texts(words: np.ndarray, expected: np.ndarray, dtype: np.dtype) -> tuple[str, str]:
    """Returns two elements; with their bits where these alone tell them apart."""
    texts = _text(words, dtype), _text(expected, dtype)
    if texts[0] != texts[1]:
        return texts
    return f"{texts[0]} ({_hex(words)})", f"{texts[1]} ({_hex(expected)})"


def _text(words: np.ndarray, dtype: np.dtype) -> str:
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return _hex(words)
    if jnp.issubdtype(dtype, jnp.integer) and _bits(dtype) < 8:
        bits, word = _bits(dtype), int(words[0])
        is_negative = jnp.issubdtype(dtype, jnp.signedinteger) and word >> (bits - 1)
        return str(word - (1 << bits) if is_negative else word)
    raw = words.astype(f"uint{8 * min(np.dtype(dtype).itemsize, 4)}")
    return str(raw.view(dtype)[0])


def _hex(words: np.ndarray) -> str:
    return "0x" + "".join(f"{int(word):08x}" for word in words[::-1])
