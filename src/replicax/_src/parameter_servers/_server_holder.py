"""The servers as holders of values, which they write to checkpoints and read from them."""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np

from replicax._src._typing import override
from replicax._src.parameter_servers._coordinator_view import CoordinatorView
from replicax._src.parameter_servers._messages import LostError
from replicax._src.parameter_servers._parts import pieces_of
from replicax._src.parameter_servers._servers import ServerGoneError
from replicax._src.variable import Holder, Piece, Task

_ATTEMPTS = 5  # servers that may be lost while they read
_LONGEST_PAUSE = 0.1  # seconds between two questions


@final
class ServerHolder(Holder):
    """The servers of one strategy."""

    def __init__(self, view: CoordinatorView):
        self._view = view

    @override
    def pieces(self, variable: Any, with_copies: bool) -> list[Piece]:
        specs = [piece.spec for piece in pieces_of(variable)]
        sizes = [spec.shape[0] if spec.shape else 1 for spec in specs]
        ends = [0, *itertools.accumulate(sizes)]
        return [
            Piece(server, spec.key, start, stop)
            for spec, (start, stop) in zip(specs, itertools.pairwise(ends), strict=True)
            for server in (spec.servers if with_copies else spec.servers[:1])
        ]

    @override
    def ask(self, question: Callable[[], Any]) -> list[Any]:
        servers = range(len(self._view.servers))
        answers = self._view.ask("call", {server: (question,) for server in servers}, wait=True)
        return [answers[server] for server in servers]

    @override
    def write(
        self, calls: Mapping[int, tuple[Callable[[dict[str, np.ndarray]], Any], dict[str, int]]]
    ) -> Task:
        return _ServerTask(self._view, dict(calls), is_read=False)

    @override
    def read(self, calls: Mapping[int, Callable[[], dict[int, np.ndarray]]]) -> Task:
        given = {server: (call, None) for server, call in calls.items()}
        return _ServerTask(self._view, given, is_read=True)


@final
class _ServerTask(Task):
    """Functions on servers. One that reads runs again on a server that was lost."""

    def __init__(self, view: CoordinatorView, calls: dict[int, tuple[Any, Any]], is_read: bool):
        self._view = view
        self._calls = calls
        self._is_read = is_read
        self._token = uuid.uuid4().hex
        self._attempts = _ATTEMPTS
        self._is_over = False
        self._start(calls)

    def _start(self, calls: Mapping[int, tuple[Any, Any]]) -> None:
        given = {server: (self._token, *call) for server, call in calls.items()}
        self._view.ask("start_task", given, wait=self._is_read)

    @override
    def results(self) -> dict[int, Any]:
        outcomes: dict[int, tuple[Any, Exception | None]] = {}
        pause = 0.002
        while waiting := [server for server in self._calls if server not in outcomes]:
            answers = self._ask("task_outcome", waiting)
            outcomes |= {server: found for server, found in answers.items() if found is not None}
            if len(outcomes) < len(self._calls):
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        self._is_over = True
        for _, error in outcomes.values():
            if error is not None:
                raise error
        return {server: value for server, (value, _) in outcomes.items()}

    def _ask(self, method: str, servers: list[int]) -> dict[int, Any]:
        """Calls servers about this task. Nothing is answered if one of them has to begin again."""
        try:
            return self._view.servers.ask(method, {server: (self._token,) for server in servers})
        except ServerGoneError as error:
            self._view.server_gone(error.server, error.life)
            self._begin_again(error.server, error.reason)
        except LostError as error:
            self._begin_again(error.server, "it was started again")
        return {}

    def _begin_again(self, server: int, reason: str) -> None:
        self._attempts -= 1
        if not self._is_read or not self._attempts:
            raise self._view.unavailable(server, (), reason)
        self._start({server: self._calls[server]})

    @override
    def end(self) -> None:
        if not self._is_over:
            with contextlib.suppress(Exception):
                self.results()
        self._view.servers.tell("end_task", list(self._calls), self._token)

    @override
    def adopt(self) -> None:
        for server in self._calls:
            while not self._ask("adopt_task", [server]):
                self.results()
        self.end()
