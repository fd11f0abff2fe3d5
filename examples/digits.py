"""Trains a small network on handwritten digits, over any number of replicas.

Run it with `make demo` or `make demo REPLICAS=8`. The replicas are virtual devices on the CPU. For
real ones, leave out what `main` says about the CPU, and the line that sets `JAX_PLATFORMS`.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The demo is about replicas, not about hardware: virtual devices exist on the CPU only.
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
import optax
from matplotlib.figure import Figure
from rich.console import Console
from sklearn.datasets import load_digits

import replicax as rx

TEST_EXAMPLES = 360


def load_data(seed: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns (images, labels) to train on and to test on: 1797 of 8 x 8 pixels in all."""
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(images))
    train, test = order[TEST_EXAMPLES:], order[:TEST_EXAMPLES]
    return (images[train], labels[train]), (images[test], labels[test])


def make_weights(seed: int) -> list[rx.Variable]:
    """Returns kernel and bias of three dense layers: 64 pixels, 128, 64, 10 digits."""
    random = np.random.default_rng(seed)
    variables = []
    for rows, columns in [(64, 128), (128, 64), (64, 10)]:
        kernel = random.normal(scale=np.sqrt(2 / rows), size=(rows, columns))
        variables.append(rx.Variable(kernel.astype(np.float32)))
        variables.append(rx.Variable(np.zeros(columns, np.float32)))
    return variables


def predict(weights: Sequence[Any], images: jax.Array) -> jax.Array:
    """Returns one score for each image and digit. Plain JAX: it knows nothing of replicas."""
    k1, b1, k2, b2, k3, b3 = weights
    hidden = jax.nn.relu(images @ k1 + b1)
    hidden = jax.nn.relu(hidden @ k2 + b2)
    return hidden @ k3 + b3


def train(strategy: rx.distribute.Strategy, epochs: int, batch_size: int, seed: int, out: Path):
    console = Console()
    train_data, test_data = load_data(seed)

    # Each replica gets its share of every batch, and the next batches are made ready meanwhile.
    dataset = rx.data.Dataset.from_tensor_slices(train_data)
    dataset = dataset.shuffle(len(dataset), seed).batch(batch_size)
    batches = strategy.experimental_distribute_dataset(dataset)
    test_dataset = rx.data.Dataset.from_tensor_slices(test_data).batch(TEST_EXAMPLES)
    test_batch = next(iter(strategy.experimental_distribute_dataset(test_dataset)))

    # Everything made in the scope is the strategy's: a copy of each variable on every replica.
    with strategy.scope():
        weights = make_weights(seed)
        optimizer = rx.Optimizer(optax.adam(2e-3))
        mean_loss = rx.metrics.Mean()
        accuracy = rx.metrics.SparseCategoricalAccuracy()
        test_accuracy = rx.metrics.SparseCategoricalAccuracy()

    # The two functions below run on every replica, with that replica's share of the batch.
    def train_step(images: jax.Array, labels: jax.Array) -> None:
        def loss_fn():
            scores = predict(weights, images)
            losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
            loss = rx.nn.share_of_mean(losses)
            return loss, (losses, scores)

        (_, (losses, scores)), gradients = rx.value_and_grad(
            loss_fn, weights, has_aux=True, compile=True
        )
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        mean_loss.update_state(losses)
        accuracy.update_state(labels, scores)

    def test_step(images: jax.Array, labels: jax.Array) -> None:
        test_accuracy.update_state(labels, predict(weights, images))

    # And these two are compiled: the step on all replicas, with all that they exchange and all the
    # variables that they change, as one program. Shares of different sizes, as at the end of the
    # data, cannot be one program: that call runs as plain Python, with the same result.
    @rx.function
    def train_on(images: Any, labels: Any) -> tuple[jax.Array, jax.Array]:
        strategy.run(train_step, args=(images, labels))
        return mean_loss.result(), accuracy.result()

    @rx.function
    def evaluate_on(images: Any, labels: Any) -> jax.Array:
        test_accuracy.reset_state()
        strategy.run(test_step, args=(images, labels))
        return test_accuracy.result()

    history: dict[str, list[float]] = {"loss": [], "accuracy": [], "test accuracy": []}
    for epoch in range(1, epochs + 1):
        mean_loss.reset_state()
        accuracy.reset_state()
        bar = rx.progress(batches, f"epoch {epoch}/{epochs}", transient=True)
        for images, labels in bar:
            loss, correct = train_on(images, labels)
            bar.show(loss=loss, accuracy=correct)  # drawn when it is computed; the loop goes on
        history["loss"].append(float(loss))
        history["accuracy"].append(float(correct))
        history["test accuracy"].append(float(evaluate_on(*test_batch)))
        console.print(
            f"epoch {epoch:2}  loss {history['loss'][-1]:.4f}"
            f"  accuracy {history['accuracy'][-1]:.4f}"
            f"  test accuracy {history['test accuracy'][-1]:.4f}"
            f"  {bar.examples_per_second:7,.0f} examples/s",
            highlight=False,
        )
    draw(history, strategy.num_replicas_in_sync, out)
    console.print(
        f"[bold green]test accuracy {history['test accuracy'][-1]:.4f}[/bold green] after {epochs}"
        f" epochs on {strategy.num_replicas_in_sync} replica(s); the curve is in {out}",
        highlight=False,
        soft_wrap=True,
    )


def draw(history: dict[str, list[float]], replicas: int, out: Path) -> None:
    """Writes a picture of the loss and the two accuracies by epoch."""
    epochs = range(1, len(history["loss"]) + 1)
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(f"Handwritten digits, MirroredStrategy over {replicas} replica(s)")
    left.plot(epochs, history["loss"], marker=".")
    left.set(title="training loss", xlabel="epoch", yscale="log")
    right.plot(epochs, history["accuracy"], marker=".", label="training")
    right.plot(epochs, history["test accuracy"], marker=".", label="test")
    right.set(title="accuracy", xlabel="epoch")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(out, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=4, help="virtual CPU devices to train on")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--batch-size", type=int, help="examples in a step, in all (64, or fewer to share evenly)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("demo_digits.png"), help="the picture")
    options = parser.parse_args()
    if options.replicas < 1:
        parser.error(f"--replicas must be at least 1, got {options.replicas}")

    # Virtual devices must be asked for before the first of them is used.
    cpu = rx.config.list_physical_devices("CPU")[0]
    rx.config.set_logical_device_configuration(
        cpu, [rx.config.LogicalDeviceConfiguration()] * options.replicas
    )
    strategy = rx.distribute.MirroredStrategy()
    # Even shares are one compiled program.
    batch_size = options.batch_size or options.replicas * max(2, 64 // options.replicas)
    train(strategy, options.epochs, batch_size, options.seed, options.out)


if __name__ == "__main__":
    main()
