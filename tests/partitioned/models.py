"""Models for tests of partitioned replicas: functions of weights, and a step that trains them.

A model is written once. Where its tensors are to be split it says so to `Marks`, which are the
annotations of a strategy, or nothing at all for the run on one device that the others must equal.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx
from tests.under_test import cpus

BATCH = 16
BATCHES = 3  # that a run goes through again and again


@dataclasses.dataclass(frozen=True)
class MeshOf:
    """Replicas of logical devices, and how an image is divided over these.

    Attributes:
      replicas: how many there are.
      height: into how many parts an image is split.
      width: the same.
    """

    replicas: int
    height: int = 1
    width: int = 1

    @property
    def logical(self) -> int:
        """The number of logical devices of a replica."""
        return self.height * self.width

    @property
    def devices(self) -> int:
        """The number of all devices."""
        return self.replicas * self.logical


MESHES = {
    "8x1": MeshOf(8),
    "4x2": MeshOf(4, 2),
    "2x4": MeshOf(2, 4),
    "1x8": MeshOf(1, 2, 4),
    "2x(2x2)": MeshOf(2, 2, 2),
}


def mirrored_on(mesh: MeshOf, **kwargs: Any) -> Any:
    """A MirroredStrategy on the first virtual devices."""
    return rx.distribute.MirroredStrategy(
        cpus(mesh.devices), logical_devices_per_replica=mesh.logical, **kwargs
    )


def tpu_on(mesh: MeshOf, **kwargs: Any) -> Any:
    """A TPUStrategy on them, by a device assignment."""
    resolver = rx.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    topology = rx.tpu.experimental.initialize_tpu_system(resolver)
    shape = {1: [1, 1, 1, 1], 2: [1, 1, 1, 2], 4: [1, 2, 1, 2], 8: [1, 2, 2, 2]}[mesh.logical]
    assignment = rx.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=shape, num_replicas=mesh.replicas
    )
    return rx.distribute.TPUStrategy(resolver, assignment, **kwargs)


def state_layout(over_replicas: str = "nothing", **kwargs: Any) -> Any:
    """A StateLayout that cuts however small a variable is."""
    return rx.distribute.StateLayout(over_replicas=over_replicas, min_size=1, **kwargs)


class Marks:
    """The annotations of a strategy for the tensors of a model on a mesh."""

    def __init__(self, strategy: Any, mesh: MeshOf):
        self._strategy = strategy
        self._mesh = mesh

    def image(self, tensor: Any) -> Any:
        """Split in height and width."""
        parts = [1, self._mesh.height, self._mesh.width, 1]
        return self._strategy.experimental_split_to_logical_devices(tensor, parts)

    def last(self, tensor: Any) -> Any:
        """Split in the last dimension."""
        parts = [1] * (tensor.ndim - 1) + [self._mesh.logical]
        return self._strategy.experimental_split_to_logical_devices(tensor, parts)

    def everywhere(self, tensor: Any) -> Any:
        """On all logical devices."""
        return self._strategy.experimental_replicate_to_logical_devices(tensor)


class NoMarks(Marks):
    """For a model on one device."""

    def __init__(self) -> None:
        pass

    def image(self, tensor: Any) -> Any:
        return tensor

    last = everywhere = image


@dataclasses.dataclass(frozen=True)
class Model:
    """A model and its data.

    Attributes:
      weights: their initial values by name.
      inputs: of all batches, [BATCHES, BATCH, ...].
      labels: the same.
      losses: `losses(weights, x, y, marks)`, one for each example.
      layouts: how weights are split over so many logical devices, by a pattern of their names.
    """

    weights: dict[str, np.ndarray]
    inputs: np.ndarray
    labels: np.ndarray
    losses: Callable[[dict[str, Any], Any, Any, Marks], Any]
    layouts: Callable[[int], dict[str, list[int]]]

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """The batch of a step."""
        return self.inputs[step % BATCHES], self.labels[step % BATCHES]


def _random(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype(np.float32)


def _normalised(x: Any, dims: Sequence[int]) -> Any:
    mean = jnp.mean(x, axis=dims, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, axis=dims, keepdims=True) + 1e-3)


# --- a dense net ----------------------------------------------------------------------------------


def _dense_losses(w: dict[str, Any], x: Any, y: Any, marks: Marks) -> Any:
    hidden = marks.last(jnp.tanh(x @ w["in/w"] + w["in/b"]))
    out = marks.everywhere(hidden @ w["out/w"] + w["out/b"])
    return jnp.mean(jnp.square(out - y), axis=-1)


def dense() -> Model:
    """Two layers; the first is split by its outputs, the second by its inputs."""
    return Model(
        weights={
            "in/w": _random(1, 16, 32, scale=0.3),
            "in/b": _random(2, 32, scale=0.1),
            "out/w": _random(3, 32, 8, scale=0.3),
            "out/b": _random(4, 8, scale=0.1),
        },
        inputs=_random(5, BATCHES, BATCH, 16),
        labels=_random(6, BATCHES, BATCH, 8),
        losses=_dense_losses,
        layouts=lambda n: {"in/w": [1, n], "in/b": [n], "out/w": [n, 1]},
    )


# --- a convolutional net --------------------------------------------------------------------------


def convolved(x: Any, kernel: Any, stride: int = 1) -> Any:
    """A convolution of images [batch, height, width, channel] that keeps their edges."""
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _convolutional_losses(w: dict[str, Any], x: Any, y: Any, marks: Marks) -> Any:
    x = marks.image(x)
    x = jax.nn.gelu(_normalised(convolved(x, w["conv1/w"]) + w["conv1/b"], (1, 2)))
    x = marks.image(x)
    x = jax.nn.gelu(convolved(x, w["conv2/w"], stride=2))
    logits = marks.everywhere(jnp.mean(x, axis=(1, 2)) @ w["out/w"] + w["out/b"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, y)


def convolutional() -> Model:
    """Two convolutions over images that are split in height and width; all weights whole."""
    return Model(
        weights={
            "conv1/w": _random(1, 3, 3, 3, 8, scale=0.3),
            "conv1/b": _random(2, 8, scale=0.1),
            "conv2/w": _random(3, 3, 3, 8, 16, scale=0.2),
            "out/w": _random(4, 16, 8, scale=0.3),
            "out/b": _random(5, 8, scale=0.1),
        },
        inputs=_random(6, BATCHES, BATCH, 8, 8, 3),
        labels=np.random.default_rng(7).integers(0, 8, (BATCHES, BATCH)),
        losses=_convolutional_losses,
        layouts=lambda n: {},
    )


# --- a transformer block --------------------------------------------------------------------------

HEADS = 2


def _attended(w: dict[str, Any], x: Any) -> Any:
    batch, length, size = x.shape
    q, k, v = jnp.split(x @ w["attention/in"], 3, axis=-1)
    q, k, v = (each.reshape(batch, length, HEADS, size // HEADS) for each in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(size // HEADS)
    mask = np.tril(np.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, size)
    return mixed @ w["attention/out"]


def _transformer_losses(w: dict[str, Any], x: Any, y: Any, marks: Marks) -> Any:
    x = x + _attended(w, _normalised(x, (-1,)) * w["attention/scale"])
    hidden = _normalised(x, (-1,)) * w["ffn/scale"] @ w["ffn/in/w"] + w["ffn/in/b"]
    hidden = marks.last(jax.nn.gelu(hidden))
    x = x + marks.everywhere(hidden @ w["ffn/out/w"])
    return jnp.mean(jnp.square(x - y), axis=(1, 2))


def transformer() -> Model:
    """A block of attention and a feed-forward that is split over the logical devices."""
    return Model(
        weights={
            "attention/scale": np.ones(16, np.float32),
            "attention/in": _random(1, 16, 48, scale=0.2),
            "attention/out": _random(2, 16, 16, scale=0.2),
            "ffn/scale": np.ones(16, np.float32),
            "ffn/in/w": _random(3, 16, 64, scale=0.2),
            "ffn/in/b": _random(4, 64, scale=0.1),
            "ffn/out/w": _random(5, 64, 16, scale=0.2),
        },
        inputs=_random(6, BATCHES, BATCH, 4, 16),
        labels=_random(7, BATCHES, BATCH, 4, 16),
        losses=_transformer_losses,
        layouts=lambda n: {"ffn/in/w": [1, n], "ffn/in/b": [n], "ffn/out/w": [n, 1]},
    )


MODELS: dict[str, Callable[[], Model]] = {
    "dense": dense,
    "convolutional": convolutional,
    "transformer": transformer,
}


# --- training -------------------------------------------------------------------------------------


def plain_losses(model: Model, transformation: Any, steps: int) -> list[float]:
    """The losses of a run on one device, in plain JAX."""

    @jax.jit
    def step(weights: Any, state: Any, x: Any, y: Any) -> Any:
        def loss_of(weights: Any) -> Any:
            named = dict(zip(model.weights, weights, strict=True))
            return jnp.mean(model.losses(named, x, y, NoMarks()))

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        updates, state = transformation.update(gradients, state, weights)
        return loss, optax.apply_updates(weights, updates), state

    weights: Any = [jnp.asarray(each) for each in model.weights.values()]
    state = transformation.init(weights)
    losses = []
    for number in range(steps):
        loss, weights, state = step(weights, state, *model.batch(number))
        losses.append(float(loss))
    return losses


@functools.cache
def expected_losses(name: str, steps: int = 20) -> tuple[float, ...]:
    """Those of a model with Adam."""
    return tuple(plain_losses(MODELS[name](), adam(), steps))


def adam() -> Any:
    """The optimizer of most runs."""
    return optax.adam(3e-3)


class Task:
    """A model under a strategy, with its optimizer and a step over each replica's share.

    Args:
      strategy: the strategy.
      mesh: what it was made for.
      model: the model.
      transformation: of optax.
      by_layout: whether the weights are given their layouts one by one; otherwise by the rules of
        the strategy, if it has any.
      compile_loss: as of `rx.value_and_grad`.
    """

    def __init__(
        self,
        strategy: Any,
        mesh: MeshOf,
        model: Model,
        transformation: Any,
        *,
        by_layout: bool = False,
        compile_loss: bool = False,
    ):
        self.strategy = strategy
        self._model = model
        self._marks = Marks(strategy, mesh)
        self._compile_loss = compile_loss
        layouts = model.layouts(mesh.logical) if by_layout else {}
        with strategy.scope():
            self.variables = {
                name: rx.Variable(value, name=name, layout=layouts.get(name))
                for name, value in model.weights.items()
            }
            self.optimizer = rx.Optimizer(transformation)
            self.optimizer.build(list(self.variables.values()))

    def batch(self, step: int) -> tuple[Any, Any]:
        """The batch of a step, by replica."""
        rows = BATCH // self.strategy.num_replicas_in_sync

        def share(array: np.ndarray) -> Any:
            return self.strategy.experimental_distribute_values_from_function(
                lambda context: jnp.asarray(array[context.replica_id_in_sync_group * rows :][:rows])
            )

        x, y = self._model.batch(step)
        return share(x), share(y)

    def replica_step(self, x: Any, y: Any) -> Any:
        """What each replica does; the same with any mesh and any layout of the state."""
        variables = list(self.variables.values())

        def loss() -> Any:
            weights = {name: each.value() for name, each in self.variables.items()}
            losses = self._model.losses(weights, x, y, self._marks)
            return rx.nn.compute_average_loss(losses, global_batch_size=BATCH)

        value, gradients = rx.value_and_grad(loss, variables, compile=self._compile_loss)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return value

    def step(self, x: Any, y: Any) -> Any:
        """A step of all replicas: their losses added up."""
        return self.strategy.reduce("SUM", self.strategy.run(self.replica_step, (x, y)), axis=None)

    @functools.cached_property
    def _compiled_step(self) -> Any:
        return rx.function(self.step)

    def losses(self, steps: int, *, compiled: bool) -> list[float]:
        """Trains; the loss of each step."""
        step = self._compiled_step if compiled else self.step
        batches = [self.batch(number) for number in range(BATCHES)]
        return [float(step(*batches[number % BATCHES])) for number in range(steps)]
