"""Functions that go to a worker in one message, without a cluster: actors are objects of this
process, whose calls run at once, and fail where a test says so."""

# Looks into what workers and the coordinator tell each other.
# pyright: basic

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.parameter_servers import _dispatcher, _remote_value, _servers, _worker
from replicax._src.parameter_servers._coordinator_view import CoordinatorView
from replicax._src.parameter_servers._dispatcher import Closure, Dispatcher
from replicax._src.parameter_servers._messages import LostError
from replicax._src.parameter_servers._packing import numbers, packed
from replicax._src.parameter_servers._remote_value import PerWorkerValues, RemoteValue
from replicax._src.parameter_servers._server import ParameterServer
from replicax._src.parameter_servers._variable import ServerVariable
from replicax._src.parameter_servers._worker import Ending, Worker

ray: Any = pytest.importorskip("ray")
ID = "without-ray"
ran: list[str] = []  # what functions have noted


def note(what: str) -> None:
    """Notes that a function runs. Of this module, so that functions that are sent refer to it."""
    ran.append(what)


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
        self.view = CoordinatorView(self.strategy, self.found, lambda server: None)
        self.dispatcher = Dispatcher(self.strategy, self.view, [self.actor], ID, **options)
        self._tokens = itertools.count()
        self._keys = itertools.count(1)

    def start_worker(self) -> None:
        """Starts the worker, also again."""
        self.worker = self.actor.target = Worker(0, ID, False, 60.0)
        self.worker._view._servers = self.found

    def _run(self, method: Callable[..., Any], calls: Any, lives: list[int]) -> Any:
        self.messages.append([each.token for each in calls])
        if self.before:
            self.before.pop(0)()
        outcomes, large = method(calls, lives)
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


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    fake = SimpleNamespace(
        get=get, is_initialized=lambda: True, exceptions=ray.exceptions, cloudpickle=ray.cloudpickle
    )
    for module in (_dispatcher, _servers, _remote_value, _worker):
        monkeypatch.setattr(module, "imported_ray", lambda: fake)
    monkeypatch.setattr(_dispatcher, "_AT_ONCE", 1)
    monkeypatch.setattr(Worker, "current", None)
    ran.clear()
    made = Cluster(**getattr(request, "param", {}))
    fake.kill = lambda actor, no_restart: (note(f"kill, {no_restart}"), made.start_worker())
    yield made
    made.dispatcher.close()


def nothing() -> None:
    pass


def tokens(closures: list[Closure]) -> list[str]:
    return [closure.token for closure in closures]


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


def test_an_error_in_the_middle_cancels_what_is_after_it(cluster: Cluster):
    count = cluster.variable(0)
    all_ = [cluster.closure(each) for each in (adder(count, "a"), fail, adder(count, "c"))]
    first, second, third = cluster.together(*all_)
    with pytest.raises(KeyError, match="mine") as caught:
        cluster.dispatcher.join()
    assert "on worker 0" in caught.value.__notes__[0]
    assert cluster.messages == [tokens(all_)]
    assert first.fetch() == "a"
    with pytest.raises(KeyError, match="mine"):
        second.fetch()
    with pytest.raises(rx.errors.CancelledError):
        third.fetch()
    assert ran == ["a", "fail"] and count.numpy() == 1
    cluster.together(cluster.closure(adder(count, "d")))
    cluster.dispatcher.join()
    assert count.numpy() == 2


def test_functions_of_an_answer_that_was_lost_run_again_without_a_second_update(cluster: Cluster):
    counts = [cluster.variable(0, server) for server in (0, 1)]

    def both(name: str) -> str:
        note(name)
        for count in counts:
            count.assign_add(1)
        return name

    cluster.servers[1].around["exchange"] = once(LostError(1, []))
    all_ = [cluster.closure(both, name) for name in "abc"]
    values = cluster.together(*all_)
    cluster.dispatcher.join()
    assert [each.fetch() for each in values] == ["a", "b", "c"]
    assert cluster.messages == [tokens(all_)] * 2
    assert ran == list("abcabc")
    assert [int(each.numpy()) for each in counts] == [3, 3]


