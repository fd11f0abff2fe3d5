"""The operation that made the first value that is not finite is found, and masks are not."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx
from replicax._src.functions import as_function, observe
from replicax._src.recording import Examination, examine
from tests.under_test import cpus


class Look:
    """Takes the program of each call apart before it runs."""

    def __init__(self) -> None:
        self.found: Examination | None = None

    def called(self, proceed: Any, body: Any, args: Any, kwargs: Any) -> Any:
        self.found = examine(proceed.examined(body, args, kwargs))
        return proceed(body, args, kwargs)


def examined(on_replica: Callable[..., Any], *args: Any, strategy: Any = None) -> Examination:
    strategy = strategy or rx.distribute.MirroredStrategy(cpus(2))

    def step(*args: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(on_replica, args=args), axis=None)

    compiled, look = rx.function(step), Look()
    function = as_function(compiled)
    assert function is not None
    observe(function, look)
    result = np.asarray(compiled(*args))
    assert look.found is not None
    np.testing.assert_allclose(look.found.outputs["result 0"][0], result, rtol=1e-6)
    return look.found


def shares(*parts: Any) -> Any:
    return rx.distribute.PerReplica([jnp.asarray(part, jnp.float32) for part in parts])


def test_the_operation_the_line_and_the_replica():
    found = examined(lambda x: jnp.sum(jnp.sqrt(x * 2)), shares([1, 2], [3, -4]))
    [origin] = found.origins
    assert (origin.operation, origin.replica, origin.index) == ("sqrt", 1, (1,))
    assert "test_origins.py:" in origin.line and not origin.backward
    assert origin.largest == 8 and "sqrt at" in str(origin)


def test_the_backward_pass():
    def gradient(x: Any) -> Any:
        return jnp.sum(jax.grad(lambda x: jnp.sum(jnp.sqrt(x)))(x))

    found = examined(gradient, shares([1, 2], [3, 0]))
    origin = found.origins[0]
    assert origin.backward or origin.operation in ("div", "rsqrt", "integer_pow", "pow"), origin
    assert "test_origins.py:" in origin.line and origin.replica == 1


def test_masks_are_not_the_cause():
    def attention(x: Any) -> Any:
        masked = jnp.where(x > 0, x, -jnp.inf)
        return jnp.sum(jax.nn.softmax(masked) * jnp.log(x))

    found = examined(attention, shares([1, 2], [3, -1]))
    assert [each.operation for each in found.origins] == ["log"]
    assert (
        examined(
            lambda x: jnp.sum(jax.nn.softmax(jnp.where(x > 0, x, -jnp.inf))),
            shares([1, 2], [3, -1]),
        ).bad
        is None
    )


def test_a_turn_of_a_loop():
    def loop(x: Any) -> Any:
        total, _ = jax.lax.scan(lambda c, row: (c + jnp.log(row), c), jnp.float32(0), x)
        return total

    found = examined(loop, shares([1, 2, 3], [1, 0, 3]))
    assert found.origins[0].operation == "log" and found.origins[0].value == -np.inf


def test_an_infinity_that_becomes_a_nan():
    found = examined(lambda x: jnp.sum(jnp.exp(x) * 0.0), shares([1, 2], [3, 100]))
    origin = found.origins[0]
    assert origin.operation == "mul" and np.isnan(origin.value)
    assert [each.operation for each in origin.of] == ["exp"] and "which was exp at" in str(origin)


def test_constants_of_the_program_come_last():
    def on_replica(x: Any) -> Any:
        return jnp.sum(jnp.where(x > 2, x * jnp.nan, 0)) + jnp.sum(jnp.log(x))

    origins = examined(on_replica, shares([1, 2], [3, -1])).origins
    assert [(each.operation, each.is_constant) for each in origins] == [
        ("log", False),
        ("mul", True),
    ]
    assert "of a constant; beside it the largest" in str(origins[1])


def test_inputs_that_are_not_finite():
    found = examined(lambda x: jnp.sum(x), shares([[1, 2]], [[3, np.nan]]))
    assert str(found.origins[0]).startswith("argument 0 is not finite: nan on replica 1, row 0")


def test_values_that_are_split_over_logical_devices():
    strategy = rx.distribute.MirroredStrategy(cpus(4), logical_devices_per_replica=2)

    def on_replica(x: Any) -> Any:
        x = strategy.experimental_split_to_logical_devices(x, [2])
        return jnp.sum(jnp.log(x))

    found = examined(on_replica, shares([1, 2], [3, -1]), strategy=strategy)
    [origin] = found.origins
    assert (origin.operation, origin.replica, origin.index) == ("log", 1, (1,))
