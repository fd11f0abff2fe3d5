"""Ways to call a compiled function: methods, nesting, strategies, threads, errors, inside JAX."""

import dataclasses
import functools
import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.context import thread_state
from replicax.tpu.experimental import DeviceAssignment
from tests.replicas import by_replica, context, mirrored, parts_of

ON_READ = rx.VariableSynchronization.ON_READ


# ------------------------------------------------------------------ methods, nesting, no strategy


def test_two_instances_do_not_share_state():
    strategy = mirrored(2)

    class Counter:
        def __init__(self, start: float):
            self.factor = start
            with strategy.scope():
                self.v = rx.Variable(start, aggregation="SUM")

        @rx.function
        def add(self, x: Any) -> Any:
            strategy.run(lambda x: self.v.assign_add(x * self.factor), (x,))
            return self.v.read_value()

        @rx.function
        def replica_add(self, x: Any) -> Any:
            self.v.assign_add(x)
            return self.v * self.factor

    one, two = Counter(1.0), Counter(10.0)
    x = jnp.float32(1.0)
    assert [float(c.add(x)) for c in (one, two, one, two)] == [3.0, 30.0, 5.0, 50.0]
    assert parts_of(strategy, strategy.run(one.replica_add, (x,))) == [7.0, 7.0]
    assert parts_of(strategy, strategy.run(two.replica_add, (x,))) == [520.0, 520.0]
    assert float(Counter.add(one, x)) == 9.0  # through the class
    assert one.add == one.add and one.add != two.add


def test_static_and_class_methods():
    class Maths:
        factor = 3.0

        @staticmethod
        @rx.function
        def double(x: Any) -> Any:
            return x * 2

        @rx.function
        @staticmethod
        def triple(x: Any) -> Any:
            return x * 3

        @classmethod
        @rx.function
        def scaled(cls, x: Any) -> Any:
            return x * cls.factor

    maths: Any = Maths  # checkers take compiled static and class methods for methods
    assert float(maths.double(jnp.float32(1.0))) == 2.0
    assert float(maths().double(jnp.float32(1.0))) == 2.0
    assert float(maths.triple(jnp.float32(1.0))) == 3.0
    assert float(maths().triple(jnp.float32(1.0))) == 3.0
    assert float(maths.scaled(jnp.float32(1.0))) == 3.0


def test_objects_that_compare_by_value_as_self():
    @dataclasses.dataclass
    class Model:
        scale: float

        @rx.function
        def apply(self, x: Any) -> Any:
            return x * self.scale

    class Slotted:
        __slots__ = ("scale",)

        def __init__(self, scale: float):
            self.scale = scale

        @rx.function
        def apply(self, x: Any) -> Any:
            return x * self.scale

    for kind in (Model, Slotted):
        a, b = kind(2.0), kind(3.0)
        assert [float(m.apply(jnp.float32(1.0))) for m in (a, b, a)] == [2.0, 3.0, 2.0]


def test_functions_nested_in_functions():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")
    traces: list[str] = []

    @rx.function
    def inner(x: Any) -> Any:
        traces.append("inner")
        v.assign_add(x)
        return x * 2

    @rx.function
    def middle(x: Any) -> Any:
        traces.append("middle")
        y = strategy.run(inner, (x,))
        return strategy.run(inner, (y,))

    @rx.function
    def outer(x: Any) -> Any:
        traces.append("outer")
        return strategy.reduce("SUM", middle(x), axis=None)

    x = rx.distribute.PerReplica([1.0, 2.0])
    assert float(outer(x)) == 12.0
    assert v.numpy() == 9.0
    assert float(outer(x)) == 12.0
    assert v.numpy() == 18.0
    assert traces == ["outer", "middle", "inner", "inner"]
    assert parts_of(strategy, middle(x)) == [4.0, 8.0]
    assert parts_of(strategy, strategy.run(inner, (x,))) == [2.0, 4.0]
    assert v.numpy() == 30.0


