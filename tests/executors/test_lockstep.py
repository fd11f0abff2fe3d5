"""Eager replicas: in order, on kept threads, with errors that say where they come from."""

import contextvars
import gc
import threading
import time
import traceback
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src import _jax_internals
from replicax._src.executors import _threads
from tests.replicas import context, mirrored, parts_of, several_replicas


def replica_id() -> int:
    return context().replica_id_in_sync_group


def nothing(strategy: Any) -> None:
    """A merge function for those who only want to meet."""


# --- order ----------------------------------------------------------------------------------------


@several_replicas
def test_side_effects_come_in_replica_order_between_meetings(strategy: Any):
    events: list[Any] = []

    def merge(strategy: Any, name: Any) -> None:
        events.append(name)

    def step() -> None:
        events.append(("a", replica_id()))
        events.append(("b", replica_id()))
        context().merge_call(merge, ("first",))
        events.append(("c", replica_id()))
        context().all_reduce("SUM", 1.0)
        events.append(("d", replica_id()))
        context().merge_call(merge, ("second",))
        events.append(("e", replica_id()))

    strategy.run(step)
    replicas = range(strategy.num_replicas_in_sync)
    assert events == [
        *(event for index in replicas for event in (("a", index), ("b", index))),
        "first",
        *(("c", index) for index in replicas),
        *(("d", index) for index in replicas),
        "second",
        *(("e", index) for index in replicas),
    ]


@several_replicas
def test_only_one_replica_moves_at_a_time(strategy: Any):
    moving: list[int] = []

    def step() -> None:
        for _ in range(3):
            moving.append(replica_id())
            time.sleep(0.002)
            assert moving.pop() == replica_id() and not moving
            context().merge_call(nothing)

    strategy.run(step)


def test_real_python_in_a_replica(strategy: Any):
    def step() -> Any:
        if replica_id() == 0:
            return "first"
        return "other"

    result = strategy.experimental_local_results(strategy.run(step))
    assert result[0] == "first" and set(result[1:]) <= {"other"}


# --- threads --------------------------------------------------------------------------------------


@several_replicas
def test_threads_are_kept_and_reused(strategy: Any):
    def step() -> Any:
        context().merge_call(nothing)
        return threading.current_thread().name, threading.get_ident()

    seen = set()
    for _ in range(50):
        names, idents = strategy.run(step)
        seen.update(zip(names.values, idents.values, strict=True))
    assert len(seen) == strategy.num_replicas_in_sync
    assert all(name.startswith("replicax-replica-") for name, _ in seen)


def test_one_replica_runs_on_the_calling_thread():
    assert mirrored(1).run(threading.get_ident) == threading.get_ident()


def test_no_threads_are_lost_by_failing_runs():
    strategy = mirrored(3)

    def step() -> None:
        context().merge_call(nothing)
        if replica_id() == 1:
            raise ValueError("on purpose")
        context().merge_call(nothing)

    strategy.run(lambda: None)
    before = threading.active_count()
    for _ in range(100):
        with pytest.raises(ValueError, match="on purpose"):
            strategy.run(step)
    assert threading.active_count() <= before
    assert parts_of(strategy, strategy.run(lambda: jnp.ones(()) * replica_id())) == [0, 1, 2]


def test_the_pool_keeps_a_bounded_number():
    pool, threads = _threads.ThreadPool(keep=2), []

    def code() -> None:
        threads.append(threading.current_thread())
        tasks[len(threads) - 1].pause()

    tasks = [_threads.Task(pool, code) for _ in range(4)]
    for task in tasks:
        task.take_thread()
        task.resume()
    assert len(set(threads)) == 4
    for task in tasks:
        task.end()
    for thread in threads[2:]:
        thread.join(60)
    assert [thread.is_alive() for thread in threads] == [True, True, False, False]
    pool._keep = 0
    for thread in threads[1::-1]:
        task = _threads.Task(pool, lambda: None)
        task.take_thread()
        task.resume()
        thread.join(60)
        assert not thread.is_alive()


# --- exceptions -----------------------------------------------------------------------------------


class Own(Exception):
    def __init__(self, first: Any, second: Any):  # cannot be copied from its args alone
        super().__init__("own")
        self.first, self.second = first, second


@several_replicas
@pytest.mark.parametrize("failing", [0, 1])
def test_an_exception_surfaces_as_itself(strategy: Any, failing: int):
    error = Own(1, 2)

    def helper() -> None:
        raise error

    def step() -> None:
        if replica_id() == failing:
            helper()

    with pytest.raises(Own) as caught:
        strategy.run(step)
    assert caught.value is error
    assert any(f"replica {failing} of " in note for note in error.__notes__)
    frames = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert frames[-2:] == ["step", "helper"]


