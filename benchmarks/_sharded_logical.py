"""One training step of a convolutional net on images split over logical devices, two ways.

A replica has four of them, and its images are cut in two in height and in width. The exchange of
the seams is the compiler's work.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from _sharded_programs import ByHand, OfReplicax, Variant, device_names
from _step_losses import loss_and_statistics
from _step_models import Model, initial_weights, replica_batches
from _step_variants import adam
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import replicax as rx

PARTS = (2, 2)  # of height and width
LOGICAL_DEVICES = 4
AXES = ("data", "height", "width")


class SplitReplicax(OfReplicax):
    """Ours: one line in the replica's step says how its images are split."""

    def __init__(self, model: Model, devices: list[Any]):
        strategy = rx.distribute.MirroredStrategy(
            device_names(devices), logical_devices_per_replica=LOGICAL_DEVICES
        )
        super().__init__(model, strategy)

    def laid_out(self, inputs: jax.Array) -> jax.Array:
        return self.strategy.experimental_split_to_logical_devices(inputs, [1, *PARTS, 1])


class SplitAnnotated(ByHand):
    """`jax.jit` of the step for the whole batch, which is sharded over a mesh with three axes."""

    def __init__(self, model: Model, devices: list[Any]):
        replicas = len(devices) // LOGICAL_DEVICES
        mesh = Mesh(np.array(devices).reshape(replicas, *PARTS), AXES)
        whole, split, rows = (NamedSharding(mesh, spec) for spec in (P(), P(*AXES), P(AXES[0])))
        transformation = adam()
        placed = jax.device_put(initial_weights(model), whole)
        self.state = placed, jax.jit(transformation.init, out_shardings=whole)(placed)
        images, labels = replica_batches(model, 1)[0]
        self.batch = jax.device_put(images, split), jax.device_put(labels, rows)

        def annotated_step(all_state, images, labels):
            weights, state = all_state

            def loss_of(weights):
                return loss_and_statistics(model, weights, images, labels, replicas)[0]

            loss, gradients = jax.value_and_grad(loss_of)(weights)
            updates, state = transformation.update(gradients, state, weights)
            return loss, (optax.apply_updates(weights, updates), state)

        self.function = jax.jit(annotated_step, donate_argnums=0, out_shardings=whole)


SPLIT_WAYS: dict[str, Callable[..., Variant]] = {
    "replicax": SplitReplicax,
    "annotated": SplitAnnotated,
}
