"""Trains one small model on the accelerator under every strategy, and compares with the CPU.

Run it on a machine with a GPU or TPU: `python scripts/accelerator_check.py`. It ends with an error
if a strategy gives other losses than one CPU device does.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

STEPS, BATCH = 20, 48


def train(strategy: Any, way: str) -> list[float]:
    """The losses of a classifier: "eager", with the "loss" compiled, or all in a "function"."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((BATCH, 16)).astype(np.float32)
    labels = (inputs.sum(1) > 0).astype(np.int32)
    with strategy.scope():
        w1 = rx.Variable(rng.standard_normal((16, 32)).astype(np.float32) / 4, name="w1")
        w2 = rx.Variable(rng.standard_normal((32, 2)).astype(np.float32) / 4, name="w2")
        seen = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM", name="seen")
        optimizer = rx.Optimizer(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)))

    def step(x: jax.Array, y: jax.Array) -> jax.Array:
        def loss() -> jax.Array:
            logits = jnp.tanh(x @ w1) @ w2
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
            return rx.nn.compute_average_loss(losses, global_batch_size=BATCH)

        value, gradients = rx.value_and_grad(loss, [w1, w2], compile=way == "loss")
        optimizer.apply_gradients(zip(gradients, [w1, w2], strict=True))
        seen.assign_add(x.shape[0])
        return value

    dataset = rx.data.Dataset.from_tensor_slices((inputs * 2, labels)).repeat(STEPS).batch(BATCH)
    dataset = dataset.map(lambda x, y: (x / 2, y), on_device=way == "function")

    def train_step(batch: Any) -> jax.Array:
        return strategy.reduce("SUM", strategy.run(step, args=batch), axis=None)

    if way == "function":
        train_step = rx.function(train_step)
    batches = strategy.experimental_distribute_dataset(dataset)
    losses = [float(train_step(batch)) for batch in batches]
    assert len(losses) == STEPS
    assert float(seen.read_value()) == STEPS * BATCH
    return losses


def main() -> int:
    accelerators = [d for kind in ("GPU", "TPU") for d in rx.config.list_logical_devices(kind)]
    if not accelerators:
        print("There is no accelerator on this machine; nothing to check.")
        return 1
    first = accelerators[0].name
    chosen = rx.distribute.MirroredStrategy().extended.worker_devices
    assert len(chosen) == len(accelerators), f"MirroredStrategy() took {chosen}"
    strategies: dict[str, Callable[[], Any]] = {
        "one CPU device": lambda: rx.distribute.OneDeviceStrategy("CPU:0"),
        "OneDeviceStrategy": lambda: rx.distribute.OneDeviceStrategy(first),
        "MirroredStrategy": rx.distribute.MirroredStrategy,
        "CentralStorageStrategy": lambda: rx.distribute.CentralStorageStrategy(
            [device.name for device in accelerators], parameter_device="CPU:0"
        ),
        "CPU replicas beside it": lambda: rx.distribute.MirroredStrategy(["CPU:0"]),
    }
    print(f"JAX {jax.__version__}, {len(accelerators)} x {jax.devices()[0].device_kind}")
    expected: list[float] = []
    failures = 0
    for name, make in strategies.items():
        for way in ("eager", "loss", "function"):
            losses = train(make(), way)
            expected = expected or losses
            # Accelerators multiply matrices in lower precision by default.
            same = np.allclose(losses, expected, rtol=2e-2)
            failures += not same
            text = "same losses" if same else f"OTHER LOSSES than {expected[0]} ... {expected[-1]}"
            print(f"{name:24} {way:10}", end=" ")
            print(f"{losses[0]:.4f} -> {losses[-1]:.4f}  {text}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
