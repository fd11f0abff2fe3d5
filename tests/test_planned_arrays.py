"""Arrays without values: what can be done with them, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src._planned_arrays import PlannedArray, current_shapes_only, shapes_only
from replicax._src._planned_arrays import reading_nan as reading_nan_of

PLANNED = rx.config.planned_devices("cpu:2")


@pytest.fixture
def array() -> PlannedArray:
    place = jax.sharding.SingleDeviceSharding(PLANNED[0])
    return PlannedArray.of_shape((3, 4), jnp.float32, place)


def test_operators_and_methods_give_shapes_also_outside_of_scopes(array: PlannedArray):
    assert (array + 1).shape == (3, 4)
    assert (np.float32(2) * array).dtype == jnp.float32
    assert (array @ array.T).shape == (3, 3)
    assert array[0].shape == (4,) and array.mean().shape == ()
    assert array.astype(jnp.int32).dtype == jnp.int32
    assert [row.shape for row in array] == [(4,)] * 3
    assert (array == array).dtype == jnp.bool_
    assert isinstance(array, jax.Array)
    assert f"{array.sum():.3f}" == "PlannedArray(float32[])"


@pytest.mark.parametrize(
    "read", [float, int, bool, np.asarray, jnp.sum, jax.jit(lambda x: x), lambda x: x.item()]
)
def test_a_value_cannot_be_had(array: PlannedArray, read):
    with pytest.raises(rx.errors.PlannedValueError, match=r"planned devices.*shapes alone"):
        read(array[0, 0])


def test_a_program_that_is_followed_reads_nan_and_no_integers(array: PlannedArray):
    with reading_nan_of():
        assert np.isnan(float(array[0, 0])) and np.isnan(np.asarray(array)).all()
        with pytest.raises(rx.errors.PlannedValueError):
            int(array[0, 0])
    with pytest.raises(rx.errors.PlannedValueError):
        float(array[0, 0])


def test_large_arrays_are_not_made_and_small_ones_are_computed():
    with shapes_only(PLANNED[0]):
        key = jax.random.key(0)
        huge = jax.random.normal(key, (100_000, 100_000))
        assert isinstance(huge, PlannedArray) and isinstance(jnp.sum(huge), PlannedArray)
        assert int(jnp.sum(jnp.arange(4))) == 6
        assert jax.random.split(key, 3).shape == (3,)
        gradient = jax.grad(lambda x: jnp.sum(jax.nn.gelu(x) ** 2))(huge)
        assert gradient.shape == huge.shape
        carry, rows = jax.lax.scan(lambda c, r: (c + r, r), huge[0], huge)
        assert carry.shape == (100_000,) and rows.shape == huge.shape
        assert jax.jit(jnp.sin)(huge).shape == huge.shape
        assert isinstance(jax.device_put(np.zeros(3, np.float32), PLANNED[1]), PlannedArray)
    assert current_shapes_only() is None


def test_a_function_that_jax_traces_takes_them(array: PlannedArray):
    assert jax.eval_shape(lambda x: x @ x.T, array).shape == (3, 3)
    assert jax.jit(lambda x: x.sum()).lower(array).out_info.shape == ()
