"""Functions on planned devices: compiled, not run, and what is told of them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx

ROWS, WIDTH = 8, 512


def training(strategy, layers: int = 2):
    """A step of a small network, with what belongs to it."""
    with strategy.scope():
        keys = jax.random.split(jax.random.key(0), layers)
        kernels = [
            rx.Variable(jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH, name=f"kernel_{i}")
            for i, key in enumerate(keys)
        ]
        optimizer = rx.Optimizer(optax.adam(1e-3))
        optimizer.build(kernels)
        mean = rx.metrics.Mean("loss")

    def replica_step(x):
        def loss_fn():
            hidden = x
            for kernel in kernels:
                hidden = jnp.tanh(hidden @ kernel)
            return jnp.sum(hidden**2) / (ROWS * strategy.num_replicas_in_sync)

        loss, gradients = rx.value_and_grad(loss_fn, kernels)
        optimizer.apply_gradients(zip(gradients, kernels, strict=True))
        mean.update_state(loss)
        return loss

    @rx.function
    def step(x):
        return strategy.reduce("SUM", strategy.run(replica_step, args=(x,)), axis=None)

    return step, kernels, mean


def batches(strategy, count: int = 1):
    rows = np.zeros((count * ROWS * strategy.num_replicas_in_sync, WIDTH), np.float32)
    dataset = rx.data.Dataset.from_tensor_slices(rows)
    dataset = dataset.batch(ROWS * strategy.num_replicas_in_sync)
    return strategy.experimental_distribute_dataset(dataset)


def mirrored(devices, layout: str = "nothing", **more):
    state = rx.distribute.StateLayout(over_replicas=layout)
    return rx.distribute.MirroredStrategy(devices, state_layout=state, **more)


def test_what_a_function_makes_has_no_values_either():
    """The slots of the optimizer are made in the first call, and no machine has room for them."""
    strategy = mirrored(rx.config.planned_devices("cpu:4"))
    with strategy.scope():
        kernel = rx.Variable(jnp.zeros((2**20, 2**20)))
        optimizer = rx.Optimizer(optax.adam(1e-3))

    def replica_step(x):
        loss, gradient = rx.value_and_grad(lambda: jnp.sum(x @ kernel), kernel)
        optimizer.apply_gradients([(gradient, kernel)])
        return loss

    x = jnp.zeros((1, 2**20))
    plan = rx.function(lambda x: strategy.run(replica_step, args=(x,))).explain(x).plan
    assert plan is not None and plan.memory["optimizer"] == 2 * plan.memory["parameters"] == 2**43


@pytest.mark.parametrize("layout", ["nothing", "optimizer", "everything"])
def test_the_plan_is_what_the_real_program_says(layout: str):
    planned = mirrored(rx.config.planned_devices("cpu:4"), layout)
    real = mirrored([f"CPU:{i}" for i in range(4)], layout)
    step, kernels, _ = training(planned)
    (batch,) = batches(planned)
    assert step(batch).shape == ()
    plan = step.explain(batch).plan
    truth, their_kernels, _ = training(real)
    (their_batch,) = batches(real)
    truth(their_batch)
    report = truth.explain(their_batch).report
    assert report is not None
    assert plan.peak == report.peak_bytes and plan.flops == report.flops
    parameters = sum(kernel.size * 4 for kernel in kernels)
    share = 4 if layout == "everything" else 1
    assert plan.memory["parameters"] == parameters // share
    assert plan.memory["optimizer"] == 2 * parameters // (1 if layout == "nothing" else 4)
    assert plan.memory["input"] == ROWS * WIDTH * 4
    kinds = {each.kind for each in plan.exchanges}
    assert kinds >= ({"all-reduce"} if layout == "nothing" else {"reduce-scatter", "all-gather"})
    assert all(each.links == "within a host" and each.group == 4 for each in plan.exchanges)
    # What runs here can be looked at there: the same program.
    if layout == "everything":
        there = truth.explain(their_batch, on="cpu:4").plan
        assert (there.peak, there.memory) == (plan.peak, plan.memory)
        assert np.isfinite(float(truth(their_batch))), "and goes on here"
        assert their_kernels[0].numpy().shape == (WIDTH, WIDTH)


def test_a_loop_goes_on_and_values_cannot_be_read():
    strategy = mirrored(rx.config.planned_devices("cpu:2x2"))
    step, kernels, mean = training(strategy, 1)
    losses = [step(batch) for batch in batches(strategy, 3)]
    assert [loss.shape for loss in losses] == [()] * 3
    assert ((losses[0] + losses[1]) / 2).shape == ()
    for read in (lambda: float(losses[0]), kernels[0].numpy, lambda: float(mean.result())):
        with pytest.raises(rx.errors.PlannedValueError):
            read()
    report = step.explain(next(iter(batches(strategy)))).plan
    assert report.hosts == 2 and report.exchanges[0].links == "between hosts"
    assert report.fits is None and "not known" in str(report)
    assert json.loads(report.to_json())["replicas"] == 4
    assert "<table" in report._repr_html_() and "test_planned_program.py" in str(report)


def test_what_does_not_fit_says_by_how_much():
    strategy = mirrored(rx.config.planned_devices("cpu:2", memory=3_000_000))
    step, *_ = training(strategy, 1)
    plan = step.explain(next(iter(batches(strategy)))).plan
    assert plan.fits is False and "NO, " in plan.verdict() and "too much" in str(plan)


def test_seventy_billion_parameters_take_no_memory():
    strategy = mirrored(rx.config.planned_devices("cpu:8"), "everything")
    with strategy.scope():
        kernels = rx.variables(
            {str(i): jnp.zeros((80, 8192, 107_000), jnp.bfloat16) for i in range(1)}
        )
        optimizer = rx.Optimizer(optax.adam(1e-3))
        optimizer.build(list(kernels.values()))
    assert kernels["0"].size > 70e9
    assert kernels["0"].layout.replica_dim == 0


def test_runs_without_a_function_are_compiled_and_python_is_refused():
    strategy = mirrored(rx.config.planned_devices("cpu:2"))
    with strategy.scope():
        total = rx.Variable(0.0, aggregation="SUM")
    values = rx.distribute.PerReplica([jnp.ones(3), jnp.ones(3)])
    result = strategy.run(lambda x: total.assign_add(x.sum()).value(), args=(values,))
    assert strategy.experimental_local_results(result)[0].shape == ()
    uneven = rx.distribute.PerReplica([jnp.ones(3), jnp.ones((2, 2))])
    with pytest.raises(rx.errors.PlannedValueError, match="plain Python"):
        strategy.run(lambda x: x, args=(uneven,))


def test_one_device_and_logical_devices_can_be_planned():
    one = rx.distribute.OneDeviceStrategy(rx.config.planned_devices("cpu:2")[1])
    step, *_ = training(one, 1)
    plan = step.explain(np.zeros((ROWS, WIDTH), np.float32)).plan
    assert plan.devices == 1 and not plan.exchanges
    pairs = mirrored(rx.config.planned_devices("cpu:4"), logical_devices_per_replica=2)
    with pairs.scope():
        kernel = rx.Variable(jnp.zeros((WIDTH, WIDTH)), layout=[1, 2])
    plan = (
        rx.function(lambda x: pairs.run(lambda x: (x @ kernel).sum(), args=(x,)))
        .explain(next(iter(batches(pairs))))
        .plan
    )
    assert (plan.replicas, plan.logical_devices) == (2, 2)
    assert plan.memory["parameters"] == WIDTH * WIDTH * 4 // 2


def test_a_function_without_a_strategy_is_on_no_other_devices():
    with pytest.raises(ValueError, match="uses no strategy"):
        rx.function(jnp.sin).explain(jnp.ones(3), on="cpu:2")
    with pytest.raises(ValueError, match="no plan of"):
        _ = rx.function(jnp.sin).explain(jnp.ones(3)).plan
    with pytest.raises(TypeError, match="'v5e:16x16'"):
        rx.function(jnp.sin).explain(jnp.ones(3), on=8)  # type: ignore[arg-type]


def test_a_batch_that_leaves_replicas_with_fewer_rows_is_planned():
    strategy = rx.distribute.MirroredStrategy(rx.config.planned_devices("cpu:4"))
    total = rx.function(
        lambda x: strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)
    )
    data = rx.data.Dataset.from_tensor_slices(np.zeros((30, 3), np.float32)).batch(16)
    for batch in strategy.experimental_distribute_dataset(data):  # 4 each, then 4, 4, 4 and 2
        assert total(batch).shape == ()
        assert total.explain(batch).plan.replicas == 4
