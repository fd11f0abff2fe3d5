"""The replica mesh: the one owner of the mesh, its axis name, and the layouts on it.

Arrays that belong to replicas are laid out as *replicated* over this mesh: every device holds a
buffer of the component's own shape. For mirrored state the buffers are equal. For per-replica
values they differ, which JAX does not check and `shard_map` over the axis reads as it should: each
device sees its own buffer. That makes one array of n components, and n components of one array,
without a copy or a reshape. Arrays of the second sort never leave replicax.

With several workers the mesh spans the devices of all of them, and a process has the buffers of its
own devices only: `devices` are those, and `size` counts all.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from replicax._errors import ReplicaMismatchError
from replicax._jax_internals import put_on_each
from replicax._typing import Device
from replicax.devices._placement import put
from replicax.devices._workers import WorkerDevices, first_replica_on, replicas_on

REPLICA_AXIS = "replica"
_collective = threading.RLock()  # a signal handler may come in between
_BETWEEN_MARKS = 4  # on 8 devices XLA gives up with some 30 programs on their way


class _OneThread:
    """Lets one thread in at a time, and tells the others so.

    Programs meet those of other workers in the order of their launching. Of two threads that
    launch them at once nobody knows the order.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ReplicaMismatchError(
                "Two threads run replicas at the same time. With several workers the programs of "
                "one meet those of the others in the order in which they are launched, and two "
                "threads may launch them in another order on another worker: run replicas in one "
                "thread, or one after the other."
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_ALL_MAY = contextlib.nullcontext()


class ReplicaMesh:
    """The devices of the replicas, one each, as a one-dimensional mesh.

    Attributes:
      devices: of this process's replicas.
      size: how many replicas there are in all processes.
      first: the number of the first replica here.
      mesh: JAX's mesh over all of them.
      replicated: a buffer on each device.
    """

    def __init__(self, devices: tuple[Device, ...]):
        self.devices = devices
        self.size = replicas_on(devices)
        self.first = first_replica_on(devices)
        self._meeting = devices.meeting if isinstance(devices, WorkerDevices) else None
        self._one_thread = None if self._meeting is None else _OneThread()
        everywhere = devices.everywhere if isinstance(devices, WorkerDevices) else devices
        self.mesh = _mesh_over(everywhere)
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self._rows = NamedSharding(_mesh_over(devices), PartitionSpec(REPLICA_AXIS))
        self._on_cpu = self.devices[0].platform == "cpu"
        self._mark: jax.Array | None = None  # a result of a program that was called lately
        self._since_mark = -1

    @property
    def spans_workers(self) -> bool:
        return self._meeting is not None

    def alone(self) -> contextlib.AbstractContextManager[Any]:
        """Refuses a second thread inside the block, if there are other workers."""
        return _ALL_MAY if self._one_thread is None else self._one_thread

    def require_same(self, topic: str, what: str) -> None:
        """Raises if other workers, at this point of their programs, say another `what`."""
        if self._meeting is not None:
            self._meeting.require_same(topic, what)

    def spread(self, value: Any) -> jax.Array:
        """One array, the same on every device; other workers have to give the same."""
        if self._meeting is None:
            return jax.device_put(value, self.replicated)
        return self.assemble([put(value, device) for device in self.devices])

    def assemble(self, components: Sequence[jax.Array]) -> jax.Array:
        """One array from a component on each device; all of one shape and dtype."""
        return jax.make_array_from_single_device_arrays(
            components[0].shape, self.replicated, list(components)
        )

    def assemble_from_host(self, components: Sequence[np.ndarray]) -> jax.Array:
        """One array from a NumPy array for each device; all of one dtype and shape, not scalars.

        On the CPU the memory is taken over, not copied: nobody may write to it afterwards.
        """
        return put_on_each(components, self._rows, self.replicated, self.devices)

    def spmd(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` compiled as one program in which each device sees its own buffers."""
        program = jax.jit(self.mapped(fn))

        def call(*args: Any) -> Any:
            self.wait_for(args)
            results: list[Any] = []
            what = "" if self._meeting is None else f"{fn.__name__} of {_looks(args)}"
            self.call(program, results, *args, what=what)
            return results[0]

        call.__wrapped__ = program  # type: ignore[attr-defined]
        return call

    def mapped(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` as a part of a program: each device sees its own buffers.

        Not checked for replication (`check_vma=False`): with the check on, JAX would insert
        reductions by itself where it believes a value to be replicated.
        """
        spec = PartitionSpec()
        return jax.shard_map(fn, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)

    def wait_for(self, inputs: Any) -> None:
        """To be called before `call`, without any lock.

        On the CPU, programs with collectives share one pool of threads, with each other and with
        what computes their inputs, and would wait for those with no thread left to make them. So
        nothing may be unfinished there that they take, and only so many of them at a time: twice
        `_BETWEEN_MARKS`.
        """
        if not self._on_cpu:
            return
        if inputs:
            jax.block_until_ready(inputs)
        self._since_mark = (self._since_mark + 1) % _BETWEEN_MARKS
        mark = self._mark
        if self._since_mark == 0 and mark is not None:
            self._mark = None
            with contextlib.suppress(Exception):  # those who look at its results are told
                mark.block_until_ready()

    def call(
        self,
        program: Callable[..., Any],
        results: list[Any],
        *args: Any,
        what: str = "",
    ) -> None:
        """Appends `program(*args)` to `results`, for a program with collectives.

        `what`: says what it is, the same on all workers; empty for a program without collectives,
        which a worker may call alone.

        Such programs must reach every device in one order, whichever threads call them. The last
        of what `program` returns tells that it has ended; nobody may donate it.

        The results are appended in the same breath: an interrupt cannot come in between.
        """
        with _collective:
            if self._meeting is not None and what:  # in the lock: told in the order of launching
                self._meeting.before_call(what)
            if jax.sharding.get_abstract_mesh().empty:
                append_result(results, program, args)
            else:
                with jax.set_mesh(self.mesh):  # the user's own mesh is not ours
                    append_result(results, program, args)
            if self._on_cpu and self._mark is None:
                self._mark = _last_array(results[-1])


def append_result(results: list[Any], program: Callable[..., Any], args: Sequence[Any]) -> None:
    """`results.append(program(*args))`, with no Python in between that Ctrl-C could interrupt."""
    results.extend(itertools.starmap(program, (args,)))


def _looks(arrays: Any) -> str:
    """What arrays look like, in a line of some hundred letters at most."""
    text = ", ".join(f"{each.dtype}{list(each.shape)}" for each in jax.tree.leaves(arrays))
    return text if len(text) < 200 else f"{text[:150]}... ({zlib.crc32(text.encode()):08x})"


def _mesh_over(devices: Sequence[Device]) -> Mesh:
    return Mesh(np.array(list(devices), dtype=object), (REPLICA_AXIS,))


def _last_array(results: Any) -> Any:
    while isinstance(results, list | tuple):
        results = results[-1] if results else None
    return results


@functools.lru_cache(maxsize=256)
def replica_mesh(devices: tuple[Device, ...]) -> ReplicaMesh:
    """The mesh over these devices; the same object each time, so that programs can be cached."""
    return ReplicaMesh(devices)
