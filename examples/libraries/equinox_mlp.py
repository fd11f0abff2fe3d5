"""The loop of `single_device/equinox_mlp.py` over four replicas. What is new or changed is marked.

The arrays of the module are variables of the strategy; `rx.arrays` is the module that Equinox made.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx  # new

BATCH = 64
STEPS = 50

# Four virtual devices on the CPU; leave this out where there are real ones.  # new
cpu = rx.config.list_physical_devices("CPU")[0]  # new
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 4)  # new
strategy = rx.distribute.MirroredStrategy()  # new


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * STEPS, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, 0]) * np.cos(x[:, 1])


network = eqx.nn.MLP(2, "scalar", 64, 1, activation=jnp.tanh, key=jax.random.key(0))
with strategy.scope():  # new
    network = rx.variables(network)  # new
    optimizer = rx.Optimizer(optax.adam(1e-2))  # new


def train_step(x, y):  # new
    def loss_fn():  # new
        errors = (jax.vmap(rx.arrays(network))(x) - y) ** 2  # new
        return rx.nn.share_of_mean(errors)  # new

    loss, gradients = rx.value_and_grad(loss_fn, network)  # new
    optimizer.apply(gradients, network)  # new
    return loss


@rx.function  # new
def step_on_all_replicas(x, y):  # new
    losses = strategy.run(train_step, args=(x, y))  # new
    return strategy.reduce("SUM", losses, axis=None)  # new


dataset = rx.data.Dataset.from_tensor_slices(make_data()).batch(BATCH)  # new
batches = strategy.experimental_distribute_dataset(dataset)  # new
for step, (x, y) in enumerate(batches):
    loss = step_on_all_replicas(x, y)  # new
    if step % 10 == 9:
        print(f"step {step + 1:2}: loss {float(loss):.4f}")
