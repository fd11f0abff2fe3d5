"""Signatures of compiled functions: what fits them, and what does not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import mirrored

# ------------------------------------------------------------------ signatures


def signed() -> Any:
    traces: list[int] = []

    @rx.function(
        input_signature=[rx.TensorSpec([None, 2], "float32"), rx.TensorSpec([], "float32")]
    )
    def scale(x: Any, s: Any) -> Any:
        traces.append(1)
        assert isinstance(s, jax.Array)
        return x * s

    scale.traces = traces  # type: ignore[attr-defined]
    return scale


@pytest.mark.parametrize(
    "args",
    [
        (jnp.ones((3, 2)), 2.0),
        (jnp.ones((3, 2)), 2),
        (jnp.ones((3, 2)), True),
        (np.ones((3, 2)), 2.0),
        (np.ones((3, 2), np.int64), 2.0),  # NumPy is converted, arrays of another dtype are not
        ([[1.0, 1.0]], 2.0),
        (((1, 1), (1, 1)), 2.0),
        (rx.Variable(jnp.ones((1, 2))), rx.Variable(2.0)),
    ],
    ids=["good", "int", "bool", "float64", "int64", "list", "tuple", "variables"],
)
def test_arguments_that_fit_a_signature(args: Any):
    scale = signed()
    expected = np.asarray(args[0], np.float32) * np.float32(np.asarray(args[1]))
    np.testing.assert_allclose(scale(*args), expected)
    np.testing.assert_allclose(scale(x=args[0], s=args[1]), expected)
    np.testing.assert_allclose(scale(args[0], s=args[1]), expected)
    assert len(scale.traces) == 1


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((jnp.ones(3), 2.0), {}),
        ((jnp.ones((3, 3)), 2.0), {}),
        ((jnp.ones((3, 2), jnp.int32), 2.0), {}),
        ((jnp.ones((3, 2)),), {}),
        ((jnp.ones((3, 2)), 1.0, 2.0), {}),
        ((), {"x": jnp.ones((3, 2)), "z": 1.0}),
        (("text", 1.0), {}),
        ((None, 1.0), {}),
        ((jnp.ones((3, 2)), "text"), {}),
        ((jnp.ones((3, 2)), {"s": 1.0}), {}),
    ],
    ids=["rank", "size", "dtype", "few", "many", "keyword", "text", "none", "text2", "dict"],
)
def test_arguments_that_do_not_fit_a_signature(args: Any, kwargs: Any):
    # The same error class as TensorFlow's in each case.
    scale = signed()
    with pytest.raises(TypeError):
        scale(*args, **kwargs)
    assert not scale.traces


def test_signatures_of_structures_and_methods():
    spec = rx.TensorSpec([None], "float32")

    @rx.function(input_signature=[{"a": spec, "b": (spec, spec)}])
    def total(d: Any) -> Any:
        return jnp.sum(d["a"]) + jnp.sum(d["b"][0]) - jnp.sum(d["b"][1])

    assert float(total({"b": (jnp.ones(2), jnp.ones(1)), "a": jnp.ones(3)})) == 4.0
    for bad in ({"a": jnp.ones(1)}, [jnp.ones(1)], {"a": jnp.ones(1), "b": jnp.ones(2)}):
        with pytest.raises(TypeError):
            total(bad)

    class Model:
        @rx.function(input_signature=[spec])
        def double(self, x: Any) -> Any:
            return x * 2

    np.testing.assert_allclose(Model().double(jnp.ones(2)), [2.0, 2.0])
    np.testing.assert_allclose(Model().double(x=jnp.ones(3)), [2.0] * 3)
    with pytest.raises(TypeError):
        Model().double(jnp.ones((2, 2)))


def test_bad_signatures():
    with pytest.raises(TypeError, match="input_signature"):
        rx.function(lambda x: x, input_signature=[3])
    with pytest.raises(TypeError, match="input_signature"):
        rx.function(lambda x: x, input_signature=rx.TensorSpec([]))
    with pytest.raises(TypeError):
        rx.function(lambda x: x, input_signature=[rx.TensorSpec([])] * 2)(1.0)
    with pytest.raises(TypeError):
        rx.function(lambda x, y: x, input_signature=[rx.TensorSpec([])])(1.0)  # type: ignore[call-arg]
    with_default = rx.function(lambda x, y=3.0: x + y, input_signature=[rx.TensorSpec([])])
    assert float(with_default(1.0)) == 4.0
    with pytest.raises(TypeError):
        with_default(1.0, 2.0)


def test_a_signature_for_per_replica_arguments():
    strategy = mirrored(2)
    spec = rx.TensorSpec([None, 2], "float32")
    traces: list[int] = []

    @rx.function(input_signature=[spec])
    def step(x: Any) -> Any:
        traces.append(1)
        return strategy.reduce("SUM", strategy.run(jnp.sum, (x,)), axis=None)

    assert float(step(rx.distribute.PerReplica([jnp.ones((2, 2)), jnp.ones((2, 2))]))) == 8.0
    assert float(step(rx.distribute.PerReplica([jnp.ones((2, 2)), jnp.ones((1, 2))]))) == 6.0
    with pytest.raises(TypeError):
        step(rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)]))
