"""The replica mesh over the devices of several workers."""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import final

import jax
import numpy as np
from jax.sharding import NamedSharding

from replicax._src._errors import ReplicaMismatchError
from replicax._src._typing import ArrayInput, PyTree, override
from replicax._src.devices._mesh import REPLICA_AXIS, ReplicaMesh
from replicax._src.devices._names import short_name
from replicax._src.devices._packing import BETWEEN_WORKERS
from replicax._src.devices._placement import put
from replicax._src.devices._replicas import Beginning, Coworkers, ReplicaDevices


@final
class MeshOverWorkers(ReplicaMesh):
    """Other workers have replicas, too; all of them run the same programs, in the same order."""

    packing = BETWEEN_WORKERS

    def __init__(self, devices: ReplicaDevices, coworkers: Coworkers):
        super().__init__(devices)
        self._coworkers = coworkers
        self._one_thread = _OneThread()

    @property
    @override
    def spans_workers(self) -> bool:
        return True

    @override
    def one_thread(self) -> AbstractContextManager[object]:
        return self._one_thread

    @override
    def require_same(self, topic: str, what: str, content: str = "") -> bool:
        return self._coworkers.require_same(topic, what, content)

    @override
    def agreed_name(self, topic: str, describe: Callable[[], tuple[str, str] | None]) -> str:
        described = describe()
        if described is None:
            return ""
        name, text = described
        self.require_same(topic, text)
        return f"{name} ({zlib.crc32(text.encode()):08x})"

    @override
    def begin_together(self, beginning: Beginning, what: str) -> None:
        self._coworkers.begin_together(self, beginning, what)

    @override
    def await_beginning(self, beginning: Beginning) -> None:
        self._coworkers.await_beginning(beginning)

    @override
    def wait_for(self, inputs: PyTree) -> None:
        self._coworkers.settle_beginnings()
        super().wait_for(inputs)

    @override
    def collected(self, array: jax.Array) -> jax.Array:
        return self.component(self.gathered(array), 0)

    @override
    def for_host(self, array: jax.Array) -> np.ndarray:
        return np.asarray(self.collected(array))  # at once: there may not be room for many

    @override
    def rows_here(self, rows: jax.Array) -> jax.Array:
        count = len(self.devices)
        start = jax.lax.axis_index(REPLICA_AXIS) // count * count
        return jax.lax.dynamic_slice_in_dim(rows, start, count)

    @override
    def describe_replica(self, replica: int) -> str:
        worker, index = divmod(replica, len(self.devices))
        # All workers have the same devices; JAX knows another's by numbers of its own.
        where = short_name(self.devices[index])
        return f"replica {replica} ({self._coworkers.name_of(worker)}, {where})"

    @override
    def _announce(self, what: str) -> None:
        if what:  # else it has no collectives, and other workers need not call it
            self._coworkers.before_call(what)

    @override
    def _told(self, what: Callable[[], str]) -> str:
        return what()

    @override
    def _spread(self, value: ArrayInput, sharding: NamedSharding) -> jax.Array:
        if sharding == self.replicated:
            return self.assemble([put(value, device) for device in self.devices])
        host = np.asarray(value)
        return jax.make_array_from_callback(host.shape, sharding, host.__getitem__)


class _OneThread:
    """Lets one thread in at a time, and tells the others so.

    Programs meet those of other workers in the order of their launching. Of two threads that
    launch them at once the order is not known.
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
