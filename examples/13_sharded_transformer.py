"""The loop of `12_logical_devices.py`, for a model whose state is in parts. What is new is marked.

A small transformer learns this very file, letter by letter, on four replicas of two devices each.
Which device keeps what is a property of the strategy, and the training step knows nothing of it. So
it is trained four times: with a copy of all state on each device; with the feed-forward layer split
over the two devices of a replica; with the optimizer's state cut over the replicas as well; and
with everything cut over them. Each device has less and less to keep, and the losses are the same.

The loop is in a function now, and its lines are further to the right: use `diff -w`.
"""

from pathlib import Path  # new

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH = 64
STEPS = 50
LETTERS, LENGTH, WIDTH, HEADS = 128, 16, 64, 4  # new

# Eight virtual devices on the CPU; leave this out where there are real ones.
cpu = rx.config.list_physical_devices("CPU")[0]
rx.config.set_logical_device_configuration(cpu, [rx.config.LogicalDeviceConfiguration()] * 8)

# The first layer by columns, the second by rows: what is between them stays where it is.  # new
SPLIT = {"feed_forward/in": [1, 2], "feed_forward/out": [2, 1]}  # new
LAYOUTS = {  # new
    "a copy on each device": rx.distribute.StateLayout(),  # new
    "feed-forward split": rx.distribute.StateLayout(rules=SPLIT),  # new
    "and the optimizer cut": rx.distribute.StateLayout("optimizer", rules=SPLIT),  # new
    "and everything cut": rx.distribute.StateLayout("everything", rules=SPLIT),  # new
}  # new


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Pieces of this file, and the letter after each letter, which is to be learned."""  # new
    text = np.frombuffer(Path(__file__).read_bytes(), np.uint8)  # new
    starts = np.random.default_rng(0).integers(len(text) - LENGTH, size=BATCH * STEPS)  # new
    pieces = text[starts[:, None] + np.arange(LENGTH + 1)]  # new
    return pieces[:, :-1], pieces[:, 1:]  # new


def initial_weights() -> dict[str, np.ndarray]:  # new
    """By name, for the rules above."""  # new
    random = np.random.default_rng(1)
    shapes = {  # new
        "letters": (LETTERS, WIDTH),  # new
        "places": (LENGTH, WIDTH),  # new
        "attention/in": (WIDTH, 3 * WIDTH),  # new
        "attention/out": (WIDTH, WIDTH),  # new
        "feed_forward/in": (WIDTH, 4 * WIDTH),  # new
        "feed_forward/out": (4 * WIDTH, WIDTH),  # new
        "out": (WIDTH, LETTERS),  # new
    }  # new
    normal = {name: random.normal(scale=0.1, size=shape) for name, shape in shapes.items()}  # new
    return {name: weight.astype(np.float32) for name, weight in normal.items()}  # new


def predict(weights, x):
    hidden = weights["letters"][x] + weights["places"]  # new
    inputs = jnp.split(jax.nn.standardize(hidden) @ weights["attention/in"], 3, axis=-1)  # new
    heads = [each.reshape(*x.shape, HEADS, WIDTH // HEADS) for each in inputs]  # new
    attended = jax.nn.dot_product_attention(*heads, is_causal=True)  # new
    hidden += attended.reshape(hidden.shape) @ weights["attention/out"]  # new
    inner = jax.nn.gelu(jax.nn.standardize(hidden) @ weights["feed_forward/in"])  # new
    hidden += inner @ weights["feed_forward/out"]  # new
    return jax.nn.standardize(hidden) @ weights["out"]  # new


def train(state_layout: rx.distribute.StateLayout) -> tuple[list[float], int]:  # new
    """Returns the losses, and the bytes of state that each device has."""  # new
    strategy = rx.distribute.MirroredStrategy(  # new
        logical_devices_per_replica=2,  # new
        state_layout=state_layout,  # new
    )  # new

    with strategy.scope():
        values = initial_weights()  # new
        weights = {name: rx.Variable(value, name=name) for name, value in values.items()}  # new
        optimizer = rx.Optimizer(optax.adam(1e-2))  # new
        optimizer.build(weights)  # before the first step, which is then compiled once only  # new

    def train_step(x, y):
        def loss_fn():
            scores = predict(weights, x)  # new
            errors = optax.softmax_cross_entropy_with_integer_labels(scores, y)  # new
            errors = jnp.mean(errors, axis=1)  # new
            return rx.nn.share_of_mean(errors)

        loss, gradients = rx.value_and_grad(loss_fn, weights)
        optimizer.apply_gradients(zip(gradients.values(), weights.values(), strict=True))  # new
        return loss

    @rx.function
    def step_on_all_replicas(x, y):
        losses = strategy.run(train_step, args=(x, y))
        return strategy.reduce("SUM", losses, axis=None)

    dataset = rx.data.Dataset.from_tensor_slices(make_data()).batch(BATCH)
    batches = strategy.experimental_distribute_dataset(dataset)
    losses = [float(step_on_all_replicas(x, y)) for x, y in batches]  # new
    report = step_on_all_replicas.explain(*next(iter(batches))).report  # new
    assert report, "there is one: it runs as one program"  # new
    return losses, report.donated_bytes  # new


results = {name: train(layout) for name, layout in LAYOUTS.items()}  # new
expected, _ = results["a copy on each device"]  # new
for name, (losses, state) in results.items():  # new
    np.testing.assert_allclose(losses, expected, rtol=1e-5)  # new
    some = ", ".join(f"{loss:.4f}" for loss in [losses[0], *losses[9::10]])  # new
    print(f"{name:<21}: {state / 1000:4.0f} kB of state on each device; losses {some}")  # new
