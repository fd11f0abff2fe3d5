"""The loop of `03_compiled.py` over a number of points that nothing divides. What is new is marked.

The last of the 51 batches has 47 rows: shares of 12, 12, 12 and 11. Metrics count the rows of each
replica and are right however these are shared out, and so does the loss: its shares add up to the
mean over the rows that the batch has.
"""

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
POINTS = 3247  # new
EPOCHS = 3  # new

# Four virtual devices on the CPU; leave this out where there are real ones.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 4)
strategy = rx.distribute.MirroredStrategy()


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(POINTS, 2)).astype(np.float32)  # new
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
    optimizer = rx.Optimizer(optax.adam(1e-2))
    mean_loss = rx.metrics.Mean()  # new
    absolute_error = rx.metrics.MeanAbsoluteError()  # new


def train_step(x, y):
    def loss_fn():
        predictions = predict(weights, x)  # new
        errors = (predictions - y) ** 2  # new
        loss = rx.nn.share_of_mean(errors)  # new
        return loss, (errors, predictions)  # new

    (_, (errors, predictions)), gradients = rx.value_and_grad(loss_fn, weights, has_aux=True)  # new
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    mean_loss.update_state(errors)  # new
    absolute_error.update_state(y, predictions)  # new


@rx.function
def step_on_all_replicas(x, y):
    strategy.run(train_step, args=(x, y))  # new


dataset = rx.data.Dataset.from_tensor_slices(make_data()).batch(BATCH)
batches = strategy.experimental_distribute_dataset(dataset)
for epoch in range(EPOCHS):  # new
    mean_loss.reset_state()  # new
    absolute_error.reset_state()  # new
    for x, y in batches:  # new
        step_on_all_replicas(x, y)  # new
    loss, error = float(mean_loss.result()), float(absolute_error.result())  # new
    print(f"epoch {epoch + 1}: loss {loss:.4f}, mean absolute error {error:.4f}")  # new
shares = [len(rows) for rows in strategy.experimental_local_results(x)]  # new
print(f"the last batch has {sum(shares)} rows, in shares of {shares}")  # new
