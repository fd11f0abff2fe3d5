"""Where things are: what the compiler made of a function, and what lies on which device."""

import collections
import re
from typing import Any
from unittest import mock

import jax

from replicax._src.devices import replica_mesh


def compiled_by(fn: Any, *args: Any) -> jax.stages.Compiled:
    """The compiled program of an `rx.function` for these arguments; it does not run."""
    found: list[jax.stages.Compiled] = []
    compile = jax.stages.Lowered.compile

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(compile(self, *args, **kwargs))
        return found[-1]

    with mock.patch.object(jax.stages.Lowered, "compile", noting):
        fn.explain(*args)
    return found[-1]


def report_of(fn: Any, *args: Any) -> Any:
    """What `fn.explain` says, in numbers."""
    return fn.explain(*args).report


def operations_in(compiled: jax.stages.Compiled) -> collections.Counter[str]:
    """How often each operation stands in a compiled program; of asynchronous ones, the start."""
    text = compiled.as_text() or ""
    names = re.findall(r"= \S+ ([a-z][a-z-]*)\(", text) + re.findall(r"\) ([a-z][a-z-]*)\(", text)
    return collections.Counter(name.removesuffix("-start") for name in names)


def temporary_bytes(compiled: jax.stages.Compiled) -> int:
    """What a program needs on each device, beside its arguments and results."""
    memory = compiled.memory_analysis()
    assert memory is not None
    return memory.temp_size_in_bytes


def bytes_by_device(*variables: Any) -> dict[Any, int]:
    """What the variables take on each device."""
    found: collections.Counter[Any] = collections.Counter()
    for variable in variables:
        for shard in variable._stored.assembled.addressable_shards:
            found[shard.device] += shard.data.nbytes
    return dict(found)


def bytes_on_each(*variables: Any) -> int:
    """The same, where it is the same on all of them."""
    found = set(bytes_by_device(*variables).values())
    assert len(found) == 1
    return found.pop()


def logical_devices(strategy: Any, replica: int) -> list[Any]:
    """The devices of a replica, in their order."""
    mesh = replica_mesh(strategy.extended._replica_devices)
    return [mesh.logical_device(replica, number) for number in range(mesh.logical_devices)]


def shards_of(array: jax.Array) -> dict[Any, tuple[slice, ...]]:
    """The part of an array on each of its devices."""
    return {shard.device: shard.index for shard in array.addressable_shards}