@several_replicas
def test_an_exception_that_is_raised_again_and_again_keeps_one_note(strategy: Any):
    error = ValueError("one object")

    def step() -> None:
        raise error

    for _ in range(3):
        with pytest.raises(ValueError, match="one object"):
            strategy.run(step)
    assert len(error.__notes__) == 1


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt])
def test_exceptions_of_pythons_own_surface_too(strategy: Any, kind: type[BaseException]):
    def step() -> None:
        raise kind("own reason")

    with pytest.raises(kind, match="own reason"):
        strategy.run(step)
    assert strategy.run(lambda: None) is None


@several_replicas
def test_an_exhausted_iterator_in_a_replica(strategy: Any):
    numbers = iter(range(strategy.num_replicas_in_sync + 1))
    strategy.run(lambda: next(numbers))
    with pytest.raises(StopIteration):
        strategy.run(lambda: next(numbers))


@several_replicas
def test_the_other_replicas_clean_up(strategy: Any):
    cleaned: list[int] = []
    last = strategy.num_replicas_in_sync - 1

    def step() -> None:
        try:
            try:
                context().merge_call(nothing)
                if replica_id() == last:
                    raise ValueError("on purpose")
                context().merge_call(nothing)
            except Exception as error:  # must not keep the waiting replicas going
                assert replica_id() == last, error
                raise
        finally:
            cleaned.append(replica_id())

    with pytest.raises(ValueError, match="on purpose"):
        strategy.run(step)
    assert sorted(cleaned) == list(range(strategy.num_replicas_in_sync))
    assert strategy.run(lambda: None) is None


@several_replicas
def test_a_meeting_in_a_finally_does_not_hang(strategy: Any):
    def step() -> None:
        try:
            context().merge_call(nothing)
            if replica_id() == 1:
                raise ValueError("on purpose")
            context().merge_call(nothing)
        finally:
            if replica_id() != 1:
                context().all_reduce("SUM", 1.0)

    with pytest.raises(ValueError, match="on purpose"):
        strategy.run(step)
    assert strategy.run(lambda: None) is None


@several_replicas
def test_an_exception_in_a_merge_function(strategy: Any):
    cleaned: list[int] = []

    def merge(strategy: Any) -> None:
        raise KeyError("in the merge")

    def step() -> None:
        try:
            context().merge_call(merge)
        finally:
            cleaned.append(replica_id())

    with pytest.raises(KeyError, match="in the merge"):
        strategy.run(step)
    assert sorted(cleaned) == list(range(strategy.num_replicas_in_sync))
    assert not rx.distribute.has_strategy()
    assert strategy.run(lambda: None) is None


@several_replicas
def test_a_failed_run_keeps_nothing_alive(strategy: Any):
    class Big:
        pass

    alive = []

    def step() -> None:
        big = Big()
        alive.append(weakref.ref(big))
        context().merge_call(nothing)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        strategy.run(step)
    gc.collect()
    assert [each() for each in alive] == [None] * strategy.num_replicas_in_sync


@several_replicas
def test_a_run_that_returned_keeps_nothing_alive(strategy: Any):
    class Big:
        pass

    alive = []

    def step() -> Any:
        big = Big()
        alive.append(weakref.ref(big))
        return big

    result = strategy.run(step)
    del result
    gc.collect()
    assert [each() for each in alive] == [None] * strategy.num_replicas_in_sync


# --- replicas that disagree -----------------------------------------------------------------------


@several_replicas
def test_a_meeting_that_one_replica_skips(strategy: Any):
    def step() -> None:
        if replica_id() != 1:
            context().merge_call(nothing)

    with pytest.raises(rx.errors.ReplicaMismatchError) as caught:
        strategy.run(step)
    text = str(caught.value)
    assert "replica 0 (CPU:0): called merge_call(nothing)" in text
    assert "replica 1 (CPU:1): returned" in text


@several_replicas
def test_replicas_that_meet_for_different_things(strategy: Any):
    def other(strategy: Any) -> None:
        pass

    disagreements = [
        lambda: context().merge_call(nothing if replica_id() else other),
        lambda: context().all_reduce("SUM" if replica_id() else "MEAN", 1.0),
        lambda: context().all_reduce("SUM", [1.0] * (1 + replica_id())),
        lambda: (
            context().all_reduce("SUM", 1.0)
            if replica_id()
            else context().all_gather(jnp.ones(1), axis=0)
        ),
    ]
    for step in disagreements:
        with pytest.raises(RuntimeError, match="did not do the same thing"):
            strategy.run(step)


@several_replicas
def test_replicas_that_update_different_variables(strategy: Any):
    with strategy.scope():
        first = rx.Variable(0.0, aggregation="SUM", name="first")
        second = rx.Variable(0.0, aggregation="SUM", name="second")
    with pytest.raises(rx.errors.ReplicaMismatchError, match="assign_add of variable 'second"):
        strategy.run(lambda: (second if replica_id() else first).assign_add(1.0))
    assert (first.numpy(), second.numpy()) == (0.0, 0.0)


