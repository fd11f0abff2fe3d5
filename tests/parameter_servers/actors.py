"""A coordinator, a worker and servers without a cluster: actors are objects of this process, whose
calls run at once, and fail where a test says so."""

# Looks into what workers and the coordinator tell each other.
# pyright: basic

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import replicax as rx
from replicax._src.parameter_servers import _servers
from replicax._src.parameter_servers._coordinator_view import CoordinatorView
from replicax._src.parameter_servers._dispatcher import Closure, Dispatcher
from replicax._src.parameter_servers._packing import numbers, packed
from replicax._src.parameter_servers._remote_value import RemoteValue
from replicax._src.parameter_servers._server import ParameterServer
from replicax._src.parameter_servers._variable import ServerVariable
from replicax._src.parameter_servers._worker import Worker

ray: Any = pytest.importorskip("ray")
ID = "without-ray"
ran: list[str] = []  # what functions have noted


def note(what: str) -> None:
    """Notes that a function runs. Of this module, so that functions that are sent refer to it."""
    ran.append(what)


def is_noted(what: str) -> bool:
    """Whether something was noted, also asked by functions that are sent."""
    return what in ran


def call(function: Callable[..., Any], *args: Any) -> Any:
    """All functions that are scheduled are this one, so that the coordinator knows it is short."""
    return function(*args)


def call_too(function: Callable[..., Any]) -> Any:
    """Another one."""
    return function()


class Lost(ray.exceptions.RayActorError):
    """A process has ended."""


class StandsStill(Exception):
    """A call does not end."""


class Actor:
    """Calls the methods of an object at once.

    Attributes:
      around: by the name of a method, what is called instead of it, with the method itself first.
    """

    def __init__(self, target: Any):
        self.target = target
        self.around: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(
            remote=lambda *args: self._call(name, args),
            options=lambda num_returns: SimpleNamespace(
                remote=lambda *args: self._call(name, args, num_returns)
            ),
        )

    def _call(self, name: str, args: tuple[Any, ...], returns: int = 1) -> Any:
        method = getattr(self.target, name)
        try:
            if name in self.around:
                found = self.around[name](method, *args)
            else:
                found = method(*args)
        except Exception as error:
            refs = [(None, error)] * returns
        else:
            refs = [(each, None) for each in (found if returns > 1 else [found])]
        return refs if returns > 1 else refs[0]


def get(refs: Any, timeout: float | None = None) -> Any:
    """What `ray.get` does; a call that stands still is never there in time."""
    if isinstance(refs, list):
        return [get(each, timeout) for each in refs]
    value, error = refs
    if isinstance(error, StandsStill):
        assert timeout == 60
        raise ray.exceptions.GetTimeoutError
    if error is not None:
        raise error
    return value


class Cluster:
    """A coordinator's queue, a worker and two servers."""

    def __init__(self, **options: Any) -> None:
        self.servers = [Actor(ParameterServer(index)) for index in range(2)]
        self.found = _servers.Servers(self.servers, [0, 0], 60.0)
        self.actor = Actor(None)
        self.start_worker()
        self.actor.around["run"] = self._run
        self.messages: list[list[str]] = []
        self.before: list[Callable[[], Any]] = []  # for the next messages, in turn
        self.after: list[Callable[[], Any]] = []
        self.strategy = rx.distribute.get_strategy()
        self.view = CoordinatorView(self.strategy, self.found, self._start_server)
        self.dispatcher = Dispatcher(self.strategy, self.view, [self.actor], ID, **options)
        self._tokens = itertools.count()
        self._keys = itertools.count(1)

    def _start_server(self, server: int) -> None:
        """Starts a server again, without values."""
        self.servers[server].target = ParameterServer(server)
        self.found.replace(server, self.servers[server])

    def start_worker(self) -> None:
        """Starts the worker, also again."""
        self.worker = self.actor.target = Worker(0, ID, False, 60.0)
        self.worker._view._servers = self.found

    def _run(self, method: Callable[..., Any], calls: Any, *others: Any) -> Any:
        self.messages.append([each.token for each in calls])
        if self.before:
            self.before.pop(0)()
        outcomes, large = method(calls, *others)
        if self.after:
            self.after.pop(0)()
        return [each._replace(seconds=0.0) for each in outcomes], large

    def variable(self, value: Any, server: int = 0) -> Any:
        key = next(self._keys)
        return ServerVariable(self.view, key, (server,), initial_value=value, name=f"v{key}")

    def closure(self, function: Any, *args: Any, by: Any = call) -> Closure:
        code = packed(by, ID, "The function")
        given = packed(((function, *args), {}), ID, "The arguments")
        token = f"t{next(self._tokens)}"
        return Closure(token, numbers.of(by), code, given, RemoteValue(token))

    def together(self, *closures: Closure) -> list[RemoteValue]:
        """Lets functions go to the worker in one message: while it runs another, they wait."""
        is_there, may_end = threading.Event(), threading.Event()

        def stop() -> None:
            is_there.set()
            may_end.wait()

        before, after = self.before, self.after
        self.before, self.after = [], []
        self.dispatcher.put(self.closure(int, by=call_too))
        self.dispatcher.join()
        self.before, self.after = [stop, *before], [nothing, *after]
        self.dispatcher.put(self.closure(int))
        is_there.wait()
        self.messages.clear()
        for closure in closures:
            self.dispatcher.put(closure)
        may_end.set()
        return [closure.value for closure in closures]


def nothing() -> None:
    pass


def adder(count: Any, name: str) -> Callable[[], str]:
    def add() -> str:
        note(name)
        count.assign_add(1)
        return name

    return add


def fail() -> None:
    note("fail")
    raise KeyError("mine")


def fails(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def once(error: Exception) -> Callable[..., Any]:
    """A call of a server that is carried out, and the first time its answer is lost."""
    errors = [error]

    def around(method: Callable[..., Any], *args: Any) -> Any:
        found = method(*args)
        if errors:
            raise errors.pop()
        return found

    return around
