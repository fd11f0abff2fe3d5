"""Ctrl-C, signal handlers, callbacks, failures and threads, in the middle of compiled calls."""

import copy
import gc
import inspect
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.context import thread_state
from replicax._src.devices import replica_mesh
from replicax._src.variable._program_state import ProgramState
from tests.replicas import mirrored, parts_of


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_loses_no_variable(count: int):
    strategy = mirrored(count)
    with strategy.scope():
        vs = [rx.Variable(jnp.zeros(50_000), aggregation="MEAN") for _ in range(4)]

    def replica_fn(x: Any) -> None:
        for v in vs:
            v.assign_add(x * jnp.ones(50_000))

    step = rx.function(lambda x: strategy.run(replica_fn, (x,)))
    x = jnp.float32(1.0)
    step(x)

    def interrupt(*_: Any) -> None:
        # Once more if this one comes where Python cannot raise it, as in a finalizer.
        signal.setitimer(signal.ITIMER_REAL, 20.0)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for round in range(12):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.003 + 0.0007 * round)
                while True:
                    step(x)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert thread_state.world is None
            values = [float(v.numpy()[0]) for v in vs]
            assert len(set(values)) == 1 and values[0] >= 1, values
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    total = float(vs[0].numpy()[0])
    step(x)
    assert float(vs[0].numpy()[0]) == total + 1


def test_a_signal_handler_that_reads_does_not_harm_the_loop():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(jnp.zeros(1000), aggregation="MEAN")
    step = rx.function(lambda x: strategy.run(lambda x: v.assign_add(x * jnp.ones(1000)), (x,)))
    x = jnp.float32(1.0)
    step(x)
    seen: list[Any] = []
    is_over = False

    def read(*_: Any) -> None:
        try:
            seen.append(float(v.numpy()[0]))
        except RuntimeError as error:
            seen.append(str(error))
        # Not at fixed times: where a read takes longer than that, handlers would be interrupted by
        # handlers until the stack is full.
        if not is_over:
            signal.setitimer(signal.ITIMER_REAL, 0.002)

    before = signal.signal(signal.SIGALRM, read)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        for _ in range(300):
            step(x)
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert v.numpy()[0] == 301.0
    told = [each for each in seen if isinstance(each, str)]
    assert all("signal handler" in each or "traces and keeps" in each for each in told)


def test_a_signal_handler_may_read_what_is_being_read(monkeypatch: pytest.MonkeyPatch):
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(jnp.zeros(3), aggregation="MEAN")
    rx.function(lambda: strategy.run(lambda: v.assign_add(jnp.ones(3))))()
    value, seen = ProgramState.value, []

    def interrupted(state: ProgramState, index: int) -> Any:
        if not seen:
            seen.append("the handler reads")
            seen.append(float(v.numpy()[0]))
        return value(state, index)

    monkeypatch.setattr(ProgramState, "value", interrupted)
    assert float(v.numpy()[0]) == 1.0 and seen[1:] == [1.0]
    assert float(v.numpy()[0]) == 1.0


def test_a_signal_handler_takes_nothing_from_a_call_that_begins():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(jnp.zeros(3), aggregation="MEAN")
    step = rx.function(lambda: strategy.run(lambda: v.assign_add(jnp.ones(3))))
    step()

    class Interrupting(set[int]):
        def __iter__(self) -> Iterator[int]:
            with pytest.raises(RuntimeError, match="signal handler"):
                v.numpy()
            return super().__iter__()

    stored: Any = v
    stored._stored._state._outside = Interrupting()
    step()
    assert float(v.numpy()[0]) == 2.0


def test_callbacks_may_read_variables():
    strategy = mirrored(2)
    with strategy.scope():
        v, w = rx.Variable(jnp.zeros(3), aggregation="MEAN"), rx.Variable(1.0)
    seen: list[float] = []

    def callback(x: Any) -> None:
        time.sleep(0.002)
        seen.append(float(w.numpy()))

    def replica_fn(x: Any) -> None:
        v.assign_add(jnp.ones(3) * x)
        jax.debug.callback(callback, x)

    step = rx.function(lambda x: strategy.run(replica_fn, (x,)))
    for _ in range(30):
        step(jnp.float32(1.0))
    jax.effects_barrier()
    assert len(seen) == 60 and v.numpy()[0] == 30.0


def test_a_program_that_failed_is_not_told_by_another():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(0.0, aggregation="MEAN")
    good = rx.function(lambda x: strategy.run(lambda x: w.assign_add(x).read_value(), (x,)))

    class Failed:
        def block_until_ready(self) -> None:
            raise ValueError("of another function")

    x = jnp.float32(1.0)
    good(x)
    replica_mesh(strategy.extended._replica_devices)._mark = Failed()  # type: ignore[assignment]
    for _ in range(20):
        good(x)
    assert w.numpy() == 21.0


