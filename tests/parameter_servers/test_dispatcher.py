"""What is scheduled: methods, functions that end as they should not, errors, several threads."""

# Looks into what workers and the coordinator tell each other.
# pyright: basic

import gc
import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax._src.parameter_servers import _dispatcher, _servers, _worker
from replicax._src.parameter_servers._dispatcher import Closure
from replicax._src.parameter_servers._packing import numbers, packed
from replicax._src.parameter_servers._remote_value import PerWorkerValues, RemoteValue
from replicax._src.parameter_servers._variable import ServerVariable
from replicax._src.parameter_servers._worker_strategy import WorkerStrategy
from replicax._src.training import _random
from tests.parameter_servers.actors import (
    ID,
    Cluster,
    Lost,
    adder,
    call,
    call_too,
    fails,
    is_noted,
    note,
    ray,
)


class Trainer:
    """A user's class, with methods for workers."""

    def __init__(self, w: Any) -> None:
        self.w = w

    @rx.function
    def step(self, x: Any) -> Any:
        self.w.assign_add(x)
        return self.w + x

    def eagerly(self, x: Any) -> Any:
        return self.step(x) + 1


def result(cluster: Cluster, function: Any, *args: Any) -> Any:
    closure = cluster.closure(function, *args)
    cluster.dispatcher.put(closure)
    return closure.value.fetch()


def test_compiled_methods(cluster: Cluster):
    w = cluster.variable(1.0)
    trainer = Trainer(w)
    assert result(cluster, trainer.step, 2.0) == 5
    assert result(cluster, trainer.eagerly, 2.0) == 8
    assert result(cluster, lambda: trainer.step(1.0)) == 7
    assert w.numpy() == 6


def test_a_method_is_one_function_though_it_is_made_at_each_access():
    first, second = Trainer(None), Trainer(None)
    for name in ("step", "eagerly"):
        assert numbers.of(getattr(first, name)) == numbers.of(getattr(first, name))
        assert numbers.of(getattr(first, name)) != numbers.of(getattr(second, name))
    assert numbers.of(first.step) != numbers.of(first.eagerly) != numbers.of(first)
    is_there = weakref.ref(first)
    del first
    gc.collect()
    assert is_there() is None


def test_a_function_without_weak_references(cluster: Cluster):
    assert numbers.of(np.sqrt) == numbers.of(np.sqrt)
    assert result(cluster, np.sqrt, 9.0) == 3


class Mine(Exception):
    def __init__(self, code: int, more: str = "") -> None:
        super().__init__(code)
        self.code = code


def raises(error: BaseException) -> Any:
    def raise_it() -> None:
        raise error

    return raise_it


def test_the_error_of_a_class_of_the_program_is_one_of_that_class(cluster: Cluster):
    class Local(Mine):
        pass

    for kind in (Mine, Local, KeyboardInterrupt):
        closure = cluster.closure(raises(kind(7)))
        cluster.dispatcher.put(closure)
        for ask in (closure.value.fetch, cluster.dispatcher.join):
            with pytest.raises(kind) as caught:
                ask()
            assert caught.value.args == (7,)
    assert result(cluster, int) == 0  # by the same worker
    assert cluster.dispatcher.lost_workers == 0


def test_a_function_that_calls_sys_exit(cluster: Cluster):
    """It ends neither its worker nor the program that schedules."""
    cluster.dispatcher.put(cluster.closure(lambda: sys.exit("no data")))
    with pytest.raises(RuntimeError, match=r"called sys.exit\('no data'\)"):
        cluster.dispatcher.join()
    assert cluster.dispatcher.lost_workers == 0


def test_an_error_is_raised_in_one_of_the_threads_that_wait(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_dispatcher, "_GRACE", 0.3)
    has_begun, may_end = threading.Event(), threading.Event()
    cluster.before += [lambda: (has_begun.set(), may_end.wait())]
    cluster.dispatcher.put(cluster.closure(int))
    has_begun.wait()
    found: list[str] = []

    def join() -> None:
        try:
            cluster.dispatcher.join()
        except Exception as error:
            found.append(str(error))

    threads = [threading.Thread(target=join) for _ in range(3)]
    cluster.dispatcher._fail(ValueError("one"))
    for thread in threads:
        thread.start()
    while not found:  # all of them wait for what runs, and one is the first
        threads[0].join(0.01)
    may_end.set()
    for thread in threads:
        thread.join()
    assert found == ["one"]


