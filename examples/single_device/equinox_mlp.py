"""An Equinox model on one device; `libraries/equinox_mlp.py` trains it over four replicas."""

import equinox as eqx
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


network = eqx.nn.MLP(2, "scalar", 64, 1, activation=jnp.tanh, key=jax.random.key(0))
optimizer = optax.adam(1e-2)
state = optimizer.init(eqx.filter(network, eqx.is_array))


@eqx.filter_jit
def update(network, state, x, y):
    def loss_fn(network):
        errors = (jax.vmap(network)(x) - y) ** 2
        return jnp.mean(errors)

    loss, gradients = eqx.filter_value_and_grad(loss_fn)(network)
    updates, state = optimizer.update(gradients, state)
    return loss, eqx.apply_updates(network, updates), state


def train_step(x, y):
    global network, state
    loss, network, state = update(network, state, x, y)
    return loss


xs, ys = make_data()
batches = [(xs[i : i + BATCH], ys[i : i + BATCH]) for i in range(0, len(xs), BATCH)]
for step, (x, y) in enumerate(batches):
    loss = train_step(x, y)
    if step % 10 == 9:
        print(f"step {step + 1:2}: loss {float(loss):.4f}")
