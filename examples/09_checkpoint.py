"""The loop of `03_compiled.py`, stopped and continued. What is new is marked.

    python examples/09_checkpoint.py --stop-at 25
    python examples/09_checkpoint.py

The second run continues with step 26, at the very batch that follows, and prints the losses that
`03_compiled.py` prints. To begin again, remove the folder with the checkpoints.
"""

import argparse  # new

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50

parser = argparse.ArgumentParser()  # new
parser.add_argument("--stop-at", type=int, default=STEPS, help="leave after so many steps")  # new
parser.add_argument("--checkpoints", default="example_checkpoints/09", help="their folder")  # new
options = parser.parse_args()  # new

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
batches = iter(strategy.experimental_distribute_dataset(dataset))  # new
state = rx.train.Checkpoint(weights=weights, optimizer=optimizer, batches=batches, step=0)  # new
with rx.train.CheckpointManager(state, options.checkpoints, max_to_keep=2) as manager:  # new
    restored = manager.restore_or_initialize()  # new
    print(f"continues after step {state.step}" if restored else "begins")  # new
    while state.step < options.stop_at:  # new
        loss = step_on_all_replicas(*next(batches))  # new
        state.step += 1  # new
        if state.step % 5 == 0:  # new
            manager.save()  # new
        if state.step % 10 == 0:  # new
            print(f"step {state.step:2}: loss {float(loss):.4f}")  # new
print(f"stops after step {state.step}; to begin again, remove {options.checkpoints}")  # new
