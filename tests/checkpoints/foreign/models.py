"""The models that were trained in TensorFlow, and go on here: Keras alone, for either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

STEPS, BATCH = 50, 8


def cnn(keras: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    model.compile(
        keras.optimizers.Adam(1e-2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def transformer(keras: Any) -> Any:
    layers = keras.layers

    class Block(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.attention = layers.MultiHeadAttention(2, 4, use_bias=False)
            self.norms = [layers.LayerNormalization(), layers.LayerNormalization()]
            self.inner = keras.Sequential([layers.Dense(16, activation="gelu"), layers.Dense(8)])

        def call(self, x: Any) -> Any:
            x = self.norms[0](x + self.attention(x, x))
            return self.norms[1](x + self.inner(x))

    class Transformer(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = layers.Embedding(12, 8)
            self.places = layers.Embedding(6, 8)
            self.blocks = [Block(), Block()]
            self.head = layers.Dense(12)

        def call(self, x: Any) -> Any:
            x = self.tokens(x) + self.places(keras.ops.arange(6))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    model = Transformer()
    model.compile(
        keras.optimizers.AdamW(1e-2, weight_decay=1e-2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def wide_and_deep(keras: Any) -> Any:
    layers = keras.layers
    wide, deep = keras.Input((10,), name="wide"), keras.Input((3,), dtype="int32", name="deep")
    hidden = layers.Flatten()(layers.Embedding(24, 4)(deep))
    for units in (16, 8):
        hidden = layers.Dense(units, activation="relu")(hidden)
    both = layers.Concatenate()([wide, hidden])
    model = keras.Model({"wide": wide, "deep": deep}, layers.Dense(1, activation="sigmoid")(both))
    model.compile(keras.optimizers.Adam(5e-3), keras.losses.BinaryCrossentropy())
    return model


MODELS: dict[str, Callable[[Any], Any]] = {
    "cnn": cnn,
    "transformer": transformer,
    "wide_and_deep": wide_and_deep,
}


def data_for(name: str, part: int) -> tuple[Any, np.ndarray]:
    """Returns the inputs and labels of 50 steps: the first part, and the one after the save."""
    random = np.random.Generator(np.random.PCG64(part))
    rows = STEPS * BATCH
    if name == "cnn":
        x: Any = random.normal(size=(rows, 8, 8, 1)).astype(np.float32)
        return x, (x[:, :4].mean((1, 2, 3)) > 0).astype(np.int32)
    if name == "transformer":
        x = random.integers(0, 12, (rows, 6)).astype(np.int32)
        return x, (x + np.roll(x, 1, axis=1)) % 12
    wide = random.normal(size=(rows, 10)).astype(np.float32)
    # No id twice in a batch: Keras on TensorFlow squares the gradients of such rows one by one.
    deep = np.concatenate([random.permutation(24).reshape(BATCH, 3) for _ in range(STEPS)])
    deep = deep.astype(np.int32)
    y = (wide[:, 0] + (deep[:, 0] - 12) / 12 > 0).astype(np.float32)[:, None]
    return {"wide": wide, "deep": deep}, y


def train(keras: Any, model: Any, name: str, part: int) -> list[float]:
    """Makes 50 steps; returns the mean loss up to each of them."""
    losses: list[float] = []

    class Losses(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            losses.append(float(logs["loss"]))

    x, y = data_for(name, part)
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Losses()])
    return losses


def built(keras: Any, name: str) -> Any:
    """Returns a model with all its variables, and with those of its optimizer."""
    model = MODELS[name](keras)
    if not model.built:
        model(data_for(name, 0)[0][:1])
    model.optimizer.build(model.trainable_variables)
    return model


def values_of(model: Any) -> dict[str, np.ndarray]:
    """Returns the weights, and the state of the optimizer."""
    found = {f"weights/{i}": np.asarray(each) for i, each in enumerate(model.get_weights())}
    state = {f"optimizer/{i}": np.asarray(v) for i, v in enumerate(model.optimizer.variables)}
    return found | state
