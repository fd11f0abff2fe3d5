"""What a type checker knows of compiled functions and variables: `make types` checks these."""

from typing import assert_type

import jax
import jax.numpy as jnp

import replicax as rx


@rx.function
def scaled(x: jax.Array, power: int = 2) -> jax.Array:
    return x**power


@rx.function(input_signature=[rx.TensorSpec([], jnp.float32)])
def with_signature(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, x


class Model:
    @rx.function
    def __call__(self, x: jax.Array) -> jax.Array:
        return x

    @rx.function
    def step(self, x: jax.Array, *, scale: float) -> dict[str, jax.Array]:
        return {"x": x * scale}


def test_functions_keep_their_signatures():
    x = jnp.float32(3)
    assert_type(scaled(x, power=3), jax.Array)
    assert_type(with_signature(x), tuple[jax.Array, jax.Array])
    assert_type(Model().step(x, scale=2.0), dict[str, jax.Array])
    assert scaled(x) == 9


def test_what_makes_a_variable_is_of_its_type():
    w = rx.Variable(2.0)
    assert_type(w, rx.Variable)
    assert_type(w * 2, jax.Array)
    assert w.name == "Variable:0"


def test_losses_keep_their_types():
    w = rx.Variable(2.0)

    def loss() -> jax.Array:
        return w.value() * 3

    value, _ = rx.value_and_grad(loss, [w])
    assert_type(value, jax.Array)
    (value, aux), _ = rx.value_and_grad(lambda: (loss(), str(w.name)), [w], has_aux=True)
    assert_type(aux, str)
    assert value == 6 and aux == "Variable:0"


def test_run_keeps_the_type_of_what_a_replica_function_returns():
    strategy = rx.distribute.MirroredStrategy(["CPU:0"])

    def step(x: jax.Array) -> tuple[jax.Array, str]:
        return x * 2, "done"

    result = strategy.run(step, args=(jnp.float32(3),))
    assert_type(result, tuple[jax.Array, str])
    assert result == (6, "done")