def test_a_compiled_function_called_by_eager_replicas(strategy: Any):
    with strategy.scope():
        w = rx.Variable(2.0)
        own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")

    @rx.function
    def part(x: Any) -> Any:
        own.assign_add(x)
        return x * w, context().replica_id_in_sync_group

    def replica_fn(x: Any) -> Any:
        y, number = part(x)
        return context().all_reduce("SUM", y), number

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    count = strategy.num_replicas_in_sync
    total = sum(range(1, count + 1))
    for calls in (1, 2):
        y, number = strategy.run(replica_fn, (x,))
        assert parts_of(strategy, y) == [2.0 * total] * count
        assert parts_of(strategy, number) == list(range(count))
        assert own.numpy() == calls * total


def test_collectives_in_a_function_that_eager_replicas_call():
    strategy = mirrored(2)
    part = rx.function(lambda x: context().all_reduce("SUM", x) * 2)
    for _ in range(2):
        result = strategy.run(lambda x: part(x), (rx.distribute.PerReplica([1.0, 2.0]),))
        assert parts_of(strategy, result) == [6.0, 6.0]
    assert thread_state.world is None


def test_no_strategy_at_all():
    w = rx.Variable(jnp.ones(2))
    optimizer = rx.Optimizer(optax.adam(0.1))
    traces: list[int] = []

    @rx.function
    def step(x: Any) -> Any:
        traces.append(1)
        assert not rx.distribute.has_strategy()
        loss, gradients = rx.value_and_grad(lambda: jnp.sum(w * x), [w])
        optimizer.apply_gradients(zip(gradients, [w]))
        return loss

    losses = [float(step(jnp.ones(2))) for _ in range(3)]
    np.testing.assert_allclose(losses, [2.0, 1.8, 1.6], rtol=1e-5)
    assert len(traces) == 2  # the first made the optimizer's state


def test_inside_a_scope_and_outside():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    step = rx.function(lambda x: strategy.run(lambda x: v.assign_add(x).read_value(), (x,)))
    assert parts_of(strategy, step(jnp.float32(1.0))) == [3.0, 3.0]
    with strategy.scope():
        assert parts_of(strategy, step(jnp.float32(1.0))) == [5.0, 5.0]
        read = rx.function(lambda: v.read_value())
        assert float(read()) == 5.0
    assert float(read()) == 5.0


def test_one_function_under_several_strategies():
    function = rx.function(lambda x: context().all_reduce("SUM", x))
    for count in (1, 2, 3, 2):
        strategy = mirrored(count)
        result = strategy.run(function, (jnp.float32(1.0),))
        assert parts_of(strategy, result) == [count] * count


def test_many_strategies_that_come_and_go():
    # A strategy that is gone must not be taken for the next one at the same address.
    @rx.function
    def number_of_replicas(x: Any) -> Any:
        return x * rx.distribute.get_strategy().num_replicas_in_sync

    for count in (2, 3, 1, 2, 3, 1, 2, 3, 1):
        with mirrored(count).scope():
            assert float(number_of_replicas(jnp.float32(1.0))) == count
        gc.collect()


def test_many_strategies_that_come_and_go_and_run_one_function():
    number_of_replicas = rx.function(lambda x: x * context().num_replicas_in_sync)
    for count in (2, 3, 1, 2, 3, 1, 2, 3, 1):
        strategy = mirrored(count)
        result = strategy.run(number_of_replicas, (jnp.float32(1.0),))
        assert parts_of(strategy, result) == [count] * count
        del strategy, result
        gc.collect()


def test_partials_callables_and_builtins():
    class Callable:
        def __call__(self, x: Any) -> Any:
            return x * 4

    x = jnp.float32(2.0)
    assert float(rx.function(functools.partial(lambda a, b: a * b, 3.0))(x)) == 6.0
    assert float(rx.function(Callable())(x)) == 8.0
    assert float(rx.function(jnp.sin)(x)) == float(jnp.sin(x))
    assert float(rx.function(jax.jit(lambda x: x + 1))(x)) == 3.0
    assert rx.function(rx.function(abs)).__class__ is rx.function(abs).__class__


