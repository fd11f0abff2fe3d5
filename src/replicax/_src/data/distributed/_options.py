"""How a data set is handed to replicas: `InputOptions`, `InputContext`, `InputReplicationMode`."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

from replicax._src._typing import Device


class Exchange(Protocol):
    """Messages of the workers to each other, one after the other."""

    def __call__(self, message: object, /) -> Sequence[Any] | None:
        """Returns those of all workers, in their order; None if one of them has closed it."""
        ...

    def close(self) -> None:
        """Says that this worker sends no more, so that the others do not wait for it."""
        ...


class NoOthers:
    """The exchange of a worker that is alone."""

    def __call__(self, message: object, /) -> Sequence[Any] | None:
        return [message]

    def close(self) -> None:
        pass


class InputReplicationMode(enum.Enum):
    """For which of them a function that makes a data set is called."""

    PER_WORKER = "PER_WORKER"
    """Once for each worker; its replicas take successive batches."""
    PER_REPLICA = "PER_REPLICA"
    """Once for each replica."""


@dataclasses.dataclass(frozen=True)
class InputOptions:
    """How a distributed data set is read.

    Attributes:
      experimental_fetch_to_device: whether batches are put on the replicas' devices, as they are by
        default; otherwise they stay on the host, as NumPy arrays.
      experimental_replication_mode: for data set functions, who has a data set of its own.
      experimental_place_dataset_on_device: with PER_REPLICA and without fetching, whether each
        replica's batches are made on its device.
      experimental_per_replica_buffer_size: how many batches wait on the devices, besides the one
        that is being made ready. With 0 nothing is read ahead, and no thread is started. Of batches
        that are copied from arrays in memory within microseconds, up to 8 are made at once.
    """

    experimental_fetch_to_device: bool | None = None
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1

    def __post_init__(self) -> None:
        if self.experimental_fetch_to_device is None:  # as in TensorFlow
            object.__setattr__(self, "experimental_fetch_to_device", True)
        if not isinstance(self.experimental_replication_mode, InputReplicationMode):
            raise TypeError(
                "`experimental_replication_mode` is rx.distribute.InputReplicationMode.PER_WORKER "
                f"or PER_REPLICA; got {self.experimental_replication_mode!r}."
            )
        size = self.experimental_per_replica_buffer_size
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ValueError(
                "`experimental_per_replica_buffer_size` is a number of batches, 0 or more; got "
                f"{size!r}."
            )


@dataclasses.dataclass(frozen=True)
class InputContext:
    """What a data set function is told: who reads, and how many there are.

    >>> import replicax as rx
    >>> context = rx.distribute.InputContext(
    ...     num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=4)
    >>> context.get_per_replica_batch_size(64)
    16
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns the batch size of one replica; raises a `ValueError` if it is not whole."""
        if global_batch_size % self.num_replicas_in_sync:
            below = global_batch_size - global_batch_size % self.num_replicas_in_sync
            raise ValueError(
                f"The global_batch_size {global_batch_size} is not divisible by the "
                f"{self.num_replicas_in_sync} replicas in sync. Pass a multiple, for example "
                f"{below + self.num_replicas_in_sync}."
            )
        return global_batch_size // self.num_replicas_in_sync

    def __str__(self) -> str:
        return (
            f"rx.distribute.InputContext(input pipeline id {self.input_pipeline_id}, total: "
            f"{self.num_input_pipelines})"
        )


@final
@dataclasses.dataclass(frozen=True)
class InputLayout:
    """Who reads: the workers, and this worker's replicas.

    Attributes:
      devices: of this worker's replicas.
      workers: how many processes read; each has as many replicas.
      worker: which of them this is.
      meet: begins an exchange with the other workers.
    """

    devices: tuple[Device, ...]
    workers: int = 1
    worker: int = 0
    meet: Callable[[], Exchange] = NoOthers

    @property
    def local_replicas(self) -> int:
        return len(self.devices)

    @property
    def replicas(self) -> int:
        return self.workers * len(self.devices)


def as_input_options(options: InputOptions | None) -> InputOptions:
    if options is None:
        return InputOptions()
    if not isinstance(options, InputOptions):
        raise TypeError(f"`options` must be rx.distribute.InputOptions; got {options!r}.")
    return options
