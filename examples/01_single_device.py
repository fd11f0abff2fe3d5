"""A training loop in plain JAX and optax, on one device.

`02_mirrored.py` is the same loop over four replicas; diff the two files.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH = 64
STEPS = 50


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * STEPS, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, 0]) * np.cos(x[:, 1])


def initial_weights() -> list[np.ndarray]:
    """Two layers: weight, bias, weight, bias."""
    random = np.random.default_rng(1)
    shapes = [(2, 64), (64,), (64, 1), (1,)]
    return [random.normal(scale=0.5, size=shape).astype(np.float32) for shape in shapes]


def predict(weights, x):
    w1, b1, w2, b2 = weights
    return (jnp.tanh(x @ w1 + b1) @ w2 + b2)[:, 0]


weights = initial_weights()
optimizer = optax.adam(1e-2)
state = optimizer.init(weights)


@jax.jit
def train_step(weights, state, x, y):
    def loss_fn(weights):
        errors = (predict(weights, x) - y) ** 2
        return jnp.mean(errors)

    loss, gradients = jax.value_and_grad(loss_fn)(weights)
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state, loss


xs, ys = make_data()
batches = [(xs[i : i + BATCH], ys[i : i + BATCH]) for i in range(0, len(xs), BATCH)]
for step, (x, y) in enumerate(batches):
    weights, state, loss = train_step(weights, state, x, y)
    if step % 10 == 9:
        print(f"step {step + 1:2}: loss {float(loss):.4f}")