def test_what_cannot_be_compiled_is_refused_at_once():
    def generator(x: Any) -> Iterator[Any]:
        yield x

    async def coroutine(x: Any) -> Any:
        return x

    for bad in (generator, coroutine, 3, "text"):
        with pytest.raises(TypeError):
            rx.function(bad)  # type: ignore[arg-type]


# ------------------------------------------------------------------ threads


def test_threads_call_one_function():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")
    traces: list[int] = []

    @rx.function
    def step(x: Any) -> Any:
        traces.append(1)
        strategy.run(lambda x: v.assign_add(x), (x,))
        return x * 2

    errors: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            barrier.wait()
            for _ in range(10):
                assert float(step(jnp.float32(number))) == 2 * number
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert v.numpy() == 2 * 10 * (0 + 1 + 2 + 3)
    assert len(traces) == 1


def test_threads_have_one_function_for_an_object():
    class Model:
        @rx.function
        def step(self, x: Any) -> Any:
            return x

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            model, together = Model(), threading.Barrier(8)
            found: list[Any] = []

            def bind(model: Any = model, together: Any = together, found: Any = found) -> None:
                together.wait(60)
                found.append(model.step)

            threads = [threading.Thread(target=bind) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(set(found)) == 1
    finally:
        sys.setswitchinterval(before)


def test_threads_make_the_variables_once():
    made: list[Any] = []

    @rx.function
    def step(x: Any) -> Any:
        if not made:
            made.append(rx.Variable(0.0))
        return made[0].assign_add(x).read_value()

    errors: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        try:
            barrier.wait()
            for _ in range(5):
                step(jnp.float32(1.0))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(made) == 1
    assert made[0].numpy() == 20.0


# ------------------------------------------------------------------ errors leave nothing behind


def clean() -> bool:
    state = thread_state
    return state.world is None and not state.frames and not state.creators


@pytest.mark.parametrize("where", ["cross", "replica", "merge", "update", "loss", "scan", "late"])
def test_an_exception_leaves_no_state_behind(where: str):
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    fail = [True]

    def boom(place: str) -> Any:
        if place == where and fail[0]:
            raise ZeroDivisionError(place)
        return 0.0

    @rx.function
    def step(x: Any) -> Any:
        boom("cross")

        def replica_fn(x: Any) -> Any:
            boom("replica")
            v.assign_add(x)

            def merge(s: Any, x: Any) -> Any:
                boom("merge")
                total = s.extended.reduce_to("SUM", x, v)
                s.extended.update(v, lambda c, t: (boom("update"), c.assign_sub(t))[1], (total,))

            context().merge_call(merge, (x,))
            loss, _ = rx.value_and_grad(lambda: v * x + boom("loss"), [v])
            jax.lax.scan(lambda c, _: (c + boom("scan"), None), 0.0, None, length=2)
            return loss

        result = strategy.run(replica_fn, (x,))
        boom("late")
        return result

    x = rx.distribute.PerReplica([2.0, 2.0])
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match=where) as caught:
            step(x)
        assert clean()
        assert any("step" in note for note in caught.value.__notes__)
        assert v.numpy() == 1.0
    fail[0] = False
    for _ in range(2):
        assert parts_of(strategy, step(x)) == [2.0, 2.0]
    assert v.numpy() == 1.0


def test_an_exception_caught_inside_the_function():
    strategy = mirrored(2)

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            raise ZeroDivisionError("on purpose")

        try:
            strategy.run(replica_fn, (x,))
        except Exception:
            return strategy.run(lambda x: x * 2, (x,))

    assert parts_of(strategy, step(jnp.float32(1.0))) == [2.0, 2.0]
    assert clean()


def test_a_value_kept_from_a_trace_is_explained():
    kept: list[Any] = []

    @rx.function
    def leak(x: Any) -> Any:
        kept.append(x * 2)
        return x

    leak(jnp.float32(1.0))
    with pytest.raises(Exception, match=r"[Rr]eturn"):
        rx.function(lambda x: x + 1)(kept[0])
    with pytest.raises(jax.errors.UnexpectedTracerError) as caught:
        rx.function(lambda x: x + kept[0])(jnp.float32(1.0))
    assert any("Return it" in note for note in caught.value.__notes__)
    assert clean()


