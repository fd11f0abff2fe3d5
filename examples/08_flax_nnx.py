"""The loop of `single_device/flax_nnx.py` over four replicas. What is new or changed is marked.

Made in the scope, the network and the optimizer keep their state in variables of the strategy. The
gradients are summed over the replicas by `optimizer.update`.
"""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

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


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(2, 64, rngs=rngs)
        self.last = nnx.Linear(64, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))[:, 0]


with strategy.scope():  # new
    network = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(network, optax.adam(1e-2), wrt=nnx.Param)


def loss_fn(network, x, y):
    errors = (network(x) - y) ** 2
    return rx.nn.share_of_mean(errors)  # new


def update(network, optimizer, x, y):
    loss, gradients = nnx.value_and_grad(loss_fn)(network, x, y)
    optimizer.update(network, gradients)
    return loss


def train_step(x, y):
    return update(network, optimizer, x, y)


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
