"""A worker of `multi_worker.py` in replicax: `MultiWorkerMirroredStrategy` in an `rx.function`."""

import json
import os

import jax
import jax.numpy as jnp
from _multi_worker_by_hand import cache, launching
from _multi_worker_saving import saving
from _step_losses import loss_and_statistics
from _step_models import Model, initial_weights, replica_batches
from _step_variants import adam
from _workers import Requests, Train, arguments, serve, training

import replicax as rx


def start() -> tuple[str, Requests]:
    rank, addresses = arguments()
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
    )
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    strategy = rx.distribute.MultiWorkerMirroredStrategy()

    def prepare(model: Model) -> Train:
        with strategy.scope():
            weights = [rx.Variable(weight) for weight in initial_weights(model)]
            optimizer = rx.Optimizer(adam())
            optimizer.build(weights)

        def replica_step(inputs, labels):
            loss, gradients = rx.value_and_grad(
                lambda: loss_and_statistics(model, weights, inputs, labels)[0], weights
            )
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return loss

        @rx.function
        def replicax_step(batch):
            losses = strategy.run(replica_step, args=batch)
            return strategy.reduce("SUM", losses, axis=None)

        parts = replica_batches(model, strategy.num_replicas_in_sync)

        def part(index: int):
            return strategy.experimental_distribute_values_from_function(
                lambda context: jnp.asarray(parts[context.replica_id_in_sync_group][index])
            )

        batch = part(0), part(1)
        return launching(lambda: replicax_step(batch))

    return jax.__version__, training(prepare) | cache() | saving(strategy, rank)


if __name__ == "__main__":
    serve(start)
