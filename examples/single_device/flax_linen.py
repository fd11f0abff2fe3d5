"""A Flax linen model on one device; `libraries/flax_linen.py` trains it over four replicas."""

import flax.linen as nn
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


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(jnp.tanh(nn.Dense(64)(x)))[:, 0]


network = Network()
params = network.init(jax.random.key(0), jnp.zeros((1, 2)))
optimizer = optax.adam(1e-2)
state = optimizer.init(params)


@jax.jit
def update(params, state, x, y):
    def loss_fn(params):
        errors = (network.apply(params, x) - y) ** 2
        return jnp.mean(errors)

    loss, gradients = jax.value_and_grad(loss_fn)(params)
    updates, state = optimizer.update(gradients, state, params)
    return loss, optax.apply_updates(params, updates), state


def train_step(x, y):
    global params, state
    loss, params, state = update(params, state, x, y)
    return loss


xs, ys = make_data()
batches = [(xs[i : i + BATCH], ys[i : i + BATCH]) for i in range(0, len(xs), BATCH)]
for step, (x, y) in enumerate(batches):
    loss = train_step(x, y)
    if step % 10 == 9:
        print(f"step {step + 1:2}: loss {float(loss):.4f}")