def test_a_coordinator_that_was_closed(cluster: Cluster):
    cluster.dispatcher.close()
    with pytest.raises(RuntimeError, match=r"was closed.*ClusterCoordinator\(strategy\)"):
        cluster.dispatcher.put(cluster.closure(int))
    cluster.dispatcher.join()
    assert cluster.dispatcher.is_done()


def test_what_makes_a_value_knows_its_worker(cluster: Cluster):
    index = rx.distribute.coordinator.experimental_get_current_worker_index
    cluster.dispatcher.add_maker(0, packed(lambda: [index() + 5], ID, "The value"))
    assert result(cluster, sum, PerWorkerValues(ID, 0)) == 5
    with pytest.raises(RuntimeError, match="coordinator.schedule"):
        index()


def test_a_worker_keeps_so_many_functions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_worker, "_KEPT", 2)
    kinds = [call, call_too, lambda function: function(), lambda function: function()]
    for _ in range(2):
        closures = [cluster.closure(int, by=by) for by in kinds]
        for closure in closures:
            cluster.dispatcher.put(closure)
        cluster.dispatcher.join()
        assert [closure.value.fetch() for closure in closures] == [0] * 4
        assert len(cluster.worker._functions) == 2


def test_a_worker_forgets_functions_that_the_program_has_no_more(cluster: Cluster):
    dispatcher, worker = cluster.dispatcher, cluster.worker
    for number in range(3):
        step = rx.function(lambda x, number=number: x + number)
        once = lambda function: function(1)  # noqa: E731
        closure = cluster.closure(step, by=once)
        dispatcher.put(closure)
        assert closure.value.fetch() == 1 + number
        dispatcher.join()
        assert len(worker._functions) == len(worker._compiled) == 1
        of_once = numbers.of(once)
        assert of_once in dispatcher._seconds
        del step, once, closure
        gc.collect()
    assert result(cluster, int) == 0
    assert list(worker._functions) == list(worker._habits) == [numbers.of(call)]
    assert not worker._compiled
    assert of_once not in dispatcher._seconds


def test_a_function_that_waits_runs_though_the_program_has_it_no_more(cluster: Cluster):
    once = lambda function: function() + 1  # noqa: E731
    closures = [cluster.closure(int, by=once) for _ in range(2)]
    of_once = numbers.of(once)
    dispatcher = cluster.dispatcher
    dispatcher.put(closures[0])
    dispatcher.join()
    del once
    gc.collect()
    dispatcher.put(closures[1])  # the worker has forgotten it, and is sent it again
    dispatcher.join()
    assert [each.value.fetch() for each in closures] == [1, 1]
    assert of_once in cluster.worker._functions


def test_a_value_that_cannot_be_made_is_an_error_of_those_that_use_it(cluster: Cluster):
    def make() -> list[int]:
        if not is_noted("the file is there"):
            raise OSError("no such file")
        return [7]

    cluster.dispatcher.add_maker(0, packed(make, ID, "The value"))
    values = PerWorkerValues(ID, 0)
    assert result(cluster, int) == 0  # it does not use the value
    for _ in range(2):
        with pytest.raises(OSError, match="no such file"):
            result(cluster, sum, values)
        with pytest.raises(OSError, match="no such file"):
            cluster.dispatcher.join()
    assert result(cluster, int) == 0
    note("the file is there")
    assert result(cluster, sum, values) == result(cluster, sum, values) == 7


def test_what_a_function_refers_to_is_there_until_it_has_run(cluster: Cluster):
    """Also if nobody else has it any more: the servers would drop it."""
    given: Any = cluster.variable(2.0)
    kept: list[object] = []
    arguments = packed(((given,), {}), ID, "The arguments", kept)
    assert kept == [given]
    here = weakref.ref(given)
    code = packed(call_it, ID, "The function")
    closure = Closure("t", numbers.of(call_it), code, arguments, RemoteValue("it"), kept)
    value = closure.value
    del given, kept
    gc.collect()
    assert here() is not None
    cluster.dispatcher.put(closure)
    assert value.fetch() == 3
    cluster.dispatcher.join()
    del closure
    gc.collect()
    assert here() is None


def call_it(variable: Any) -> Any:
    return variable + 1


def test_variables_of_other_arguments_are_not_read(cluster: Cluster):
    """They may be gone by then."""
    values = []
    for number in range(2):
        given = cluster.variable(float(number), number)
        values.append(result(cluster, call_it, given))
        cluster.servers[number].target.delete([given.spec.key])
    assert values == [1, 2]


