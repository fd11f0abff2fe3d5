"""What `fn.explain` says, before and after running, and why a function was traced again."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, context, mirrored


@pytest.fixture
def training() -> Any:
    strategy = mirrored(2)
    with strategy.scope():
        weights = [rx.Variable(jnp.ones((4, 4)), name=f"w{index}") for index in range(3)]
        optimizer = rx.Optimizer(optax.sgd(0.1))
        optimizer.build(weights)

    def replica_fn(x: Any) -> Any:
        def loss() -> Any:
            y = x
            for w in weights:
                y = y @ w
            return jnp.sum(y) / 8

        value, gradients = rx.value_and_grad(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return value

    @rx.function
    def train(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_fn, args=(x,)), axis=None)

    train.batch = by_replica(strategy, lambda index: jnp.ones((4, 4)))  # type: ignore[attr-defined]
    train.weights = weights  # type: ignore[attr-defined]
    return train


def test_before_running(training: Any):
    text = str(training.explain(training.batch))
    assert "replicas" in text and "2: CPU:0, CPU:1" in text
    assert "all-reduce, 1 time(s): 4 arrays fused, 196 B per replica" in text, "with the loss"
    assert "w0:0" in text and "updated in place" in text and "peak memory" in text
    assert "traced" in text and "1 time(s)" in text
    assert training.weights[0].numpy()[0, 0] == 1.0, "it must not run"


def test_after_running_there_is_one_trace(training: Any):
    training(training.batch)
    report = training.explain(training.batch)
    assert "traced            1 time(s)" in str(report)
    assert report.report.flops > 0 and report.report.peak_bytes > 0
    assert len(report.report.donated) >= 4  # three weights and the count of updates
    assert "<table" in report._repr_html_()


def test_the_reason_of_the_last_trace():
    step = rx.function(lambda x, flag: x * flag)
    step(jnp.ones(2), True)
    assert "called for the first time" in str(step.explain(jnp.ones(2), True))
    step(jnp.ones(3), True)
    text = str(step.explain(jnp.ones(3), True))
    assert "Argument 0 changed from float32[2] to float32[3]." in text
    step(jnp.ones(3), False)
    assert "Argument 1 changed from True to False." in str(step.explain(jnp.ones(3), False))
    with mirrored(2).scope():
        text = str(step.explain(jnp.ones(3), False))
    assert "It was called under another strategy or in another context." in text
    with jax.default_matmul_precision("highest"):
        assert "settings changed" in str(step.explain(jnp.ones(3), False))


def test_a_second_trace_after_variables_were_made_says_so():
    made: list[rx.Variable] = []

    @rx.function
    def step(x: Any) -> Any:
        if not made:
            made.append(rx.Variable(2.0))
        return x * made[0]

    step(jnp.ones(2))
    step(jnp.ones(2))
    assert "The first call made variables" in str(step.explain(jnp.ones(2)))


def test_what_is_not_one_program_says_why():
    strategy = mirrored(2)
    step = rx.function(lambda x: strategy.gather(x, axis=0))
    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(3)])
    assert "eagerly, because what replicas exchange differs in shape" in str(step.explain(uneven))
    loop = rx.function(lambda batches: [strategy.run(jnp.sum, args=(x,)) for x in batches])
    text = str(loop.explain(iter([])))
    assert "as Python, with each strategy.run compiled" in text


def test_collectives_in_loops_are_counted():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        context = rx.distribute.get_replica_context()
        assert context is not None
        return jax.lax.fori_loop(0, 5, lambda _, y: context.all_reduce("MEAN", y), x)

    step = rx.function(lambda x: strategy.run(replica_fn, args=(x,)))
    (found,) = step.explain(rx.distribute.PerReplica([1.0, 2.0])).collectives
    assert (found.kind, found.times, found.bytes) == ("all-reduce", 5, 4)


def test_a_function_that_is_traced_at_every_call_warns():
    step = rx.function(lambda x, n: x * n)
    with pytest.warns(UserWarning, match="argument 1 changed|Argument 1 changed"):
        for number in range(12):
            step(jnp.ones(2), number)


def test_notebook_displays():
    strategy = mirrored(2)
    with strategy.scope():
        mirrored_variable = rx.Variable([1.0, 2.0], name="m")
        on_read = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")
    value = strategy.run(lambda: jnp.full(2, context().replica_id_in_sync_group))
    whole = strategy.extended.broadcast_to(jnp.ones(2), None)
    for shown in (strategy, mirrored_variable, on_read, value, whole, rx.Variable(1.0)):
        html = shown._repr_html_()
        assert "<table" in html and "CPU:0" in html
    assert "CPU:1" in value._repr_html_() and "[1. 2.]" in mirrored_variable._repr_html_()
    escaped = rx.distribute.PerReplica(["<b>", "c"])._repr_html_()
    assert "<b>c" not in escaped and "&lt;b&gt;" in escaped


def test_variables_on_other_devices_are_updated_elsewhere():
    strategy = rx.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        total = rx.Variable(0.0, name="total", aggregation="SUM")
        rate = rx.Variable(2.0, name="rate")

    @rx.function
    def step():
        strategy.run(lambda: total.assign_add(rate * 1.0))

    text = str(step.explain())
    assert "updated in place   0 variable(s)" in text
    assert "updated elsewhere  1 variable(s): total:0" in text
    assert "only read          1 variable(s): rate:0" in text
