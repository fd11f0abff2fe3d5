"""The loop of `10_two_workers.py`, of which one worker is killed. What is new is marked.

    replicax launch --workers 2 --max-restarts 1 examples/11_killed_worker.py --kill-at 33

The launcher sees it, and starts both workers again; they go on from the last checkpoint. At the end
the weights are, bit for bit, those of a run that nobody disturbed: leave out `--kill-at`, and name
another folder with `--checkpoints`.
"""

import argparse
import hashlib  # new
import os  # new
import signal  # new

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50

parser = argparse.ArgumentParser()
parser.add_argument("--stop-at", type=int, default=STEPS, help="leave after so many steps")
parser.add_argument("--checkpoints", default="example_checkpoints/11", help="their folder")  # new
parser.add_argument("--kill-at", type=int, help="the second worker is killed here, once")  # new
options = parser.parse_args()

# First of all: it waits for the other workers. Alone, it is one worker.
strategy = rx.distribute.MultiWorkerMirroredStrategy()
is_first = strategy.extended.should_save_summary


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
    if is_first:
        print(f"{strategy.num_replicas_in_sync} replicas")
        print(f"continues after step {state.step}" if restored else "begins")
    while state.step < options.stop_at:
        loss = step_on_all_replicas(*next(batches))
        state.step += 1
        if state.step % 5 == 0:
            manager.save()
        if is_first and state.step % 10 == 0:
            print(f"step {state.step:2}: loss {float(loss):.4f}")
        if state.step == options.kill_at and not is_first and not restored:  # new
            os.kill(os.getpid(), signal.SIGKILL)  # new
if is_first:
    print(f"stops after step {state.step}; to begin again, remove {options.checkpoints}")
    digest = hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in weights))  # new
    print(f"weights {digest.hexdigest()[:12]}")  # new
