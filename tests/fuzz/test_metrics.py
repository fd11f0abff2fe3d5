"""Metrics beside those of Keras: random batches, shapes, dtypes and weights.

Left out is what Keras cannot do, or does otherwise for reasons that are not ours: in its
`MeanSquaredError` and `MeanAbsoluteError` a batch of one dimension is a single example, and labels
take the dtype of the predictions, be it a narrower one.
"""

import os
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx

os.environ.setdefault("KERAS_BACKEND", "jax")
keras: Any = pytest.importorskip("keras")

LAW = "A metric gives what the same metric of Keras gives."
COUNT = 20

VALUES = ["Sum", "Mean"]
EQUAL_SHAPES = [
    *("Accuracy", "BinaryAccuracy", "MeanSquaredError", "MeanAbsoluteError"),
    "RootMeanSquaredError",
]
CLASSES = ["CategoricalAccuracy", "SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy"]
ROWS_NEEDED = ["MeanSquaredError", "MeanAbsoluteError"]
FLOATS = ["float32", "float16", "bfloat16"]
DTYPES = [*FLOATS, "int32", "uint8", "bool"]


class Batch:
    """The arguments of one `update_state`."""

    def __init__(self, random: np.random.Generator, metric: str):
        self.random = random
        least = 2 if metric in ROWS_NEEDED else 1 if metric in CLASSES else 0
        rank = int(random.integers(least, 4))
        shape = tuple(1 if random.random() < 0.3 else 3 for _ in range(rank))  # few to compile
        if metric in VALUES:
            self.arguments = [self.array(shape, self.pick(DTYPES))]
            looks_like = shape
        elif metric in EQUAL_SHAPES:
            dtype = self.pick(FLOATS if metric != "Accuracy" else DTYPES)
            pair = [self.array(shape, dtype), self.array(shape, dtype)]
            if rank == 2 and shape[1] == 1 and metric not in ROWS_NEEDED:
                side = int(random.integers(3))  # which of the two, if any, lacks a dimension
                pair = [each[:, 0] if number == side else each for number, each in enumerate(pair)]
            self.arguments = pair
            looks_like = shape[:-1] if metric in ROWS_NEEDED else shape
        else:
            self.arguments, looks_like = self.classes(metric, shape)
        self.weight = self.weights(looks_like)

    def pick(self, options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def array(self, shape: tuple[int, ...], dtype: str, least: float = -0.5) -> Any:
        numbers = self.random.integers(0, 2 if dtype == "bool" else 5, size=shape)
        if dtype in FLOATS:
            numbers = numbers / 4 + least
        array = jnp.asarray(numbers, dtype)
        return np.asarray(array) if self.random.random() < 0.3 else array

    def classes(self, metric: str, shape: tuple[int, ...]) -> tuple[list[Any], tuple[int, ...]]:
        scores = self.array(shape, self.pick(FLOATS))
        if metric == "CategoricalAccuracy":
            return [self.array(shape, "float32"), scores], shape[:-1]
        labels = self.random.integers(0, shape[-1], size=shape[:-1])
        if len(shape) == 1:  # which Keras has no labels for
            return [labels[None], scores[None]], (1,)
        if metric == "SparseCategoricalAccuracy" and self.random.random() < 0.3:
            return [labels[..., None], scores], shape[:-1]
        return [labels, scores], shape[:-1]

    def weights(self, shape: tuple[int, ...]) -> Any:
        """None, or weights that fit values of this shape."""
        fitting = [None, (), shape, shape[:1], shape[:-1], (*shape, 1)]
        fitting += [(*shape[:-1], 1)] if shape else []
        fitting += [tuple(1 for _ in shape)]
        chosen = self.pick(fitting)
        return None if chosen is None else self.array(chosen, self.pick(["float32", "int32"]), 0)

    def __str__(self) -> str:
        return f"update_state({', '.join(map(_text, self.arguments))}, {_text(self.weight)})"


def _text(array: Any) -> str:
    return "None" if array is None else f"{array.dtype}{np.asarray(array).tolist()}"


def program(seed: int) -> int:
    """Updates a random metric some times, and compares it after each."""
    random = np.random.default_rng(seed)
    names = [*VALUES, *EQUAL_SHAPES, *CLASSES]
    name = names[int(random.integers(len(names)))]
    options = {"k": int(random.integers(1, 5))} if "TopK" in name else {}
    ours, theirs = getattr(rx.metrics, name)(**options), getattr(keras.metrics, name)(**options)
    lines = [f"metric = {name}({options or ''})"]
    comparisons = 0
    for _ in range(int(random.integers(1, 4))):
        batch = Batch(random, name)
        try:
            theirs.update_state(*batch.arguments, sample_weight=batch.weight)
        except (ValueError, TypeError):  # what does not fit there need not fit here
            break
        lines.append(str(batch))
        description = "\n".join(lines)
        try:
            ours.update_state(*batch.arguments, sample_weight=batch.weight)
        except Exception as error:
            raise AssertionError(f"{error!r}, in\n{description}") from error
        mine, other = float(ours.result()), float(theirs.result())
        # Keras computes the errors of short floats in short floats.
        short = any(str(each.dtype) in ("float16", "bfloat16") for each in batch.arguments)
        tolerance = 2e-2 if short or comparisons else 1e-5
        close = np.allclose(mine, other, tolerance, tolerance, equal_nan=True)
        assert close, f"{mine}, and in Keras {other}, after\n{description}"
        comparisons += 1
    return comparisons


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_programs(seed: int):
    program(seed)
