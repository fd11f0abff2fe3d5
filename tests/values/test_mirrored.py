"""`Mirrored`: used as the array that it holds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import parts_of, several_replicas


@pytest.fixture
def value(strategy: Any) -> Any:
    with strategy.scope():
        return strategy.extended.broadcast_to(jnp.array([1.0, 2.0]), None)


def test_arithmetic_and_functions(value: Any):
    np.testing.assert_array_equal(value + 1, [2, 3])
    np.testing.assert_array_equal(1 - value, [0, -1])
    np.testing.assert_array_equal(np.ones(2) + value, [2, 3])
    np.testing.assert_array_equal(jnp.square(value), [1, 4])
    np.testing.assert_array_equal(np.asarray(value), [1, 2])
    np.testing.assert_array_equal(value @ jnp.ones(2), 3)
    assert value.shape == (2,) and value.dtype == jnp.float32
    assert [float(item) for item in value] == [1.0, 2.0]
    assert float(value.sum()) == 3.0


@several_replicas
def test_a_replica_uses_its_own_copy(value: Any, strategy: Any, executor: Any):
    def step(passed: Any) -> Any:
        return passed + 1, value + 1  # as an argument, and from the closure

    for result in executor.run(strategy, step, (value,)):
        for index, part in enumerate(strategy.experimental_local_results(result)):
            np.testing.assert_array_equal(part, [2, 3])
            assert part.devices() == {strategy.extended._replica_devices[index]}


@several_replicas
def test_mean_gives_it_back_and_sum_is_refused(value: Any, strategy: Any):
    np.testing.assert_array_equal(strategy.reduce("MEAN", value, axis=None), [1, 2])
    with pytest.raises(ValueError, match="Mirrored"):
        strategy.reduce("SUM", value, axis=None)


@several_replicas
def test_it_is_a_pytree(value: Any, strategy: Any):
    doubled = jax.tree.map(lambda x: 2 * x, value)
    assert isinstance(doubled, rx.distribute.Mirrored)
    for part in parts_of(strategy, doubled):
        np.testing.assert_array_equal(part, [2, 4])


@several_replicas
def test_printing(value: Any):
    assert repr(value).startswith("Mirrored:{\n  0: Array([1., 2.], dtype=float32),\n  1: Array")
