"""`rx.value_and_grad(..., compile=True)` in replicas: the same numbers as eager Python."""

import gc
import itertools
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, context, mirrored, parts_of, several_replicas
from tests.scripts import run_python

MEAN = rx.VariableAggregation.MEAN
SUM = rx.VariableAggregation.SUM


def test_each_replica_gets_its_own_loss_and_gradient(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable([1.0, 2.0])

    def step(x: Any) -> Any:
        return rx.value_and_grad(lambda: jnp.sum(w * x) ** 2, [w], compile=True)

    x = by_replica(strategy, lambda index: jnp.array([1.0, index]))
    loss, (gradient,) = executor.run(strategy, step, (x,))
    for index, (one, other) in enumerate(
        zip(parts_of(strategy, loss), parts_of(strategy, gradient), strict=True)
    ):
        total = 1 + 2.0 * index
        np.testing.assert_allclose(one, total**2)
        np.testing.assert_allclose(other, [2 * total, 2 * total * index])


@several_replicas
def test_one_program_serves_all_replicas_and_steps(strategy: Any):
    traces = itertools.count()
    with strategy.scope():
        w = rx.Variable(1.0)
        optimizer = rx.Optimizer(optax.sgd(0.1))

    def step(x: Any) -> Any:
        def loss() -> Any:
            next(traces)
            return jnp.sum(w * x)

        value, gradients = rx.value_and_grad(loss, [w], compile=True)
        optimizer.apply_gradients(zip(gradients, [w], strict=True))
        return value

    counted = []
    for number in range(5):
        x = by_replica(strategy, lambda index, number=number: jnp.ones(3) * (index + number))
        strategy.run(step, args=(x,))
        counted.append(next(traces))
    assert np.diff(counted).tolist() == [1] * 4, "traced again after the first step"


@several_replicas
def test_a_constant_that_each_replica_rebinds_in_a_loop(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(2.0)

    def step(x: Any) -> Any:
        results = []
        for scale in (1.0, 3.0):

            def loss() -> Any:
                return scale * w * x  # noqa: B023

            results.append(rx.value_and_grad(loss, [w], compile=True)[0])
        return results

    x = by_replica(strategy, lambda index: jnp.array(index + 1.0))
    first, second = executor.run(strategy, step, (x,))
    own = [2.0 * (index + 1) for index in range(strategy.num_replicas_in_sync)]
    assert parts_of(strategy, first) == own
    assert parts_of(strategy, second) == [3 * value for value in own]


@several_replicas
def test_the_replica_id_inside_the_loss_is_each_replicas_own(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(2.0)

    def step(x: Any) -> Any:
        def loss() -> Any:
            return w * x * (1.0 + context().replica_id_in_sync_group)

        return rx.value_and_grad(loss, [w], compile=True)[0]

    for x in (jnp.array(1.0), jnp.array(3.0)):
        result = parts_of(strategy, executor.run(strategy, step, (x,)))
        assert result == [2.0 * x * (1 + i) for i in range(strategy.num_replicas_in_sync)]


@several_replicas
def test_the_replica_id_read_for_some_shapes_only(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(2.0)

    def step(x: Any) -> Any:
        def loss() -> Any:
            own = context().replica_id_in_sync_group if x.shape[0] > 2 else 0
            return w * jnp.sum(x) * (1.0 + own)

        return rx.value_and_grad(loss, [w], compile=True)[0]

    count = strategy.num_replicas_in_sync
    assert parts_of(strategy, executor.run(strategy, step, (jnp.ones(2),))) == [4.0] * count
    result = parts_of(strategy, executor.run(strategy, step, (jnp.ones(3),)))
    assert result == [6.0 * (1 + index) for index in range(count)]


def test_batches_of_different_sizes(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(2.0)

    def step(x: Any) -> Any:
        return rx.value_and_grad(lambda: jnp.sum(jnp.square(w * x)), [w], compile=True)

    for start in (0, 2):
        x = by_replica(strategy, lambda index, start=start: jnp.ones(start + index) * (index + 1))
        loss, (gradient,) = executor.run(strategy, step, (x,))
        squares = [(start + i) * (i + 1.0) ** 2 for i in range(strategy.num_replicas_in_sync)]
        np.testing.assert_allclose(parts_of(strategy, loss), [4 * s for s in squares])
        np.testing.assert_allclose(parts_of(strategy, gradient), [4 * s for s in squares])


def test_another_variable_for_another_shape():
    w, v = rx.Variable(1.0), rx.Variable(10.0)

    def step(x: Any) -> Any:
        def loss() -> Any:
            return (w if x.shape[0] > 2 else v) * jnp.sum(x)

        value, gradients = rx.value_and_grad(loss, [w, v], compile=True)
        return float(value), *(None if g is None else float(g) for g in gradients)

    assert step(jnp.ones(3)) == (3.0, 3.0, None)
    assert step(jnp.ones(2)) == (20.0, None, 2.0)
    v.assign(20.0)
    assert step(jnp.ones(2)) == (40.0, None, 2.0)


def test_a_moving_average_written_in_the_loss_is_averaged_once(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(1.0)
        average = rx.Variable(0.0, trainable=False, aggregation=MEAN)

    def step(x: Any) -> Any:
        def loss() -> Any:
            average.assign(0.5 * average + 0.5 * jnp.mean(x))
            return jnp.mean(w * x)

        return rx.value_and_grad(loss, [w], compile=True)[0]

    x = by_replica(strategy, lambda index: jnp.full(2, float(index)))
    mean = (strategy.num_replicas_in_sync - 1) / 2
    executor.run(strategy, step, (x,))
    np.testing.assert_allclose(average.numpy(), 0.5 * mean, rtol=1e-6)
    executor.run(strategy, step, (x,))
    np.testing.assert_allclose(average.numpy(), 0.75 * mean, rtol=1e-6)


def test_sync_on_read_sums_written_in_the_loss(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(1.0)
        seen = rx.Variable(0.0, synchronization=rx.VariableSynchronization.ON_READ, aggregation=SUM)
        metric = rx.metrics.Mean()

    def step(x: Any) -> Any:
        def loss() -> Any:
            seen.assign_add(jnp.sum(x))
            seen.assign_add(1.0)
            metric.update_state(x)
            return jnp.sum(w * x)

        return rx.value_and_grad(loss, [w], compile=True)

    count = strategy.num_replicas_in_sync
    x = by_replica(strategy, lambda index: jnp.array([1.0, index]))
    for number in (1, 2, 3):
        executor.run(strategy, step, (x,))
        total = sum(1.0 + index for index in range(count))
        np.testing.assert_allclose(seen.numpy(), number * (total + count))
        np.testing.assert_allclose(metric.result(), total / (2 * count), rtol=1e-6)


def test_a_read_after_a_write_to_ones_own_copy_sees_it(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(3.0)
        own = rx.Variable(1.0, synchronization=rx.VariableSynchronization.ON_READ, aggregation=SUM)

    def step(x: Any) -> Any:
        def loss() -> Any:
            own.assign(x)
            own.assign_add(1.0)
            return w * own

        return rx.value_and_grad(loss, [w], compile=True)[0]

    x = by_replica(strategy, lambda index: jnp.array(float(index)))
    result = parts_of(strategy, executor.run(strategy, step, (x,)))
    assert result == [3.0 * (index + 1) for index in range(strategy.num_replicas_in_sync)]


def test_different_writes_for_different_shapes():
    w, short, long = rx.Variable(1.0), rx.Variable(0.0), rx.Variable(0.0)

    def step(x: Any) -> None:
        def loss() -> Any:
            if x.shape[0] > 2:
                long.assign_add(1.0)
                long.assign_add(1.0)
            else:
                short.assign_add(1.0)
            return w * jnp.sum(x)

        rx.value_and_grad(loss, [w], compile=True)

    for size in (3, 2, 2, 3):
        step(jnp.ones(size))
    assert (short.numpy(), long.numpy()) == (2.0, 4.0)


def test_aux_of_any_structure():
    w = rx.Variable(2.0)
    x = jnp.arange(3.0)
    (loss, aux), (gradient,) = rx.value_and_grad(
        lambda: (jnp.sum(w * x), {"y": w * x, "n": 3}), [w], has_aux=True, compile=True
    )
    assert (loss, gradient) == (6.0, 3.0)
    np.testing.assert_allclose(aux["y"], 2 * x)
    assert aux["n"] == 3


def test_aux_that_holds_a_variable_s_value_before_and_after():
    w, v = rx.Variable(2.0), rx.Variable(1.0)

    def loss() -> Any:
        before = v.read_value()
        v.assign_add(5.0)
        return w * 1.0, (before, v.read_value())

    (_, aux), _ = rx.value_and_grad(loss, [w], has_aux=True, compile=True)
    assert (float(aux[0]), float(aux[1]), float(v.numpy())) == (1.0, 6.0, 6.0)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("inner", [False, True])
def test_second_derivatives(outer: bool, inner: bool):
    w = rx.Variable(3.0)
    for factor in (1.0, 2.0):
        x = jnp.array(factor)

        def first() -> Any:
            return rx.grad(lambda: x * w**3, [w], compile=inner)[0]  # noqa: B023

        value, (gradient,) = rx.value_and_grad(first, [w], compile=outer)
        np.testing.assert_allclose([value, gradient], [27.0 * factor, 18.0 * factor], rtol=1e-6)


def test_variables_that_change_between_calls_are_inputs():
    traces = itertools.count()
    w, frozen = rx.Variable(2.0), rx.Variable(3.0, trainable=False)

    def loss() -> Any:
        next(traces)
        return w * frozen

    for value in (1.0, 2.0, 3.0):
        frozen.assign(value)
        w.assign(10 * value)
        result, gradients = rx.value_and_grad(loss, [w, frozen], compile=True)
        assert (result, gradients[0], gradients[1]) == (10 * value**2, value, None)
    assert next(traces) <= 2


def test_two_models_of_one_class_are_two_programs():
    class Model:
        def __init__(self, start: float):
            self.w = rx.Variable(start)

        def loss(self, x: Any) -> Any:
            return self.w * x

    x = jnp.array(3.0)
    models = [Model(1.0), Model(2.0), Model(3.0)]
    for _ in range(2):
        results = [rx.value_and_grad(lambda m=m: m.loss(x), [m.w], compile=True)[0] for m in models]
        assert results == [3.0, 6.0, 9.0]


def test_a_variable_in_another_strategy_with_the_same_loss():
    def make(count: int) -> Any:
        strategy = mirrored(count)
        with strategy.scope():
            w = rx.Variable(float(count))
        return strategy, w

    def step(w: Any) -> Any:
        return rx.value_and_grad(lambda: w * context().num_replicas_in_sync, [w], compile=True)[0]

    for count in (2, 3, 2):
        strategy, w = make(count)
        assert parts_of(strategy, strategy.run(step, (w,)))[0] == float(count**2)


def test_settings_of_jax_are_respected_by_kept_programs():
    w = rx.Variable(1.0)

    def loss() -> Any:
        assert jax.config.jax_default_matmul_precision in (None, "highest")  # type: ignore
        return w * (2.0 if jax.config.jax_default_matmul_precision == "highest" else 1.0)  # type: ignore

    assert rx.value_and_grad(loss, [w], compile=True)[0] == 1.0
    with jax.default_matmul_precision("highest"):
        assert rx.value_and_grad(loss, [w], compile=True)[0] == 2.0
    assert rx.value_and_grad(loss, [w], compile=True)[0] == 1.0


def test_a_loss_may_hold_what_cannot_be_looked_at():
    class NotInstalled:
        """As the lazy modules of some libraries."""

        def __getattr__(self, name: str) -> Any:
            raise ImportError(f"{name} needs a package that is not there")

    w, lazy = rx.Variable(3.0), NotInstalled()

    def loss() -> Any:
        return w * w if lazy else w

    for _ in range(2):
        assert rx.value_and_grad(loss, [w], compile=True)[0] == 9.0


MEETINGS = {
    "all_reduce": lambda w, m: context().all_reduce("SUM", w * 2.0),
    "all_gather": lambda w, m: jnp.sum(context().all_gather(w.reshape([1]), axis=0)),
    "merge_call": lambda w, m: w * context().merge_call(lambda strategy: 2.0),
    "a read after a write": lambda w, m: w * m.assign_add(1.0),
    "a metric": lambda w, m: w * (m.assign_add(w * 0 + 1.0) is not None),
}


@several_replicas
@pytest.mark.parametrize("meeting", MEETINGS)
def test_a_loss_in_which_replicas_meet_is_that_of_plain_python(meeting: str, strategy: Any):
    with strategy.scope():
        w, m = rx.Variable(3.0), rx.Variable(0.0, aggregation=SUM)

    def step(compile: bool) -> Any:
        m.assign(0.0 * context().replica_id_in_sync_group)
        return rx.value_and_grad(lambda: MEETINGS[meeting](w, m), [w], compile=compile)

    for _ in range(2):
        expected, (gradient,) = strategy.run(step, (False,))
        left = float(m.numpy())
        value, (compiled,) = strategy.run(step, (True,))
        assert parts_of(strategy, value) == parts_of(strategy, expected)
        assert parts_of(strategy, compiled) == parts_of(strategy, gradient)
        assert float(m.numpy()) == left


@pytest.mark.parametrize(
    "meeting",
    [
        "context.merge_call(lambda strategy: None)",
        "context.all_reduce('SUM', jnp.ones(2))",
        "context.all_reduce('SUM', np.ones(2))",
        "metric.result()",
        "context.all_gather(np.ones(2), axis=0)",
    ],
)
def test_a_meeting_inside_a_compiled_loss_never_hangs(meeting: str, tmp_path: Any):
    program = f"""
import faulthandler
import numpy as np, jax.numpy as jnp, replicax as rx

strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    w, metric = rx.Variable(1.0), rx.metrics.Mean()

def step():
    context = rx.distribute.get_replica_context()
    def loss():
        {meeting}
        return w * 1.0
    return rx.value_and_grad(loss, [w], compile=True)

faulthandler.dump_traceback_later(500, exit=True)
try:
    print("returned", strategy.run(step))
except Exception as error:
    print("raised", type(error).__name__)
"""
    (tmp_path / "program.py").write_text(program)
    assert run_python(["program.py"], tmp_path, warm=True).startswith(("returned", "raised"))


def test_live_arrays_do_not_grow(strategy: Any):
    with strategy.scope():
        w = rx.Variable(jnp.ones(3))
        optimizer = rx.Optimizer(optax.adam(0.01))
        metric = rx.metrics.Mean()

    def step(x: Any) -> Any:
        value, gradients = rx.value_and_grad(lambda: jnp.sum(w * x), [w], compile=True)
        optimizer.apply_gradients(zip(gradients, [w], strict=True))
        metric.update_state(value)
        return value

    def live_after(steps: int) -> int:
        for number in range(steps):
            x = by_replica(strategy, lambda index, number=number: jnp.ones(3) * number)
            strategy.reduce("SUM", strategy.run(step, (x,)), axis=None)
        del x
        gc.collect()
        return len(jax.live_arrays())

    before = live_after(5)
    assert live_after(50) <= before


def test_an_update_inside_a_differentiated_function_is_refused():
    w = rx.Variable(1.0)
    optimizer = rx.Optimizer(optax.sgd(0.1))

    def loss() -> Any:
        optimizer.apply_gradients([(1.0, w)])
        return w * w

    for compile in (False, True):
        with pytest.raises(rx.errors.WrongContextError, match="after that function"):
            rx.value_and_grad(loss, [w], compile=compile)
    assert float(w) == 1.0


def test_sync_on_read_variables_read_by_a_compiled_loss():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(2.0)
        total = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")
    context = rx.get_replica_context
    strategy.run(lambda: total.assign(10.0 * (context().replica_id_in_sync_group + 1)))  # type: ignore[union-attr]
    with strategy.scope():
        assert float(rx.value_and_grad(lambda: w * total, [w], compile=True)[0]) == 60.0
    own, first = strategy.run(
        lambda: tuple(
            rx.value_and_grad(lambda v=v: w * v, [w], compile=True)[0]
            for v in (total, total.values[0])
        )
    )
    assert [float(x) for x in own.values] == [20.0, 40.0]
    assert [float(x) for x in first.values] == [20.0, 20.0]


def test_dropped_variables_are_freed_with_their_programs():
    def train() -> Any:
        w = rx.Variable(1.0)
        rx.value_and_grad(lambda: w * w, [w], compile=True)
        return weakref.ref(w)

    seen = train()
    gc.collect()
    assert seen() is None


def test_dropped_objects_are_freed_with_their_programs():
    class Holder:
        def __init__(self) -> None:
            self.table = jnp.ones(3)

    def train() -> Any:
        holder = Holder()
        rx.value_and_grad(lambda: w * jnp.sum(holder.table), [w], compile=True)
        return weakref.ref(holder.table)

    w = rx.Variable(1.0)
    seen = train()
    gc.collect()
    assert seen() is None