def test_what_another_function_has_sent_along_is_not_done_again(cluster: Cluster):
    """A read carries what was done before it, and fails because of what it reads itself."""
    count, other = cluster.variable(0), cluster.variable(5, 1)

    def read() -> Any:
        note("read")
        return other.value() + count.value()

    cluster.servers[1].around["exchange"] = once(LostError(1, []))
    all_ = [cluster.closure(each) for each in (adder(count, "a"), read, adder(count, "c"))]
    values = cluster.together(*all_)
    cluster.dispatcher.join()
    assert [each.fetch() for each in values] == ["a", 6, "c"]
    assert count.numpy() == 2
    assert cluster.messages == [tokens(all_), tokens(all_[1:])]
    assert ran == ["a", "read", "read", "c"]


def test_a_server_that_has_lost_its_values_is_an_error_of_all_that_was_not_sent(cluster: Cluster):
    count = cluster.variable(0)
    cluster.servers[0].around["exchange"] = once(LostError(0, [1]))
    values = cluster.together(*(cluster.closure(adder(count, name)) for name in "ab"))
    with pytest.raises(rx.errors.UnavailableError, match="Parameter server 0 was lost.*'v1:0'"):
        cluster.dispatcher.join()
    with pytest.raises(rx.errors.CancelledError):
        values[0].fetch()
    with pytest.raises(rx.errors.UnavailableError):
        values[1].fetch()
    assert ran == ["a", "b"]


def test_functions_of_a_lost_worker_run_again_one_at_a_time(cluster: Cluster):
    """One of them may be the reason. The first worker had sent its updates, the second not."""
    count = cluster.variable(0)
    cluster.after += [fails(Lost())]
    all_ = [cluster.closure(adder(count, name)) for name in "abc"]
    cluster.before += [nothing, fails(Lost())]
    values = cluster.together(*all_)
    cluster.dispatcher.join()
    assert [each.fetch() for each in values] == ["a", "b", "c"]
    a, b, c = tokens(all_)
    assert cluster.messages == [[a, b, c], [a], [a], [b], [c]]
    assert count.numpy() == 3
    assert cluster.dispatcher.lost_workers == 2


def test_a_function_that_a_worker_has_not_is_sent_in_the_middle(cluster: Cluster):
    count = cluster.variable(0)
    kinds = (call, call_too, call)
    all_ = [cluster.closure(adder(count, name), by=by) for by, name in zip(kinds, "abc")]
    cluster.before += [lambda: cluster.worker._functions.pop(numbers.of(call_too))]
    cluster.together(*all_)
    cluster.dispatcher.join()
    assert cluster.messages == [tokens(all_), tokens(all_[1:])]
    assert ran == ["a", "b", "c"] and count.numpy() == 3


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_result_that_cannot_be_sent(cluster: Cluster, size: int):
    count = cluster.variable(0)

    def lock() -> Any:
        count.assign_add(1)
        return np.zeros(size), threading.Lock()

    values = cluster.together(*(cluster.closure(each) for each in (adder(count, "a"), lock)))
    with pytest.raises(TypeError, match="returned something that cannot be sent.*Return arrays"):
        cluster.dispatcher.join()
    assert values[0].fetch() == "a"
    assert count.numpy() == 2  # what it has done before is done


def test_large_results_beside_small_ones(cluster: Cluster):
    def make(size: int) -> Any:
        return {"size": size, "data": np.full(size, size, np.int32)}

    sizes = (100_000, 3, 200_000)
    values = cluster.together(*(cluster.closure(make, size) for size in sizes))
    cluster.dispatcher.join()
    assert len(cluster.messages) == 1
    for value, size in zip(values, sizes):
        found = value.fetch()
        assert found["size"] == size
        np.testing.assert_array_equal(found["data"], make(size)["data"])
    held = [each._held for each in values]
    assert [each is not None and type(each[1]) for each in held] == [int, bytes, int]


