"""The Keras models that are trained; the same code for all backends and interpreters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CLASSES = 10


class Case(NamedTuple):
    """A model; how many rows all replicas get together in a step; and how many steps."""

    title: str
    model: str
    sizes: dict[str, int]
    batch: int
    batches: int  # of an epoch


CASES = {
    "mlp_small": Case("MLP, 2 layers of 128", "mlp", {"width": 128, "layers": 2}, 64, 100),
    "mlp_large": Case("MLP, 3 layers of 512", "mlp", {"width": 512, "layers": 3}, 256, 20),
    "cnn_small": Case("convolutions", "cnn", {"width": 16}, 32, 100),
    "cnn_large": Case("convolutions", "cnn", {"width": 16}, 256, 20),
    "transformer_small": Case("transformer", "transformer", {"width": 64, "layers": 2}, 16, 100),
    "transformer_large": Case("transformer", "transformer", {"width": 64, "layers": 2}, 128, 20),
    "tiny_mlp": Case("tiny MLP", "mlp", {"width": 8, "layers": 1}, 8, 4),
    "tiny_cnn": Case("tiny convolutions", "cnn", {"width": 2}, 8, 4),
}

HEADS = 4
# The transformer reads patches, not words: on TensorFlow the gradient of an Embedding is a set of
# rows, with which Keras's Adam learns something else.
_SHAPES = {"mlp": (784,), "cnn": (28, 28, 1), "transformer": (32, 48)}


def data(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of an epoch, and their labels: the same in every process."""
    random = np.random.default_rng(1)
    rows = case.batch * case.batches
    inputs = random.normal(size=(rows, *_SHAPES[case.model])).astype(np.float32)
    return inputs, random.integers(0, CLASSES, rows).astype(np.int32)


def compiled(keras: Any, case: Case) -> Any:
    """Returns the model, ready for `fit`, with weights that are the same in every process."""
    model = _MODELS[case.model](keras, **case.sizes)
    random = np.random.default_rng(2)
    model.set_weights(
        [
            random.normal(size=w.shape).astype(np.float32) / np.sqrt(max(np.prod(w.shape[:-1]), 1))
            if w.ndim > 1
            else w  # biases and the like
            for w in model.get_weights()
        ]
    )
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def _mlp(keras: Any, width: int, layers: int) -> Any:
    dense = keras.layers.Dense
    hidden = [dense(width, activation="relu") for _ in range(layers)]
    return keras.Sequential([keras.layers.Input(_SHAPES["mlp"]), *hidden, dense(CLASSES)])


def _cnn(keras: Any, width: int) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input(_SHAPES["cnn"]),
            layers.Conv2D(width, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * width, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )


def _transformer(keras: Any, width: int, layers: int) -> Any:
    patches = keras.layers.Input(_SHAPES["transformer"])
    stream = keras.layers.Dense(width)(patches)
    for _ in range(layers):
        normal = keras.layers.LayerNormalization()(stream)
        attention = keras.layers.MultiHeadAttention(HEADS, width // HEADS)
        stream = stream + attention(normal, normal)
        hidden = keras.layers.LayerNormalization()(stream)
        hidden = keras.layers.Dense(4 * width, activation="relu")(hidden)
        stream = stream + keras.layers.Dense(width)(hidden)
    mean = keras.layers.GlobalAveragePooling1D()(stream)
    return keras.Model(patches, keras.layers.Dense(CLASSES)(mean))


_MODELS: dict[str, Callable[..., Any]] = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer}
