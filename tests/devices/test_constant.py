"""`rx.constant`, with TensorFlow's arguments."""

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx


def test_values_dtypes_and_shapes():
    np.testing.assert_array_equal(rx.constant([1, 2, 3, 4], shape=(2, 2)), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(rx.constant(1.5, shape=(2,)), [1.5, 1.5])
    assert rx.constant(1, dtype="float16").dtype == jnp.float16
    assert rx.constant(3.0, shape=()).shape == ()
    assert rx.constant(3.0, shape=2).shape == (2,)
    assert rx.constant([], shape=(0, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match="4 items"):
        rx.constant([1, 2, 3], shape=(2, 2))


def test_a_numpy_array_is_copied():
    source = np.zeros(2, np.float32)
    result = rx.constant(source)
    source[0] = 5
    assert result[0] == 0
