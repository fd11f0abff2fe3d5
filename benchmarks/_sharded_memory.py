"""How much memory arrays take, device by device."""

import collections
import gc
from typing import Any

import jax


def bytes_on_devices() -> dict[Any, int]:
    """The bytes of all live arrays on each device; a buffer that two arrays share counts once."""
    gc.collect()
    found: dict[Any, int] = collections.defaultdict(int)
    seen: set[tuple[Any, int]] = set()
    for array in jax.block_until_ready(jax.live_arrays()):
        for shard in array.addressable_shards:
            buffer = shard.device, shard.data.unsafe_buffer_pointer()
            if buffer not in seen:
                seen.add(buffer)
                found[shard.device] += shard.data.nbytes
    return found


def most_added(before: dict[Any, int]) -> int:
    """What has come since then, on the device that got most."""
    return max(size - before.get(device, 0) for device, size in bytes_on_devices().items())


def peak_of(program: Any) -> int:
    """Arguments, results and scratch space of a compiled program on one device.

    Donated buffers count once.
    """
    memory = program.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )
