"""Programs whose steps are replayed: `layouts.py FOLDER WHICH`."""

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

folder, which = sys.argv[1:3]
strategy: Any = rx.distribute.MirroredStrategy([f"CPU:{i}" for i in range(4)])
random = np.random.default_rng(0)
optimizer: Any

if which == "transformer":
    from flax import nnx

    class Block(nnx.Module):
        """Attention and two layers, each beside a short way."""

        def __init__(self, rngs: nnx.Rngs):
            self.first, self.second = nnx.LayerNorm(8, rngs=rngs), nnx.LayerNorm(8, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
            self.wide = nnx.Linear(8, 16, rngs=rngs)
            self.narrow = nnx.Linear(16, 8, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.first(x))
            return x + self.narrow(nnx.gelu(self.wide(self.second(x))))

    with strategy.scope():
        model = Block(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    state = {"model": model, "optimizer": optimizer}
    x = random.normal(size=(48, 5, 8)).astype(np.float32)

    def loss_of(model: Any, x: Any) -> Any:
        return rx.nn.share_of_mean(jnp.mean((model(x) - jnp.sin(x)) ** 2, axis=(1, 2)))

    def on_replica(x: Any) -> Any:
        loss, gradients = nnx.value_and_grad(loss_of)(model, x)
        optimizer.update(model, gradients)
        return loss

else:
    if which == "sharded":
        layout = rx.distribute.StateLayout(over_replicas="everything")
        devices = [f"CPU:{i}" for i in range(4)]
        strategy = rx.distribute.MirroredStrategy(devices, state_layout=layout)
    with strategy.scope():
        shapes = [(8, 16), (16,), (16, 1)]
        weights = [
            rx.Variable(random.normal(scale=0.3, size=shape).astype(np.float32), name=f"w{i}")
            for i, shape in enumerate(shapes)
        ]
    x = random.normal(size=(48, 8)).astype(np.float32)

    def losses(x: Any) -> Any:
        w1, b1, w2 = weights
        return ((jnp.tanh(x @ w1 + b1) @ w2)[:, 0] - jnp.sin(x[:, 0])) ** 2

    with strategy.scope():
        optimizer = rx.Optimizer(optax.adam(1e-2))
    state = {"weights": weights, "optimizer": optimizer}

    def on_replica(x: Any) -> Any:
        loss, gradients = rx.value_and_grad(lambda: rx.nn.share_of_mean(losses(x)), weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss


@rx.function
def train_step(x: Any) -> Any:
    return strategy.reduce("SUM", strategy.run(on_replica, args=(x,)), axis=None)


data = rx.data.Dataset.from_tensor_slices(x).shuffle(48, seed=3).batch(8)
manager = rx.train.CheckpointManager(rx.train.Checkpoint(**state), folder)
with rx.debug.Recorder(manager, train_step) as recorder:
    for number, batch in enumerate(strategy.experimental_distribute_dataset(data)):
        train_step(batch)
        if number == 2:
            manager.save()
    recorder.save(6)
