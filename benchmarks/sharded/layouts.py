"""One training step with a batch and state cut over replicas, written three ways.

The layouts are those of `rx.distribute.StateLayout(over_replicas=...)`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import replicax as rx
from benchmarks.training.jax_steps import AXIS, PlainJax, Replicax, mirrored
from benchmarks.training.losses import loss_and_statistics
from benchmarks.training.models import Model, Transformer, initial_weights, replica_batches
from replicax._src._typing import Device

TRANSFORMERS = {
    model.name: model
    for model in (
        Model("large", "transformer, 50M parameters", Transformer(12, 512, 8, 64, 24576), 16),
        Model("small", "transformer, 4M parameters", Transformer(4, 256, 8, 32, 4096), 8),
        Model("tiny", "tiny transformer", Transformer(1, 128, 4, 32, 1024), 8),
    )
}
# Smaller arrays stay whole, however the step is written.
SMALLEST_CUT = 4096


def in_layout(model: Model, devices: list[Device], layout: str) -> Replicax:
    """Returns our step."""
    state = rx.distribute.StateLayout(over_replicas=layout, min_size=SMALLEST_CUT)
    return Replicax(model, mirrored(devices, state_layout=state))


class ShardedByHand(PlainJax):
    """What both ways by hand share: how the arrays are placed.

    Attributes:
      updating: how the weights are cut while they are updated.
      specs: how the weights and the optimizer's state are cut between steps.
    """

    def __init__(self, model: Model, devices: list[Device], layout: str):
        self.model, self.layout = model, layout
        self.mesh = Mesh(np.array(devices), (AXIS,))
        weights = initial_weights(model)
        shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in weights]
        all_shapes = shapes, jax.eval_shape(self.transformation.init, shapes)
        whole = jax.tree.map(lambda _: P(), all_shapes)
        cut = jax.tree.map(lambda each: cut_spec(each.shape, len(devices)), all_shapes)
        self.updating = whole[0] if layout == "nothing" else cut[0]
        self.specs = {
            "nothing": whole,
            "optimizer": (whole[0], cut[1]),
            "everything": cut,
        }[layout]
        placed = jax.device_put(weights, self.shardings(self.specs[0]))
        init = jax.jit(self.transformation.init, out_shardings=self.shardings(self.specs[1]))
        self.state = placed, init(placed)
        self.batch = jax.device_put(replica_batches(model, 1)[0], self.shardings(P(AXIS)))
        self.function = self.compiled()

    @abstractmethod
    def compiled(self) -> Callable[..., Any]:
        """Returns the program."""

    def loss(self, weights: Any, inputs: jax.Array, labels: jax.Array) -> jax.Array:
        return loss_and_statistics(self.model, weights, inputs, labels)[0]

    def shardings(self, specs: Any) -> Any:
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs)


class Annotated(ShardedByHand):
    """`jax.jit` of the step for the whole batch; the compiler derives what is communicated."""

    def compiled(self) -> Callable[..., Any]:
        whole = [P() for _ in self.updating]

        def annotated_step(all_state, inputs, labels):
            weights, state = all_state
            used = self.constrained(weights, whole)
            loss, gradients = jax.value_and_grad(self.loss)(used, inputs, labels)
            gradients = self.constrained(gradients, self.updating)
            weights = self.constrained(weights, self.updating)
            weights, state = self.updated(gradients, weights, state)
            return loss, (self.constrained(weights, self.updating), state)

        layout = self.shardings((P(), self.specs))
        return jax.jit(annotated_step, donate_argnums=0, out_shardings=layout)

    def constrained(self, arrays: Any, specs: Any) -> Any:
        return jax.lax.with_sharding_constraint(arrays, self.shardings(specs))


class Mapped(ShardedByHand):
    """`jax.shard_map`, with the communication written out."""

    def compiled(self) -> Callable[..., Any]:
        def mapped_step(all_state, inputs, labels):
            weights, state = all_state
            is_cut = self.layout == "everything"
            used = each(gathered, weights, self.updating) if is_cut else weights
            loss, gradients = jax.value_and_grad(self.loss)(used, inputs, labels)
            gradients = each(summed, gradients, self.updating)
            parts = weights if is_cut else each(own_part, weights, self.updating)
            parts, state = self.updated(gradients, parts, state)
            weights = parts if is_cut else each(gathered, parts, self.updating)
            return jax.lax.psum(loss, AXIS), (weights, state)

        mapped = jax.shard_map(
            mapped_step,
            mesh=self.mesh,
            in_specs=(self.specs, P(AXIS), P(AXIS)),
            out_specs=(P(), self.specs),
            check_vma=False,
        )
        return jax.jit(mapped, donate_argnums=0)


def each(fn: Callable[..., Any], arrays: Iterable[Any], specs: Iterable[P]) -> list[Any]:
    """Returns `fn` of each array and of the dimension along which it is cut, if it is."""
    return [fn(array, len(spec) - 1 if spec else None) for array, spec in zip(arrays, specs)]


def gathered(part: jax.Array, dim: int | None) -> jax.Array:
    return part if dim is None else jax.lax.all_gather(part, AXIS, axis=dim, tiled=True)


def summed(array: jax.Array, dim: int | None) -> jax.Array:
    if dim is None:
        return jax.lax.psum(array, AXIS)
    return jax.lax.psum_scatter(array, AXIS, scatter_dimension=dim, tiled=True)


def own_part(array: jax.Array, dim: int | None) -> jax.Array:
    if dim is None:
        return array
    size = array.shape[dim] // jax.lax.axis_size(AXIS)
    return jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index(AXIS) * size, size, dim)


def cut_spec(shape: tuple[int, ...], parts: int) -> P:
    """Returns a cut along the first dimension that can be cut."""
    if np.prod(shape) >= SMALLEST_CUT:
        for dim, size in enumerate(shape):
            if size % parts == 0:
                return P(*[None] * dim, AXIS)
    return P()


WAYS = {"replicax": in_layout, "annotated": Annotated, "mapped": Mapped}
