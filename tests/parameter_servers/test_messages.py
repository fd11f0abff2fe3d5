"""Functions that go to a worker in one message, without a cluster."""

# Looks into what workers and the coordinator tell each other.
# pyright: basic

import threading
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.parameter_servers import _dispatcher, _worker
from replicax._src.parameter_servers._dispatcher import Closure
from replicax._src.parameter_servers._messages import LostError
from replicax._src.parameter_servers._packing import numbers, packed
from replicax._src.parameter_servers._remote_value import PerWorkerValues
from replicax._src.parameter_servers._worker import Ending

pytest.importorskip("ray")
from tests.parameter_servers.actors import (
    ID,
    Cluster,
    Lost,
    StandsStill,
    adder,
    call,
    call_too,
    fail,
    fails,
    note,
    nothing,
    once,
    ran,
)


def tokens(closures: list[Closure]) -> list[str]:
    return [closure.token for closure in closures]


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
    outcomes, large = cluster.worker.run(calls, [0, 0], ())
    assert [each.ending for each in outcomes] == [Ending.DONE, Ending.FAILED, Ending.NOT_RUN]
    assert not large
