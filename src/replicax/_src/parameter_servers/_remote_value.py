"""What a coordinator hands out: results that are not there yet, and values of each worker's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src._errors import CancelledError
from replicax._src._typing import override
from replicax._src.parameter_servers._packing import Referred, unpacked, value_there
from replicax._src.parameter_servers._servers import connected_ray


@final
class RemoteValue(Referred):
    """The result of a function that was scheduled, on the worker until somebody asks for it.

    What `coordinator.schedule` returns. It cannot be used in other functions: fetch it first.
    """

    def __init__(self, what: str):
        self._what = what
        self._is_there = threading.Event()
        self._held: tuple[Any, bytes | int] | None = None
        self._error: BaseException | None = None

    @property
    def is_there(self) -> bool:
        """Whether the function has ended, or will not run."""
        return self._is_there.is_set()

    def set(self, result: bytes | int, large: object) -> None:
        """Called when the function has returned.

        Args:
          result: as bytes, or its place among large ones.
          large: reference to the list of these.
        """
        self._held = (None if isinstance(result, bytes) else large, result)
        self._is_there.set()

    def fail(self, error: BaseException) -> None:
        """Called when the function has failed, or will not run."""
        if not self._is_there.is_set():
            self._error = error
            self._is_there.set()

    def get(self) -> Any:
        """Waits for the function. Returns its result, with arrays of JAX.

        Raises:
          rx.errors.CancelledError: the function did not run, because another one failed.
        """
        return _tree.map_structure(
            lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, self.fetch()
        )

    def fetch(self) -> Any:
        """Waits for the function. Returns its result, with arrays of NumPy."""
        self._is_there.wait()
        if self._error is not None:
            raise self._error
        assert self._held is not None
        ref, result = self._held
        found = unpacked(result) if isinstance(result, bytes) else connected_ray().get(ref)[result]
        return _tree.map_structure(_plain, found)

    @override
    def reference(self) -> Any:
        """Raises a TypeError: a result does not go to workers."""
        raise TypeError(
            f"it is given the RemoteValue of {self._what}, which only the coordinator can "
            "use. Pass the result itself, remote_value.fetch(), or call one function in the other"
        )

    def __repr__(self) -> str:
        state = "is there" if self._is_there.is_set() else "pending"
        return f"<RemoteValue of {self._what}: {state}>"


def cancelled(what: str) -> CancelledError:
    """Returns the error of a function that did not run."""
    return CancelledError(
        f"{what} did not run: another function failed, and coordinator.schedule or join has "
        "raised its error. Schedule it again."
    )


def _plain(leaf: object) -> Any:
    """Returns an array without dimensions as a number of NumPy's, as in TensorFlow."""
    return leaf[()] if isinstance(leaf, np.ndarray) and leaf.ndim == 0 else leaf


@final
class PerWorkerValues(Referred):
    """A value of each worker's own: what `coordinator.create_per_worker_values` returns.

    Pass it to a function that is scheduled, which gets the value of the worker that it runs on.
    """

    def __init__(self, strategy_id: str, number: int, iterator: Callable[[], Any] | None = None):
        self._strategy_id = strategy_id
        self._number = number
        self._iterator = iterator

    @override
    def reference(self) -> Any:
        """Returns what makes that worker's value of it, on a worker."""
        return value_there, (self._strategy_id, self._number)

    def __iter__(self) -> Iterator[Any]:
        if self._iterator is None:
            raise TypeError(
                "These values of workers are no data sets, and cannot be iterated over. Make them "
                "with coordinator.create_per_worker_dataset."
            )
        return self._iterator()

    def __repr__(self) -> str:
        return f"<PerWorkerValues {self._number}>"


@final
class PerWorkerIterator(Referred):
    """What `iter(per_worker_dataset)` gives: pass it to functions, which call `next` on it."""

    def __init__(self, values: PerWorkerValues):
        self._values = values

    @override
    def reference(self) -> Any:
        """Returns what makes that worker's iterator of it, on a worker."""
        return self._values.reference()

    def __iter__(self) -> PerWorkerIterator:
        return self

    def __next__(self) -> Any:
        raise NotImplementedError(
            "The data are on the workers. Call next(iterator) in a function that is scheduled: "
            "coordinator.schedule(step, args=(iterator,))."
        )
