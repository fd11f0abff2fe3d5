"""The loop of `09_checkpoint.py` in two processes. What is new is marked.

    replicax launch --workers 2 --devices-per-worker 2 examples/10_two_workers.py

Each worker runs this program from the first line to the last. The strategy finds the other one, and
has its replicas on the devices of both: two times two, here. Each worker reads its part of a batch;
all save and restore together. The losses are those of one process with four replicas.
"""

import argparse

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50

parser = argparse.ArgumentParser()
parser.add_argument("--stop-at", type=int, default=STEPS, help="leave after so many steps")
parser.add_argument("--checkpoints", default="example_checkpoints/10", help="their folder")  # new
options = parser.parse_args()

# First of all: it waits for the other workers. Alone, it is one worker.  # new
strategy = rx.distribute.MultiWorkerMirroredStrategy()  # new
is_first = strategy.extended.should_save_summary  # new


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
batches = iter(strategy.experimental_distribute_dataset(dataset))
state = rx.train.Checkpoint(weights=weights, optimizer=optimizer, batches=batches, step=0)
with rx.train.CheckpointManager(state, options.checkpoints, max_to_keep=2) as manager:
    restored = manager.restore_or_initialize()
    if is_first:  # new
        print(f"{strategy.num_replicas_in_sync} replicas")  # new
        print(f"continues after step {state.step}" if restored else "begins")
    while state.step < options.stop_at:
        loss = step_on_all_replicas(*next(batches))
        state.step += 1
        if state.step % 5 == 0:
            manager.save()
        if is_first and state.step % 10 == 0:  # new
            print(f"step {state.step:2}: loss {float(loss):.4f}")
if is_first:  # new
    print(f"stops after step {state.step}; to begin again, remove {options.checkpoints}")
