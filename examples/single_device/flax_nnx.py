"""A Flax NNX model on one device; `08_flax_nnx.py` trains it over four replicas."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

BATCH = 64
STEPS = 50


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * STEPS, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, 0]) * np.cos(x[:, 1])


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(2, 64, rngs=rngs)
        self.last = nnx.Linear(64, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))[:, 0]


network = Network(nnx.Rngs(0))
optimizer = nnx.Optimizer(network, optax.adam(1e-2), wrt=nnx.Param)


def loss_fn(network, x, y):
    errors = (network(x) - y) ** 2
    return jnp.mean(errors)


@nnx.jit
def update(network, optimizer, x, y):
    loss, gradients = nnx.value_and_grad(loss_fn)(network, x, y)
    optimizer.update(network, gradients)
    return loss


def train_step(x, y):
    return update(network, optimizer, x, y)


xs, ys = make_data()
batches = [(xs[i : i + BATCH], ys[i : i + BATCH]) for i in range(0, len(xs), BATCH)]
for step, (x, y) in enumerate(batches):
    loss = train_step(x, y)
    if step % 10 == 9:
        print(f"step {step + 1:2}: loss {float(loss):.4f}")
