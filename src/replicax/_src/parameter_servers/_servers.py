"""The servers, as workers and the coordinator call them: one call for each server, all at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, final

from replicax._src._errors import UnavailableError
from replicax._src.cluster import imported_ray
from replicax._src.parameter_servers._messages import LostError

_ANSWERED_WITHIN = 60.0  # seconds


def answer_timeout() -> float:
    """Returns how many seconds an answer of a server may take."""
    return float(os.environ.get("REPLICAX_SERVER_TIMEOUT", _ANSWERED_WITHIN))


def connected_ray() -> ModuleType:
    """Returns the module `ray`; raises `RuntimeError` if it was shut down.

    A call would start another cluster, silently, which other hosts could reach.
    """
    ray = imported_ray()
    if not ray.is_initialized():
        raise RuntimeError(
            "Ray was shut down, and with it the workers and parameter servers of this strategy. "
            "Make another strategy, and restore a checkpoint."
        )
    return ray


def lost_errors(ray: ModuleType) -> tuple[type[Exception], ...]:
    """Returns what Ray raises when a process is gone, or its node with what it has answered."""
    errors = ray.exceptions
    return (
        errors.RayActorError,
        errors.OutOfMemoryError,  # Ray has ended it, because its node had no memory left
        errors.NodeDiedError,
        errors.ObjectLostError,
        errors.WorkerCrashedError,
    )


class ActorHandle(Protocol):
    """A handle of an actor of Ray, whose methods are called with `.remote(...)`."""

    def __getattr__(self, name: str) -> Any: ...


@final
class ServerGoneError(Exception):
    """A server did not answer: its process has ended.

    Attributes:
      server: its number.
      life: how often it had been started again.
      reason: what Ray says.
    """

    def __init__(self, server: int, life: int, reason: str) -> None:
        super().__init__(server, life, reason)
        self.server = server
        self.life = life
        self.reason = reason


def server_name(strategy_id: str, index: int, life: int) -> str:
    """Returns the name of a server in Ray; after each loss it is another one."""
    return f"rx-{strategy_id}-ps-{index}-{life}"


@final
class Servers:
    """The actors of all servers."""

    def __init__(self, actors: Sequence[ActorHandle], lives: Sequence[int], timeout: float):
        """
        Args:
          actors: the servers.
          lives: how often each of them was started again.
          timeout: seconds that an answer may take.
        """
        self._actors = list(actors)
        self._timeout = timeout
        self.lives = list(lives)

    def find(self, strategy_id: str, lives: Sequence[int]) -> None:
        """Finds the servers of a strategy, in another process than that which started them."""
        if self.lives != lives:
            get = imported_ray().get_actor
            names = [server_name(strategy_id, index, life) for index, life in enumerate(lives)]
            self._actors = [get(name) for name in names]
            self.lives = list(lives)

    def replace(self, server: int, actor: ActorHandle) -> None:
        """Called when a server was started again."""
        self._actors[server] = actor
        self.lives[server] += 1

    def __len__(self) -> int:
        return len(self._actors)

    def ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Calls a method of some servers. Returns their answers.

        Args:
          method: which.
          arguments: what each of the servers is given.

        Raises:
          ServerGoneError: one of them has ended.
          LostError: one of them was started again, and does not have what it is asked for.
          UnavailableError: one of them does not answer in time.
        """
        ray = connected_ray()
        lives = list(self.lives)
        refs = {
            server: getattr(self._actors[server], method).remote(*given)
            for server, given in arguments.items()
        }
        try:
            answers = ray.get(list(refs.values()), timeout=self._timeout)
        except Exception as error:
            raise self._failure(ray, method, refs, lives, error) from None
        return dict(zip(refs, answers, strict=True))

    def _failure(
        self,
        ray: ModuleType,
        method: str,
        refs: Mapping[int, Any],
        lives: Sequence[int],
        error: Exception,
    ) -> Exception:
        """Returns why servers did not answer: that of one that has ended, before all others."""
        silent: list[int] = []
        gone: ServerGoneError | None = None
        # All are looked at: of an error that nobody has seen Ray tells the user itself.
        for server, ref in refs.items():
            try:
                ray.get(ref, timeout=0)
            except lost_errors(ray) as lost:
                reason = str(lost).partition("\n")[0]
                gone = gone or ServerGoneError(server, lives[server], reason)
            except ray.exceptions.GetTimeoutError:
                silent.append(server)
            except LostError as lost:
                cause: Any = getattr(lost, "cause", lost)
                error = LostError(cause.server, cause.keys)
        if gone is not None:
            return gone
        if not isinstance(error, ray.exceptions.GetTimeoutError):
            return error
        names = ", ".join(map(str, silent))
        return UnavailableError(
            f"Parameter server {names} did not answer {method!r} within {self._timeout:g} s: its "
            "process stands still, or has too much to do. Set REPLICAX_SERVER_TIMEOUT (seconds) to "
            "wait longer; a server that is ended is started again, without values."
        )

    def ask_all(self, method: str, *arguments: object) -> list[Any]:
        """Calls a method of all servers with the same arguments; returns the answers in order."""
        found = self.ask(method, {server: arguments for server in range(len(self))})
        return [found[server] for server in range(len(self))]

    def tell(self, method: str, servers: Sequence[int], *arguments: object) -> None:
        """Calls a method of some servers, and does not wait for it."""
        connected_ray()
        for server in servers:
            getattr(self._actors[server], method).remote(*arguments)
