"""The loop of `03_compiled.py`, with a bad number in its data. What is new is marked.

A trap ends the program at the step that had the row, and leaves a capsule. The replay runs that
step again, from the last checkpoint, and names the row: batch 23, row 37 is row 5 of replica 2.
"""

import subprocess  # new
import sys  # new
import tempfile  # new

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50

# Four virtual devices on the CPU; leave this out where there are real ones.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 4)
strategy = rx.distribute.MirroredStrategy()


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * STEPS, 2)).astype(np.float32)
    x[BATCH * 22 + 37, 1] = np.nan  # new
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
batches = strategy.experimental_distribute_dataset(dataset)
folder = tempfile.mkdtemp()  # new
state = rx.train.Checkpoint(weights=weights, optimizer=optimizer)  # new
manager = rx.train.CheckpointManager(state, folder)  # new
traps = rx.debug.Traps(finite=True)  # new
recorder = rx.debug.Recorder(manager, step_on_all_replicas, traps=traps)  # new
try:  # new
    with recorder:  # new
        for step, (x, y) in enumerate(batches):
            loss = step_on_all_replicas(x, y)
            if step % 10 == 9:
                print(f"step {step + 1:2}: loss {float(loss):.4f}")
                manager.save()  # new
except rx.errors.TrappedStepError as error:  # new
    print(f"step {error.step} was trapped")  # new
    command = ["-m", "replicax", "replay", str(error.capsule), __file__, "--eager"]  # new
    subprocess.run([sys.executable, *command], check=False)  # new
