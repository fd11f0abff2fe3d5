"""The loop of `03_compiled.py`, planned for devices that are not here. What is new is marked.

The strategy is on sixteen planned devices, two hosts of eight. Its variables, also the billion
parameters of the inner layer, have shapes and no values; the step is compiled and does not run.
`v5e:4x4` in the place of `cpu:2x8` plans for TPUs, if the package libtpu is installed.
"""

import sys  # new

import jax  # new
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50

WIDTH = 32768  # new

devices = rx.config.planned_devices(sys.argv[1] if sys.argv[1:] else "cpu:2x8")  # new
layout = rx.distribute.StateLayout(over_replicas="everything")  # new
strategy = rx.distribute.MirroredStrategy(devices, state_layout=layout)  # new


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * STEPS, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, 0]) * np.cos(x[:, 1])


def initial_weights() -> list[jax.Array]:  # new
    """Three layers, without values in the scope of the strategy."""  # new
    shapes = [(2, WIDTH), (WIDTH, WIDTH), (WIDTH, 1)]  # new
    keys = jax.random.split(jax.random.key(1), 3)  # new
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes)]  # new


def predict(weights, x):
    first, inner, last = weights  # new
    return (jnp.tanh(jnp.tanh(x @ first) @ inner) @ last)[:, 0]  # new


with strategy.scope():
    weights = [rx.Variable(weight) for weight in initial_weights()]
    optimizer = rx.Optimizer(optax.adam(1e-2))


def train_step(x, y):
    def loss_fn():
        errors = (predict(weights, x) - y) ** 2
        return rx.nn.share_of_mean(errors)

    loss, gradients = rx.value_and_grad(loss_fn, weights)
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss


@rx.function
def step_on_all_replicas(x, y):
    losses = strategy.run(train_step, args=(x, y))
    return strategy.reduce("SUM", losses, axis=None)


dataset = rx.data.Dataset.from_tensor_slices(make_data()).batch(BATCH)
batches = strategy.experimental_distribute_dataset(dataset)
x, y = next(iter(batches))  # new
plan = step_on_all_replicas.explain(x, y).plan  # new
print(plan)  # new
parameters = sum(weight.size for weight in weights)  # new
each = plan.memory["parameters"]  # new
print(f"{parameters / 1e9:.2f} billion parameters, {each / 1e9:.2f} GB on each device")  # new