def test_a_function_that_is_lost_several_times_is_named(cluster: Cluster):
    cluster.before += [fails(Lost()) for _ in range(3)]
    with pytest.warns(UserWarning, match="RemoteValue of t.* to 3 workers .* memory .*"):
        assert result(cluster, int) == 0


def test_functions_of_several_threads_have_one_number_each():
    functions = [lambda index=index: index for index in range(200)]
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: found.append([numbers.of(each) for each in functions]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(each) for each in found}) == 1
    assert numbers.find(found[0][7]) is functions[7]


def test_a_worker_that_is_not_started_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    """There is no other one: that is an error, until it is there."""
    monkeypatch.setattr(_dispatcher, "_STARTED_WITHIN", 0.0)
    cluster.before += [fails(Lost())]
    is_there = threading.Event()

    def ready(method: Any) -> int:
        if not is_there.is_set():
            raise Lost()
        return method()

    cluster.actor.around["ready"] = ready
    closure = cluster.closure(int)
    with pytest.warns(UserWarning, match="Worker 0 was lost, and is not started again: .*other"):
        cluster.dispatcher.put(closure)
        with pytest.raises(rx.errors.WorkerLostError, match="There is no other worker"):
            cluster.dispatcher.join()
    with pytest.raises(rx.errors.CancelledError):
        closure.value.fetch()
    is_there.set()
    assert result(cluster, int) == 0


def test_ray_that_was_shut_down(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    """Nothing is asked of it: it would start another cluster."""
    large = cluster.closure(bytes, 100_000)
    cluster.dispatcher.put(large)
    cluster.dispatcher.join()
    monkeypatch.setattr(_servers.imported_ray(), "is_initialized", lambda: False)
    told = [
        lambda: result(cluster, int),
        cluster.dispatcher.join,
        large.value.fetch,
        lambda: cluster.found.tell("delete", [0], [1]),
        lambda: cluster.found.ask_all("ready"),
    ]
    for each in told:
        with pytest.raises(RuntimeError, match="Ray was shut down.*Make another strategy"):
            each()


def test_a_worker_of_a_cluster_that_is_gone(cluster: Cluster):
    cluster.before += [fails(Lost())]
    cluster.actor.around["ready"] = lambda method: fails(OSError("no such actor"))()
    cluster.dispatcher.put(cluster.closure(int))
    with pytest.raises(OSError, match="no such actor"):
        cluster.dispatcher.join()


@pytest.mark.parametrize(
    "error",
    [
        ray.exceptions.OutOfMemoryError("the node was out of memory"),
        ray.exceptions.NodeDiedError("the node has died"),
        ray.exceptions.ObjectLostError("1" * 56, None, "here"),
    ],
)
def test_a_worker_that_is_lost_in_another_way(cluster: Cluster, error: Exception):
    """Ray has ended it, or its node is gone, also after the function has ended there."""
    count = cluster.variable(0)
    cluster.after += [fails(error)]
    assert result(cluster, adder(count, "a")) == "a"
    assert count.numpy() == 1 and cluster.dispatcher.lost_workers == 1


def test_a_server_that_ray_has_ended(cluster: Cluster):
    gone = ray.exceptions.OutOfMemoryError("the node was out of memory")
    count = cluster.variable(0)
    cluster.servers[0].around["pull"] = lambda method, *args: fails(gone)()
    with pytest.raises(rx.errors.UnavailableError, match="server 0 was lost .*out of memory"):
        count.numpy()


@pytest.mark.parametrize("compiled", [True, False])
def test_random_numbers_of_a_worker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, compiled: bool
):
    """The global generator is the worker's own; it can be made in a function that runs there."""
    monkeypatch.setattr(_random, "_global", [])

    def draw() -> Any:
        return rx.random.uniform((3,))

    draws = rx.function(draw) if compiled else draw
    first, second = result(cluster, draws), result(cluster, draws)
    assert np.all(first != second)
    assert not isinstance(rx.random.get_global_generator().state, ServerVariable)


def test_workers_that_have_read_one_state_draw_other_numbers():
    found = []
    for index in range(2):
        generator = rx.random.Generator.from_seed(1)  # as if no other worker had drawn
        with WorkerStrategy(SimpleNamespace(index=index)).scope():  # pyright: ignore
            found.append(generator.uniform((3,)))
    assert np.all(found[0] != found[1])
