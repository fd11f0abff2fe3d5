"""`CentralStorageStrategy`: variables on one device, replicas on others."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, parts_of

ON_READ = rx.VariableSynchronization.ON_READ


@pytest.fixture
def strategy() -> Any:
    return rx.distribute.experimental.CentralStorageStrategy(
        ["CPU:1", "CPU:2"], parameter_device="CPU:5"
    )


def test_variables_are_on_the_parameter_device(strategy: Any):
    with strategy.scope():
        v = rx.Variable(jnp.ones(2), aggregation="SUM")
    home = {jax.devices()[5]}
    assert v.device.endswith("CPU:5") and v.read_value().devices() == home
    for act in (
        lambda: v.assign(jnp.zeros(2)),
        lambda: v.assign_add(jnp.ones(2)),
        lambda: strategy.run(lambda: v.assign_add(jnp.ones(2))),
        lambda: strategy.extended.update(v, lambda copy: copy.assign_sub(jnp.ones(2))),
    ):
        act()
        assert v.read_value().devices() == home
    np.testing.assert_array_equal(v.numpy(), [2, 2])
    assert strategy.extended.parameter_devices[0].endswith("CPU:5")


def test_replicas_compute_on_their_own_devices(strategy: Any):
    with strategy.scope():
        v = rx.Variable(jnp.ones(2))
    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    result = strategy.run(lambda x: v * x + jnp.ones(2), (x,))
    np.testing.assert_array_equal(parts_of(strategy, result), [[2, 2], [3, 3]])
    assert [part.devices() for part in result.values] == [{jax.devices()[1]}, {jax.devices()[2]}]


def test_slots_are_where_the_variables_are(strategy: Any):
    with strategy.scope():
        v = rx.Variable(jnp.ones(2))
        optimizer = rx.Optimizer(optax.adam(0.1))

    def step() -> None:
        _, gradients = rx.value_and_grad(lambda: jnp.sum(v**2), [v])
        optimizer.apply_gradients(zip(gradients, [v], strict=True))

    strategy.run(step)
    strategy.run(step)
    for each in (v, *optimizer.variables):
        assert each.device.endswith("CPU:5")
        assert each.read_value().devices() == {jax.devices()[5]}


def test_sync_on_read_copies_are_with_the_replicas(strategy: Any):
    with strategy.scope():
        s = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")
    assert [part.device[-5:] for part in s.values] == ["CPU:1", "CPU:2"]
    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    strategy.run(lambda x: s.assign_add(x), (x,))
    assert s.numpy() == 3.0


def test_the_default_parameter_device():
    one = rx.distribute.CentralStorageStrategy(["CPU:3"])
    assert one.extended.parameter_devices[0].endswith("CPU:3")
    two = rx.distribute.CentralStorageStrategy(["CPU:3", "CPU:4"])
    assert two.extended.parameter_devices[0].endswith("CPU:0")


def test_one_device_strategy_places_everything_there():
    strategy = rx.distribute.OneDeviceStrategy("CPU:4")
    home = {jax.devices()[4]}
    with strategy.scope():
        v = rx.Variable(jnp.ones(2), aggregation="SUM")
        optimizer = rx.Optimizer(optax.adam(0.1))

    def step() -> Any:
        loss, gradients = rx.value_and_grad(lambda: jnp.sum(v**2), [v])
        optimizer.apply_gradients(zip(gradients, [v], strict=True))
        v.assign_add(jnp.ones(2))
        return loss

    assert strategy.run(step).devices() == home
    for each in (v, *optimizer.variables):
        assert each.read_value().devices() == home


def test_compiled_on_one_device_with_variables_on_another():
    strategy = rx.distribute.CentralStorageStrategy(["CPU:1"], parameter_device="CPU:0")
    with strategy.scope():
        stored = rx.Variable(1.0, aggregation="SUM")
        counted = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")

    @rx.function
    def step(x):
        def replica_fn(x):
            counted.assign_add(1.0)
            stored.assign_add(x)
            return stored * x

        return strategy.run(replica_fn, args=(x,))

    assert [float(step(2.0)) for _ in range(2)] == [6.0, 10.0]
    assert (float(stored), float(counted.read_value())) == (5.0, 2.0)
    assert stored.device.endswith("CPU:0")
