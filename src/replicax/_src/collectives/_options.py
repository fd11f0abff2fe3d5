"""Options of collective operations: how much to fuse, and how long to wait."""

# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from replicax._src import _old_names


class CommunicationImplementation(enum.Enum):
    """Which collective to prefer. XLA chooses by hardware; the names are kept for ported code."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


@dataclasses.dataclass(frozen=True)
class CommunicationOptions:
    """Hints for collectives such as `all_reduce` and `batch_reduce_to`.

    Attributes:
      bytes_per_pack: small tensors are reduced together in packs of up to this many bytes; 0 means
        a good default (4 MiB). A compiled function may send several packs as one, of up to 4 MiB.
      timeout_seconds: how long to wait for other processes; None means the runtime's own limit.
        Replicas of one process are never waited for, so it has no effect there.
      implementation: `CommunicationImplementation`, or its name.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation = CommunicationImplementation.AUTO

    def __post_init__(self) -> None:
        if not isinstance(self.bytes_per_pack, int) or isinstance(self.bytes_per_pack, bool):
            raise TypeError(
                f"`bytes_per_pack` must be a whole number of bytes; got {self.bytes_per_pack!r}. "
                "Pass 0 for the default."
            )
        if self.bytes_per_pack < 0:
            raise ValueError(
                f"`bytes_per_pack` must be 0 (the default size) or more; got {self.bytes_per_pack}."
            )
        if not isinstance(self.timeout_seconds, int | float | None):
            raise TypeError(
                f"`timeout_seconds` must be a number of seconds, or None; got "
                f"{self.timeout_seconds!r}."
            )
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise ValueError(
                f"`timeout_seconds` must be more than 0, or None for no limit of its own; got "
                f"{self.timeout_seconds!r}."
            )
        chosen: Any = self.implementation
        if isinstance(chosen, str):
            chosen = CommunicationImplementation.__members__.get(chosen.upper())
        if not isinstance(chosen, CommunicationImplementation):
            raise ValueError(
                f"`implementation` must be 'AUTO', 'RING' or 'NCCL' (or the "
                f"CommunicationImplementation of that name); got {self.implementation!r}."
            )
        object.__setattr__(self, "implementation", chosen)


class CollectiveHints(CommunicationOptions):
    """The older spelling of `CommunicationOptions`, with the first two fields only."""

    def __init__(self, bytes_per_pack: int = 0, timeout_seconds: float | None = None):
        _old_names.warn_of("rx.distribute.experimental.CollectiveHints")
        super().__init__(bytes_per_pack=bytes_per_pack, timeout_seconds=timeout_seconds)


def as_options(
    options: CommunicationOptions | None, experimental_hints: CommunicationOptions | None = None
) -> CommunicationOptions:
    options = _old_names.options_or_hints(options, experimental_hints)
    if options is None:
        return CommunicationOptions()
    if isinstance(options, CommunicationOptions):
        return options
    raise TypeError(
        f"`options` must be a rx.distribute.experimental.CommunicationOptions; got {options!r}."
    )
