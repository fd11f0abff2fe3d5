"""One training step of a convolutional net on images split over logical devices, two ways.

A replica has four of them, and its images are cut in two in height and in width. The exchange of
the seams is the compiler's work.
"""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.training.jax_steps import PlainJax, Replicax, mirrored
from benchmarks.training.losses import loss_and_statistics
from benchmarks.training.models import Conv, Model, initial_weights, replica_batches
from replicax._src._typing import Device

CONVS = {
    model.name: model
    for model in (
        Model("large", "convolutions of 128 x 128", Conv(128, (3, 32, 64, 64)), 16),
        Model("small", "convolutions of 64 x 64", Conv(64, (3, 16, 32, 32)), 8),
        Model("tiny", "tiny convolutions", Conv(8, (1, 4, 4)), 4),
    )
}
PARTS = (2, 2)  # of height and width
LOGICAL_DEVICES = 4
AXES = ("data", "height", "width")


class SplitReplicax(Replicax):
    """Ours: one line in the replica's step says how its images are split."""

    def __init__(self, model: Model, devices: list[Device]):
        super().__init__(model, mirrored(devices, logical_devices_per_replica=LOGICAL_DEVICES))

    def laid_out(self, inputs: jax.Array) -> jax.Array:
        return self.strategy.experimental_split_to_logical_devices(inputs, [1, *PARTS, 1])


class SplitAnnotated(PlainJax):
    """`jax.jit` of the step for the whole batch, which is sharded over a mesh with three axes."""

    def __init__(self, model: Model, devices: list[Device]):
        replicas = len(devices) // LOGICAL_DEVICES
        mesh = Mesh(np.array(devices).reshape(replicas, *PARTS), AXES)
        whole, split, rows = (NamedSharding(mesh, spec) for spec in (P(), P(*AXES), P(AXES[0])))
        placed = jax.device_put(initial_weights(model), whole)
        self.state = placed, jax.jit(self.transformation.init, out_shardings=whole)(placed)
        images, labels = replica_batches(model, 1)[0]
        self.batch = jax.device_put(images, split), jax.device_put(labels, rows)

        def annotated_step(all_state, images, labels):
            weights, state = all_state

            def loss_of(weights):
                return loss_and_statistics(model, weights, images, labels, replicas)[0]

            loss, gradients = jax.value_and_grad(loss_of)(weights)
            return loss, self.updated(gradients, weights, state)

        self.function = jax.jit(annotated_step, donate_argnums=0, out_shardings=whole)


SPLIT_WAYS = {"replicax": SplitReplicax, "annotated": SplitAnnotated}
