"""Words that tests of Keras share: small models; a program with and without a strategy."""

from collections.abc import Callable
from typing import Any

import jax
import keras as _keras
import numpy as np

import replicax as rx
from tests.replicas import mirrored
from tests.under_test import cpus

keras: Any = _keras  # which does not say the types of its functions
layers, ops = keras.layers, keras.ops

RNG = np.random.default_rng(0)
X = RNG.normal(size=(14, 4)).astype(np.float32)  # in batches of 8: the second one has 6 rows
Y = np.sin(X[:, :1]) + 0.5
LABELS = (np.arange(14) % 3).astype(np.int32)


def two_logical_devices() -> Any:
    return rx.distribute.MirroredStrategy(cpus(4), logical_devices_per_replica=2)


def mlp(**compiled: Any) -> Any:
    """A small regression model; what is given goes to `compile`."""
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(1)])
    return ready(model, **compiled)


def classifier(**compiled: Any) -> Any:
    """A small model that tells three classes apart."""
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(5, "tanh"), layers.Dense(3, "softmax")]
    )
    return ready(model, **{"loss": "sparse_categorical_crossentropy", **compiled})


def ready(model: Any, **compiled: Any) -> Any:
    """The model, compiled with SGD and the mean squared error unless something else is given."""
    model.compile(**{"optimizer": keras.optimizers.SGD(0.1), "loss": "mse", **compiled})
    return model


def fitted(model: Any, x: Any = X, y: Any = Y, **arguments: Any) -> dict[str, Any]:
    """Trains two epochs, the last batch being smaller, and returns all that can be compared."""
    history = model.fit(x, y, **{"batch_size": 8, "epochs": 2, "verbose": 0, **arguments}).history
    return {"history": history, "weights": model.get_weights()}


def seeded(make: Callable[[], Any], strategy: Any = None) -> Any:
    """What `make` makes, in the scope of the strategy; the same numbers each time."""
    keras.utils.set_random_seed(0)
    if strategy is None:
        return make()
    with strategy.scope():
        return make()


def same(found: Any, expected: Any, atol: float = 1e-5) -> None:
    """Both have the same structure and the same numbers."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=atol)


def same_as_on_one_device(
    make: Callable[[], Any],
    program: Callable[[Any], Any] = fitted,
    strategy: Any = None,
    atol: float = 1e-5,
) -> Any:
    """Runs `program(make())` on one device and under the strategy; returns the second result."""
    expected = program(seeded(make))
    found = program(seeded(make, strategy or mirrored(4)))
    same(found, expected, atol)
    return found
