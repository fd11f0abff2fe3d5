"""Models to train and their data, in NumPy: every library starts from the same numbers.

`losses.py` has their losses in JAX, `tensorflow_steps.py` the same in TensorFlow.
"""

from dataclasses import dataclass

import numpy as np

LEARNING_RATE = 1e-3
# Keras and optax add epsilon before and after the bias correction; a tiny one makes them agree.
EPSILON = 1e-9
CLASSES = 10
MOMENTUM = 0.9  # of the moving averages of batch norm

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Dense:
    """Dense layers with biases; `widths` begins with that of the inputs."""

    widths: tuple[int, ...]

    def weights(self, rng: np.random.Generator) -> Arrays:
        weights = []
        for inputs, outputs in zip((*self.widths, CLASSES), (*self.widths[1:], CLASSES)):
            weights += [_normal(rng, (inputs, outputs), 2 / inputs), np.zeros(outputs, np.float32)]
        return weights

    def averages(self) -> Arrays:
        return []

    def examples(self, rng: np.random.Generator, batch: int) -> tuple[np.ndarray, np.ndarray]:
        return _normal(rng, (batch, self.widths[0])), _integers(rng, CLASSES, (batch,))


@dataclass(frozen=True)
class Conv:
    """3x3 convolutions with batch norm, each of stride 2 but the first; then a dense layer."""

    side: int
    channels: tuple[int, ...]

    def weights(self, rng: np.random.Generator) -> Arrays:
        found = []
        for inputs, outputs in zip(self.channels, self.channels[1:]):
            found.append(_normal(rng, (3, 3, inputs, outputs), 2 / (9 * inputs)))
            found += [np.ones(outputs, np.float32), np.zeros(outputs, np.float32)]
        last = self.channels[-1]
        return [*found, _normal(rng, (last, CLASSES), 1 / last), np.zeros(CLASSES, np.float32)]

    def averages(self) -> Arrays:
        """Returns the moving mean and variance of each batch norm."""
        found = []
        for width in self.channels[1:]:
            found += [np.zeros(width, np.float32), np.ones(width, np.float32)]
        return found

    def examples(self, rng: np.random.Generator, batch: int) -> tuple[np.ndarray, np.ndarray]:
        images = _normal(rng, (batch, self.side, self.side, self.channels[0]))
        return images, _integers(rng, CLASSES, (batch,))


@dataclass(frozen=True)
class Transformer:
    """Blocks of causal self-attention and a hidden layer, behind layer norms; tied embeddings."""

    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int
    dtype: str = "float32"  # of the arithmetic; the weights are float32

    def weights(self, rng: np.random.Generator) -> Arrays:
        width = self.width
        gain, offset = np.ones(width, np.float32), np.zeros(width, np.float32)
        found = [
            _normal(rng, (self.vocabulary, width), 1 / width),
            _normal(rng, (self.length, width), 1 / width),
        ]
        for _ in range(self.layers):
            found += [gain, offset, _normal(rng, (width, 3 * width), 1 / width)]
            found += [_normal(rng, (width, width), 1 / (width * self.layers))]
            found += [gain, offset, _normal(rng, (width, 4 * width), 2 / width)]
            found += [np.zeros(4 * width, np.float32)]
            found += [_normal(rng, (4 * width, width), 1 / (4 * width * self.layers)), offset]
        return [*found, gain, offset]

    def averages(self) -> Arrays:
        return []

    def examples(self, rng: np.random.Generator, batch: int) -> tuple[np.ndarray, np.ndarray]:
        tokens = _integers(rng, self.vocabulary, (batch, self.length + 1))
        return tokens[:, :-1], tokens[:, 1:]


@dataclass(frozen=True)
class Model:
    """What is trained, and on how many examples over all replicas."""

    name: str
    title: str
    net: Dense | Conv | Transformer
    batch: int


MODELS = {
    model.name: model
    for model in (
        # Compiled steps.
        Model("mlp", "few large layers", Dense((512, 1024, 1024)), 128),
        Model("deep_narrow", "fifty layers of 16", Dense((16,) * 51), 64),
        Model("conv", "convolutions, batch norm", Conv(16, (3, 16, 32, 64)), 64),
        Model("transformer", "transformer, 4 layers", Transformer(4, 128, 4, 32, 256), 16),
        Model("small_net", "784-64-10", Dense((784, 64)), 64),
        Model("six_wide", "six layers of 384", Dense((384,) * 6), 256),
        Model(
            "large",  # for an accelerator
            "transformer, 12 layers, 2048 wide, bf16",
            Transformer(12, 2048, 16, 1024, 32768, "bfloat16"),
            16,
        ),
        # Eager steps.
        Model("two-small", "two layers, 64 wide, batch 64", Dense((784, 64)), 64),
        Model("two", "two layers, 512 wide, batch 256", Dense((784, 512)), 256),
        Model("six", "six layers, 256 wide, batch 256", Dense((784, *[256] * 5)), 256),
        Model("deep", "fifty layers, 16 wide, batch 64", Dense((16,) * 50), 64),
        # Steps over processes.
        Model("small", "64 wide, batch 64", Dense((64,) * 3), 64),
        Model("middle", "512 wide, batch 256", Dense((512,) * 3), 256),
        Model("largest", "1024 wide, batch 1024", Dense((1024,) * 3), 1024),
        # Its layers are all different, so that each is compiled.
        Model("many_widths", "24 layers", Dense(tuple(range(64, 160, 4))), 48),
        # Trial runs and calling costs.
        Model("tiny", "two layers of 8", Dense((8, 8)), 16),
        Model("tiny_start", "two layers", Dense((8, 12)), 12),
        Model("tiny_conv", "tiny convolutions", Conv(4, (1, 2, 2)), 16),
        Model("tiny_transformer", "tiny transformer", Transformer(1, 8, 2, 4, 16), 16),
        Model("tiny_large", "tiny transformer, bf16", Transformer(1, 8, 2, 4, 16, "bfloat16"), 16),
    )
}


def initial_weights(model: Model) -> Arrays:
    """Returns all weights, as one flat list."""
    return model.net.weights(np.random.default_rng(0))


def replica_batches(model: Model, replicas: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the inputs and labels of each replica: equal parts of one batch."""
    inputs, labels = model.net.examples(np.random.default_rng(1), model.batch)
    return list(zip(np.split(inputs, replicas), np.split(labels, replicas), strict=True))


def _normal(rng: np.random.Generator, shape: tuple[int, ...], variance: float = 1.0) -> np.ndarray:
    return rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(variance))


def _integers(rng: np.random.Generator, below: int, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, below, shape).astype(np.int32)
