"""The loop of `01_single_device.py` over four replicas. What is new or changed is marked.

Each replica sees a quarter of every batch and holds a copy of the weights. Gradients are summed
over the replicas before they are applied, so the losses are those of the single device.
"""

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


def initial_weights() -> list[np.ndarray]:
    """Two layers: weight, bias, weight, bias."""
    random = np.random.default_rng(1)
    shapes = [(2, 64), (64,), (64, 1), (1,)]
    return [random.normal(scale=0.5, size=shape).astype(np.float32) for shape in shapes]


def predict(weights, x):
    w1, b1, w2, b2 = weights
    return (jnp.tanh(x @ w1 + b1) @ w2 + b2)[:, 0]


with strategy.scope():  # new
    weights = [rx.Variable(weight) for weight in initial_weights()]  # new
    optimizer = rx.Optimizer(optax.adam(1e-2))  # new


def train_step(x, y):  # new
    def loss_fn():  # new
        errors = (predict(weights, x) - y) ** 2
        return rx.nn.share_of_mean(errors)  # new

    loss, gradients = rx.value_and_grad(loss_fn, weights, compile=True)  # new
    optimizer.apply_gradients(zip(gradients, weights, strict=True))  # new
    return loss  # new


dataset = rx.data.Dataset.from_tensor_slices(make_data()).batch(BATCH)  # new
batches = strategy.experimental_distribute_dataset(dataset)  # new
for step, (x, y) in enumerate(batches):
    losses = strategy.run(train_step, args=(x, y))  # new
    loss = strategy.reduce("SUM", losses, axis=None)  # new
    if step % 10 == 9:
        print(f"step {step + 1:2}: loss {float(loss):.4f}")
