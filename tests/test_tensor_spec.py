"""`rx.TensorSpec`: what fits it, and how specs compare."""

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx


def test_what_it_says():
    spec = rx.TensorSpec([None, 3], "float32", name="x")
    assert (spec.shape, spec.dtype, spec.name) == ((None, 3), jnp.float32, "x")
    assert repr(spec) == "TensorSpec(shape=(None, 3), dtype=float32, name='x')"
    assert rx.TensorSpec([2], np.float64).dtype == jnp.float32  # without 64 bits


@pytest.mark.parametrize(
    ("shape", "value", "fits"),
    [
        ([2, 3], np.ones((2, 3), np.float32), True),
        ([None, 3], np.ones((7, 3), np.float32), True),
        (None, np.ones((7, 3), np.float32), True),
        ([None, 3], np.ones((7, 4), np.float32), False),
        ([None], np.ones((7, 4), np.float32), False),
        ([2, 3], np.ones((2, 3), np.int32), False),
        ([2, 3], rx.TensorSpec([2, 3]), True),
        ([2, 3], rx.TensorSpec([None, 3]), True),
        ([], 1.0, True),
    ],
)
def test_what_fits(shape, value, fits: bool):
    assert rx.TensorSpec(shape).is_compatible_with(value) is fits


def test_from_arrays_and_other_specs():
    spec = rx.TensorSpec.from_tensor(jnp.ones((2, 3), jnp.bfloat16), name="y")
    assert spec == rx.TensorSpec([2, 3], jnp.bfloat16)
    assert rx.TensorSpec.from_spec(spec).name == "y"
    assert len({spec, rx.TensorSpec([2, 3], jnp.bfloat16), rx.TensorSpec([2, 3])}) == 2
    assert spec != (2, 3)