@several_replicas
def test_each_replica_may_define_the_merge_function_itself(strategy: Any):
    def step(x: Any) -> Any:
        def merge(strategy: Any, values: Any) -> Any:
            return strategy.reduce("SUM", values, axis=None)

        return context().merge_call(merge, (x * replica_id(),))

    total = sum(range(strategy.num_replicas_in_sync))
    assert float(parts_of(strategy, strategy.run(step, (jnp.float32(1),)))[0]) == total


# --- nesting and concurrency ----------------------------------------------------------------------


@several_replicas
def test_a_run_inside_a_merge_function(strategy: Any, executor: Any):
    def inner(x: Any) -> Any:
        return context().all_reduce("SUM", x)

    def merge(strategy: Any, x: Any) -> Any:
        return executor.run(strategy, inner, (x,))

    def step() -> Any:
        total = context().merge_call(merge, (jnp.float32(1) * replica_id(),))
        return total + replica_id()

    count = strategy.num_replicas_in_sync
    total = sum(range(count))
    result = parts_of(strategy, executor.run(strategy, step))
    assert result == [total + index for index in range(count)]


@several_replicas
def test_an_exception_in_a_nested_run(strategy: Any):
    def inner() -> None:
        context().merge_call(nothing)
        if replica_id() == 1:
            raise ValueError("deep inside")
        context().merge_call(nothing)

    def step() -> None:
        context().merge_call(lambda strategy: strategy.run(inner))

    for _ in range(3):
        with pytest.raises(ValueError, match="deep inside"):
            strategy.run(step)
    assert strategy.run(lambda: None) is None


def test_running_inside_a_traced_function_is_refused():
    strategy = mirrored(2)
    with pytest.raises(RuntimeError, match="call strategy.run outside"):
        jax.jit(lambda x: strategy.run(lambda: x))(1.0)


# --- what a replica's thread takes over -----------------------------------------------------------

LEVEL: contextvars.ContextVar[str] = contextvars.ContextVar("LEVEL", default="outside")


def test_settings_of_jax_are_seen(strategy: Any):
    def step() -> Any:
        return (
            jax.config.jax_default_matmul_precision,  # type: ignore
            jnp.asarray(np.float64(1)).dtype,
            jax.config.jax_numpy_dtype_promotion,  # type: ignore
        )

    with (
        jax.default_matmul_precision("highest"),
        jax.enable_x64(True),
        jax.numpy_dtype_promotion("strict"),
    ):
        inside = strategy.experimental_local_results(strategy.run(step))
    after = strategy.experimental_local_results(strategy.run(step))
    for seen in inside:
        assert seen == ("highest", np.dtype("float64"), "strict")
    for seen in after:
        assert seen == (None, np.dtype("float32"), "standard")


def test_settings_inside_a_replica_stay_inside(strategy: Any):
    def step() -> Any:
        with jax.default_matmul_precision("highest"):
            context().merge_call(lambda strategy: seen.append(precision()))
            return precision()

    def precision() -> Any:
        return jax.config.jax_default_matmul_precision  # type: ignore

    seen: list[Any] = []
    assert set(strategy.experimental_local_results(strategy.run(step))) == {"highest"}
    assert precision() is None
    assert set(strategy.experimental_local_results(strategy.run(precision))) == {None}


@several_replicas
def test_the_replicas_device_wins_over_one_around_the_run(strategy: Any):
    def step() -> Any:
        with rx.device("CPU:7"):
            chosen = jnp.ones(1)
        return jnp.ones(1), chosen

    with rx.device("CPU:6"):
        own, chosen = strategy.run(step)
    devices = strategy.extended._replica_devices
    assert [x.devices() for x in own.values] == [{device} for device in devices]
    assert [x.devices() for x in chosen.values] == [{jax.devices()[7]}] * len(devices)


def test_context_variables_are_seen_and_changes_stay_inside(strategy: Any):
    def step() -> str:
        found = LEVEL.get()
        if strategy.num_replicas_in_sync > 1:
            LEVEL.set("changed by a replica")
        return found

    token = LEVEL.set("around")
    try:
        assert set(strategy.experimental_local_results(strategy.run(step))) == {"around"}
        assert LEVEL.get() == "around"
    finally:
        LEVEL.reset(token)


def test_thread_settings_are_those_of_the_thread():
    with jax.default_matmul_precision("highest"):
        settings = _jax_internals.thread_settings()
    assert jax.config.jax_default_matmul_precision is None  # type: ignore
    with _jax_internals.with_thread_settings(settings):
        assert jax.config.jax_default_matmul_precision == "highest"  # type: ignore
    assert jax.config.jax_default_matmul_precision is None  # type: ignore


@several_replicas
def test_variable_creators_are_taken_over(strategy: Any, executor: Any):
    made: list[str] = []

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        made.append(kwargs["name"])
        return next_creator(**kwargs)

    with rx.variable_creator_scope(creator):
        executor.run(strategy, lambda: rx.Variable(1.0, name="inside"))
    assert set(made) == {"inside"}
