"""A program for graphs and sessions, ported: what a session ran is a function that is called."""

import jax.numpy as jnp
import numpy as np

import replicax as rx

xs = np.arange(8, dtype=np.float32)
strategy = rx.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

with strategy.scope():
    dataset = rx.data.Dataset.from_tensor_slices(xs).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    weight = rx.Variable(2.0, name="weight")

    def replica_fn(x):
        return jnp.sum(x * weight)

    @rx.function
    def total_of_step():
        per_replica = strategy.run(replica_fn, args=(iterator.get_next(),))
        total = strategy.reduce(rx.distribute.ReduceOp.SUM, per_replica, axis=None)
        return total

    for _ in range(2):
        print("total", total_of_step())