@pytest.mark.parametrize("count", [1, 2])
def test_an_eager_optimizer_beside_a_compiled_function(count: int):
    strategy = mirrored(count)
    with strategy.scope():
        v = rx.Variable(jnp.zeros(100))
        optimizer = rx.Optimizer(optax.sgd(1.0))
        optimizer.build([v])
    with strategy.scope():
        optimizer.apply_gradients([(jnp.zeros(100), v)])
    step = rx.function(lambda: (v.assign_add(jnp.ones(100)), None)[1])
    step()
    failed: list[BaseException] = []

    def train() -> None:
        try:
            for _ in range(60):
                with strategy.scope():
                    optimizer.apply_gradients([(-jnp.ones(100), v)])
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    for _ in range(60):
        step()
    thread.join()
    assert not failed, failed
    assert v.numpy()[0] == 121.0


def test_an_array_that_the_user_deleted():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(jnp.ones(3), aggregation="MEAN")
    step = rx.function(lambda: strategy.run(lambda: v.assign_add(jnp.ones(3)).read_value()))
    step()
    v.read_value().delete()
    with pytest.raises(RuntimeError, match="was deleted.*Assign the variable again"):
        step()
    with strategy.scope():
        v.assign(jnp.ones(3))
    assert parts_of(strategy, step())[0].tolist() == [2.0] * 3


def test_a_variable_that_was_replaced_is_noticed_by_steps_and_explain():
    class Holder:
        v = rx.Variable(1.0)

    holder = Holder()
    holder.v = rx.Variable(1.0)
    step = rx.function(lambda x: holder.v.assign_add(x).read_value())
    x = jnp.float32(1.0)
    step(x)
    for use in (lambda: step.steps([x] * 2), lambda: step.explain(x)):
        holder.v = rx.Variable(10.0)
        gc.collect()
        use()
    assert holder.v.numpy() == 10.0


def test_steps_that_run_eagerly_in_between():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")

    @rx.function
    def step(x: Any) -> Any:
        strategy.run(lambda x: v.assign_add(jnp.sum(x)), (x,))
        return v, np.ones(2), 2j, jnp.zeros((0, 2)), "text"

    even = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)])
    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    for items in ([even, uneven, even, even], [uneven, even, even, even], [uneven] * 4):
        before = float(v.numpy())
        sums, ones, numbers, nothing, text = step.steps(items)
        sizes = [sum(part.size for part in item.values) for item in items]
        assert sums.tolist() == (before + np.cumsum(sizes)).tolist()
        shapes = (ones.shape, numbers.shape, nothing.shape, text)
        assert shapes == ((4, 2), (4,), (4, 0, 2), "text")
    kept = step(uneven)[0]
    step(even)
    assert float(kept) == float(v.numpy()) - 4.0


def test_results_of_different_shapes_cannot_be_stacked():
    with pytest.raises(ValueError, match="The steps were made.*step by step"):
        rx.function(lambda x: x * 2).steps([jnp.ones(2), jnp.ones(3)])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.complex64])
def test_the_first_replicas_value_arrives_bit_by_bit(dtype: Any):
    strategy = mirrored(2)
    values = jnp.array([-0.0, np.nan, -np.inf, 1e-42], dtype)
    with strategy.scope():
        v = rx.Variable(jnp.ones(4, dtype), aggregation="ONLY_FIRST_REPLICA")
    x = rx.distribute.PerReplica([values, jnp.ones(4, dtype)])
    rx.function(lambda x: strategy.run(lambda x: v.assign(x), (x,)))(x)
    assert v.numpy().tobytes() == np.asarray(values).tobytes()


def test_compiled_methods_look_like_methods():
    class Model:
        @rx.function
        def step(self, x: Any, scale: float = 2.0) -> Any:
            """Scales."""
            return x * scale

    model = Model()
    assert model.step(jnp.float32(3.0)) == 6.0
    assert str(inspect.signature(model.step)) == "(x: Any, scale: float = 2.0) -> Any"
    assert (model.step.__name__, model.step.__doc__) == ("step", "Scales.")
    other = copy.deepcopy(model)
    assert other.step(jnp.float32(3.0)) == 6.0


def test_an_object_that_holds_a_compiled_function_can_be_copied():
    class Model:
        def __init__(self) -> None:
            self.scale = 2.0
            self.step = rx.function(self._step)

        def _step(self, x: Any) -> Any:
            return x * self.scale

    model = Model()
    assert model.step(jnp.float32(3.0)) == 6.0
    other = copy.deepcopy(model)
    other.scale = 5.0
    assert (other.step(jnp.float32(3.0)), model.step(jnp.float32(3.0))) == (15.0, 6.0)
