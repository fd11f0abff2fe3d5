"""The loop of `03_compiled.py`, with variables on a server and two workers. What is new is marked.

Workers do not wait for each other: each reads the weights, computes a step on its own data, and
sends the gradients to the server, which updates the weights. So the losses differ from run to run.
`pip install "replicax[ray]"`; with RAY_ADDRESS set, the same program runs on a cluster.
"""

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50

resolver = rx.distribute.cluster_resolver.RayClusterResolver(workers=2, ps=1)  # new
strategy = rx.distribute.ParameterServerStrategy(resolver)  # new


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


def make_dataset():  # new
    # Is called on each worker, which has all the data, in an order of its own.  # new
    dataset = rx.data.Dataset.from_tensor_slices(make_data())  # new
    return dataset.shuffle(BATCH * STEPS).repeat().batch(BATCH)  # new


def step_on_worker(iterator):  # new
    return step_on_all_replicas(*next(iterator))  # new


coordinator = rx.distribute.coordinator.ClusterCoordinator(strategy)  # new
batches = iter(coordinator.create_per_worker_dataset(make_dataset))  # new
for step in range(10, STEPS + 1, 10):  # new
    values = [coordinator.schedule(step_on_worker, args=(batches,)) for _ in range(10)]  # new
    coordinator.join()  # new
    loss = np.mean(coordinator.fetch(values))  # new
    print(f"step {step:2}: loss {float(loss):.4f}")  # new
