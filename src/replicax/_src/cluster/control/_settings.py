"""The environment variables of the control plane, read and checked in one place."""

from __future__ import annotations

import dataclasses
import os
from typing import final

from replicax._src._errors import ClusterConfigError
from replicax._src.cluster._addresses import split_address

DEFAULT_JOIN_TIMEOUT = 60.0
# As patient as NCCL: the first worker may be evaluating while the others wait in the next step.
DEFAULT_STALL_TIMEOUT = 600.0
# Long: another worker may be evaluating or saving. Deaths are noticed at once, without it.
DEFAULT_EXCHANGE_TIMEOUT = 1800.0


@final
@dataclasses.dataclass(frozen=True)
class Settings:
    """What the environment says.

    Attributes:
      control: `REPLICAX_CONTROL`, the address of the launcher's server; None without a launcher.
      job: `REPLICAX_JOB`, the key that all workers of the job have; "" without one.
      generation: `REPLICAX_GENERATION`, which attempt this is.
      join_timeout: `REPLICAX_JOIN_TIMEOUT`, seconds to wait for the other workers.
      stall_timeout: `REPLICAX_STALL_TIMEOUT`, seconds without progress after which a job is stuck;
        None (0 in the environment): no watchdog.
      exchange_timeout: `REPLICAX_EXCHANGE_TIMEOUT`, the longest wait in an exchange.
      coordinator_port: `REPLICAX_COORDINATOR_PORT`, the port for JAX's coordinator on worker 0; 0
        takes a free one.
    """

    control: str | None = None
    job: str = ""
    generation: int = 0
    join_timeout: float = DEFAULT_JOIN_TIMEOUT
    stall_timeout: float | None = DEFAULT_STALL_TIMEOUT
    exchange_timeout: float = DEFAULT_EXCHANGE_TIMEOUT
    coordinator_port: int = 0

    @classmethod
    def from_environment(cls, join_timeout: float | None = None) -> Settings:
        """Reads them; `join_timeout` goes before the variable."""
        if join_timeout is None:
            join_timeout = _seconds("REPLICAX_JOIN_TIMEOUT", DEFAULT_JOIN_TIMEOUT)
        elif not join_timeout > 0:
            raise ClusterConfigError(
                f"`join_timeout` is {join_timeout!r}; give a number of seconds above 0."
            )
        is_off = os.environ.get("REPLICAX_STALL_TIMEOUT") == "0"
        stall = None if is_off else _seconds("REPLICAX_STALL_TIMEOUT", DEFAULT_STALL_TIMEOUT)
        return cls(
            control=_address("REPLICAX_CONTROL"),
            job=os.environ.get("REPLICAX_JOB", ""),
            generation=_whole("REPLICAX_GENERATION", 0, 2**31),
            join_timeout=float(join_timeout),
            stall_timeout=stall,
            exchange_timeout=_seconds("REPLICAX_EXCHANGE_TIMEOUT", DEFAULT_EXCHANGE_TIMEOUT),
            coordinator_port=_whole("REPLICAX_COORDINATOR_PORT", 0, 65535),
        )


def listening_host(host: str) -> str:
    """Returns where to listen for those who call `host`: there, or at `REPLICAX_LISTEN_HOST`.

    On loopback nobody else calls, and the variable has no effect.
    """
    asked = os.environ.get("REPLICAX_LISTEN_HOST")
    is_loopback = host in ("localhost", "::1") or host.startswith("127.")
    return asked if asked and not is_loopback else host


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ClusterConfigError(f"{name}={text!r} is not a number of seconds above 0.")
    return value


def _whole(name: str, default: int, most: int) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18 or int(text) > most:
        raise ClusterConfigError(f"{name}={text!r} is not a whole number from 0 to {most}.")
    return int(text)


def _address(name: str) -> str | None:
    text = os.environ.get(name)
    if not text:
        return None
    try:
        split_address(text)
    except ClusterConfigError:
        raise ClusterConfigError(
            f"{name}={text!r} is not an address of the form host:port. It is set by "
            "`replicax launch`; unset it if there is no launcher."
        ) from None
    return text