def test_bytes_can_be_a_large_result(cluster: Cluster):
    (value,) = cluster.together(cluster.closure(bytes, 100_000))
    assert value.fetch() == bytes(100_000)
    assert value._held is not None and value._held[1] == 0


def test_what_is_left_of_a_message_does_not_run_when_another_error_was_raised(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    """The message is from before the error, so that its own errors are nobody's."""
    monkeypatch.setattr(_dispatcher, "_GRACE", 0.0)
    count = cluster.variable(0)
    has_begun, may_go_on = threading.Event(), threading.Event()

    def stop() -> None:
        has_begun.set()
        may_go_on.wait()

    cluster.before += [stop]
    values = cluster.together(*(cluster.closure(each) for each in (fail, adder(count, "b"))))
    has_begun.wait()
    cluster.dispatcher._fail(rx.errors.UnavailableError("a server"))
    with pytest.raises(rx.errors.UnavailableError, match="a server"):
        cluster.dispatcher.join()
    may_go_on.set()
    with pytest.raises(KeyError):
        values[0].fetch()
    with pytest.raises(rx.errors.CancelledError):
        values[1].fetch()
    cluster.dispatcher.join()
    assert ran == ["fail"] and count.numpy() == 0


def test_a_worker_that_was_started_again_while_it_was_idle_makes_its_values_again(
    cluster: Cluster,
):
    def make() -> list[int]:
        note("made")
        return [7]

    cluster.dispatcher.add_maker(0, packed(make, ID, "The value"))
    values = PerWorkerValues(ID, 0)
    cluster.together(cluster.closure(sum, values))
    cluster.dispatcher.join()
    cluster.start_worker()
    all_ = [cluster.closure(sum, values) for _ in range(3)]
    found = cluster.together(*all_)
    cluster.dispatcher.join()
    assert [each.fetch() for each in found] == [7, 7, 7]
    assert ran == ["made", "made"]
    assert cluster.messages[-2:] == [tokens(all_)] * 2
    assert cluster.dispatcher.lost_workers == 1


LIMITED = pytest.mark.parametrize("cluster", [{"function_timeout": 60}], indirect=True)


@LIMITED
def test_a_function_that_stands_still_is_given_up_and_runs_again(cluster: Cluster):
    count = cluster.variable(0)
    cluster.before += [nothing, fails(StandsStill())]
    all_ = [cluster.closure(adder(count, name)) for name in "abc"]
    with pytest.warns(UserWarning, match=r"RemoteValue of t1: .* within 60 s on worker 0.*again"):
        values = cluster.together(*all_)
        cluster.dispatcher.join()
    assert [each.fetch() for each in values] == ["a", "b", "c"]
    a, b, c = tokens(all_)
    assert cluster.messages[-4:] == [[a], [b], [b], [c]]
    assert ran == ["a", "kill, False", "b", "c"] and count.numpy() == 3
    assert cluster.dispatcher.lost_workers == 1


@LIMITED
def test_a_function_that_always_stands_still_is_an_error(cluster: Cluster):
    cluster.before += [fails(StandsStill())] * 3
    with pytest.warns(UserWarning, match="function_timeout"):
        values = cluster.together(*(cluster.closure(int) for _ in range(2)))
        with pytest.raises(rx.errors.WorkerLostError, match="t0.*attempt 3; it is not tried again"):
            cluster.dispatcher.join()
    with pytest.raises(rx.errors.WorkerLostError):
        values[0].fetch()
    with pytest.raises(rx.errors.CancelledError):
        values[1].fetch()
    cluster.together(cluster.closure(int))
    cluster.dispatcher.join()


def test_what_a_worker_says_of_a_message(cluster: Cluster):
    calls = [
        _worker.Call(each.token, each.function, each.code, each.arguments, {})
        for each in map(cluster.closure, (int, fail, int))
    ]
    outcomes, large = cluster.worker.run(calls, [0, 0])
    assert [each.ending for each in outcomes] == [Ending.DONE, Ending.FAILED, Ending.NOT_RUN]
    assert not large