# ------------------------------------------------------------------ JAX around it


def test_jax_transformations_around_a_function_without_state():
    step = rx.function(lambda x: jnp.sum(x**2))
    np.testing.assert_allclose(jax.grad(step)(jnp.arange(3.0)), [0.0, 2.0, 4.0])
    assert float(jax.jit(step)(jnp.arange(3.0))) == 5.0
    np.testing.assert_allclose(jax.vmap(step)(jnp.ones((2, 3))), [3.0, 3.0])
    assert float(step(jnp.arange(3.0))) == 5.0


def test_jax_grad_around_a_function_with_variables():
    w = rx.Variable(3.0)
    step = rx.function(lambda x: x * w)
    assert float(jax.grad(step)(jnp.float32(1.0))) == 3.0
    w.assign(5.0)
    assert float(jax.grad(step)(jnp.float32(1.0))) == 5.0
    assert float(rx.grad(lambda: step(jnp.float32(2.0)), [w])[0]) == 2.0


@pytest.mark.parametrize("kind", ["default", "one device", "mirrored", "TPU"])
def test_jax_transformations_around_run_of_a_compiled_function(kind: str):
    strategy: Any = {
        "default": rx.distribute.get_strategy,
        "one device": lambda: rx.distribute.OneDeviceStrategy("CPU:1"),
        "mirrored": lambda: mirrored(1),
        "TPU": lambda: rx.distribute.TPUStrategy(
            experimental_device_assignment=DeviceAssignment.build(
                rx.tpu.experimental.initialize_tpu_system(), num_replicas=1
            )
        ),
    }[kind]()
    with strategy.scope():
        w = rx.Variable(3.0)

    def square() -> Any:
        return w * w

    def times(x: Any) -> Any:
        return w * x

    for read, multiply in ((square, times), (rx.function(square), rx.function(times))):
        run: Any = functools.partial(strategy.run, read)

        def apply(x: Any, multiply: Any = multiply) -> Any:
            return strategy.run(multiply, (x,))

        for _ in range(2):
            loss, gradients = rx.value_and_grad(run, [w])
            assert (float(loss), float(gradients[0])) == (9.0, 6.0)
        assert float(jax.grad(apply)(2.0)) == 3.0
        np.testing.assert_allclose(jax.vmap(apply)(jnp.arange(3.0)), [0.0, 3.0, 6.0])
        assert float(run()) == 9.0


def test_a_loss_around_replicas_is_refused_compiled_or_not():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(3.0)
    for fn in (lambda: w * w, rx.function(lambda: w * w)):
        with pytest.raises(RuntimeError, match="rx.value_and_grad in the replica function"):
            rx.value_and_grad(lambda fn=fn: strategy.reduce("SUM", strategy.run(fn), None), [w])
    assert clean()


def test_the_default_device_of_each_call():
    step = rx.function(lambda x: x + 1)
    for number in (1, 2, 1):
        with jax.default_device(jax.devices()[number]):
            assert step(np.float32(1)).devices() == {jax.devices()[number]}
    assert step(np.float32(1)).devices() == {jax.devices()[0]}


def test_jax_jit_around_a_function_that_reads_or_writes_is_refused():
    w = rx.Variable(3.0)
    with pytest.raises(RuntimeError, match="read inside a function that JAX traces"):
        jax.jit(rx.function(lambda x: x * w))(jnp.float32(1.0))
    with pytest.raises(RuntimeError, match="rx.function in place of jax.jit"):
        jax.jit(rx.function(lambda x: w.assign(x).read_value()))(jnp.float32(1.0))
    assert w.numpy() == 3.0
    assert clean()


def test_settings_of_jax_are_seen():
    step = rx.function(lambda x: x * jnp.asarray(1 / 3))
    assert step(np.float64(1.0)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert step(np.float64(1.0)).dtype == jnp.float64
    assert step(np.float64(1.0)).dtype == jnp.float32
