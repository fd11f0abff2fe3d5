"""`rx.device`: where plain computations run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.devices import device_of, put


def test_arrays_made_inside_are_there():
    with rx.device("/cpu:3"):
        x = jnp.ones(2)
        with rx.device(jax.devices("cpu")[5]):
            y = jnp.ones(2)
        z = jnp.ones(2)
    assert [device_of(a).id for a in (x, y, z)] == [3, 5, 3]
    assert device_of(jnp.ones(2)) == jax.devices()[0]


def test_variables_made_inside_are_there():
    with rx.device("CPU:2"):
        v = rx.Variable([1.0, 2.0])
    v.assign_add([1.0, 1.0])
    assert v.device.endswith("CPU:2") and device_of(v.value()).id == 2


def test_none_is_the_default():
    with rx.device("CPU:2"), rx.device(None):
        assert device_of(jnp.ones(2)) == jax.local_devices()[0]


def test_unknown_devices_fail_at_once():
    with pytest.raises(ValueError, match="no device"):
        rx.device("CPU:50")


def test_put_copies_only_when_it_must():
    x = jax.device_put(jnp.ones(3), jax.devices("cpu")[1])
    there = put(x, jax.devices("cpu")[1])
    assert there.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    moved = put(x, jax.devices("cpu")[2])
    assert device_of(moved).id == 2
    # Not committed: arrays of two devices can be added.
    np.testing.assert_array_equal(there + moved, 2 * np.ones(3))
