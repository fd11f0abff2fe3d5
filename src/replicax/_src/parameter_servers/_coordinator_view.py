"""How the coordinator sees the variables on the servers: each read and each change is a call."""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import jax
import numpy as np

from replicax._src._errors import UnavailableError
from replicax._src.parameter_servers._messages import (
    Assignment,
    Key,
    LostError,
    Pulled,
    Push,
    RowChange,
)
from replicax._src.parameter_servers._servers import ServerGoneError, Servers
from replicax._src.parameter_servers._variable import ServerVariable, Spec, loaded
from replicax._src.strategies import Strategy
from replicax._src.values import Storage
from replicax._src.variable import Change, Holder, Scatter

_ATTEMPTS = 5  # servers that may be lost while one thing is done


@final
class CoordinatorView:
    """The variables of one strategy, and what its servers have to know."""

    def __init__(self, strategy: Strategy, servers: Servers, restart: Callable[[int], None]):
        """
        Args:
          strategy: the strategy.
          servers: its servers.
          restart: starts one of them again.
        """
        self._strategy = weakref.ref(strategy)
        self.servers = servers
        self._variables: weakref.WeakValueDictionary[Key, ServerVariable] = (
            weakref.WeakValueDictionary()
        )
        self._names: dict[Key, str] = {}
        self._optimizers: dict[str, dict[int, bytes]] = {}
        self._lock = threading.Lock()
        self._dropped: collections.deque[Spec] = collections.deque()
        self._restart = restart
        self.holder: Holder | None = None  # set by the strategy

    @property
    def strategy(self) -> Any:
        return self._strategy()

    def variable(self, spec: Spec) -> ServerVariable:
        """Returns the variable that another process has a reference to."""
        return self._variables[spec.key]

    def ask(
        self, method: str, arguments: Mapping[int, tuple[Any, ...]], wait: bool = False
    ) -> dict[int, Any]:
        """Calls servers; `wait` for those that are being started again."""
        attempts = _ATTEMPTS if wait else 1
        while True:
            attempts -= 1
            try:
                return self.servers.ask(method, arguments)
            except ServerGoneError as error:
                self.server_gone(error.server, error.life)
                if not attempts:
                    raise self.unavailable(error.server, (), error.reason) from None
            except LostError as error:
                raise self.unavailable(error.server, error.keys) from None

    def unavailable(
        self, server: int, keys: Iterable[Key], reason: str = "it was started again"
    ) -> UnavailableError:
        """Returns the error that says what was lost with a server."""
        names = sorted({self._names.get(key, "a variable that is gone") for key in keys})
        lost = ", ".join(map(repr, names[:5])) or "what it held"
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return UnavailableError(
            f"Parameter server {server} was lost ({reason}), and with it {lost}{more}. Restore the "
            "variables from the last checkpoint, checkpoint.restore(manager.latest_checkpoint), "
            "and go on: it is started again, without values."
        )

    def server_gone(self, server: int, life: int) -> bool:
        """Starts a server again that was lost, unless that was done; returns whether it was not."""
        with self._lock:
            if self.servers.lives[server] != life:
                return False
            self._restart(server)
            for name, specs in self._optimizers.items():
                if server in specs:
                    self.servers.tell("build", [server], name, specs[server])
            return True

    def look_after_servers(self) -> UnavailableError | None:
        """Returns an error if a server was lost, and nobody has noticed."""
        try:
            self.servers.ask_all("ready")
        except ServerGoneError as error:
            if self.server_gone(error.server, error.life):
                return self.unavailable(error.server, (), error.reason)
        return None

    # ------------------------------------------------------------------ variables

    def start(self, variable: ServerVariable, value: np.ndarray) -> None:
        self._tell_dropped()
        spec = variable.spec
        self._variables[spec.key] = variable
        self._names[spec.key] = spec.name
        self.ask("create", {server: ({spec.key: value},) for server in spec.servers}, wait=True)

    def load(self, variable: ServerVariable) -> Storage:
        spec = variable.spec
        answer: Pulled = self.ask("pull", {spec.servers[0]: ({spec.key: -1},)})[spec.servers[0]]
        return loaded(answer.values[spec.key][1])

    def stored(self, variable: ServerVariable, storage: Storage) -> Storage:
        self.change(variable, Change.ASSIGN, np.asarray(storage.given))
        storage.leave()  # the program asks for the value again
        return variable.held

    def change(self, variable: ServerVariable, how: Change, value: np.ndarray) -> None:
        spec = variable.spec
        self._push(spec, Assignment(spec.key, how, value))

    def change_in_program(
        self, variable: ServerVariable, how: Change, value: jax.Array, update: Callable[[], None]
    ) -> None:
        update()

    def change_rows(
        self, variable: ServerVariable, how: Scatter, rows: np.ndarray, values: np.ndarray
    ) -> None:
        self._push(variable.spec, RowChange(variable.spec.key, how, rows, values))

    def _push(self, spec: Spec, change: Assignment | RowChange) -> None:
        push = Push(None, None, [change], [])
        # An assignment gives a server that was started again what it has lost.
        wait = isinstance(change, Assignment) and change.how is Change.ASSIGN
        self.ask("push", {server: (push,) for server in spec.servers}, wait=wait)

    def push(self, pushes: Mapping[int, Push]) -> None:
        """Sends the servers what they are to do."""
        self.ask("push", {server: (push,) for server, push in pushes.items()})

    def rows(self, variable: ServerVariable, rows: np.ndarray) -> np.ndarray:
        spec = variable.spec
        server = spec.servers[0]
        answer: Pulled = self.ask("pull", {server: ({}, [(spec.key, rows)])})[server]
        return answer.rows[0]

    def build(self, name: str, specs: dict[int, bytes]) -> None:
        """Tells the servers of an optimizer."""
        self._optimizers[name] = specs
        self.ask("build", {server: (name, spec) for server, spec in specs.items()})

    def dropped(self, spec: Spec) -> None:
        # Called when Python collects garbage, at any place: the servers are told later.
        self._dropped.append(spec)

    def _tell_dropped(self) -> None:
        while self._dropped:
            spec = self._dropped.popleft()
            self._names.pop(spec.key, None)
            self.servers.tell("delete", spec.servers, [spec.key])
