"""The loop of `03_compiled.py`, with an optimizer of your own. What is new is marked.

In `merge_call` the replicas meet, and one function runs for all of them, in cross-replica context.
There it sees the gradients of all replicas: it adds them up, computes their norm, and updates the
weights where they live. This is gradient descent with clipped gradients.
"""

import jax.numpy as jnp
import numpy as np

import replicax as rx

BATCH = 64
STEPS = 50
RATE, LIMIT = 0.1, 1.0  # new

# Four virtual devices on the CPU; leave this out where there are real ones.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 4)
strategy = rx.distribute.MirroredStrategy()


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


with strategy.scope():
    weights = [rx.Variable(weight) for weight in initial_weights()]


def apply(strategy, gradients):  # new
    pairs = list(zip(gradients, weights, strict=True))  # new
    sums = strategy.extended.batch_reduce_to("SUM", pairs)  # new
    norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in sums))  # new
    rate = RATE * jnp.minimum(1.0, LIMIT / norm)  # new
    for weight, gradient in zip(weights, sums, strict=True):  # new
        strategy.extended.update(weight, descend, args=(gradient, rate))  # new
    return norm  # new


def descend(weight, gradient, rate):  # new
    weight.assign_sub(rate * gradient)  # new


def train_step(x, y):
    def loss_fn():
        errors = (predict(weights, x) - y) ** 2
        return rx.nn.share_of_mean(errors)

    loss, gradients = rx.value_and_grad(loss_fn, weights)
    context = rx.distribute.get_replica_context()  # new
    assert context, "each replica has one"  # new
    norm = context.merge_call(apply, args=(gradients,))  # new
    return loss, norm  # new


@rx.function
def step_on_all_replicas(x, y):
    losses, norms = strategy.run(train_step, args=(x, y))  # new
    norm = strategy.reduce("MEAN", norms, axis=None)  # new
    return strategy.reduce("SUM", losses, axis=None), norm  # new


dataset = rx.data.Dataset.from_tensor_slices(make_data()).batch(BATCH)
batches = strategy.experimental_distribute_dataset(dataset)
for step, (x, y) in enumerate(batches):
    loss, norm = step_on_all_replicas(x, y)  # new
    if step % 10 == 9:
        print(f"step {step + 1:2}: loss {float(loss):.4f}, norm of the gradient {norm:.3f}")  # new
