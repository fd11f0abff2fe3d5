"""The models and data of `eager.py`, in numpy: both libraries start from the same numbers."""

import time
from dataclasses import dataclass

import numpy as np

LEARNING_RATE = 1e-3
# Keras and optax add epsilon before and after the bias correction; a tiny one makes them agree.
EPSILON = 1e-9
CLASSES = 10
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Case:
    """One model: the width of each layer, inputs first, and the batch over all replicas."""

    name: str
    title: str
    widths: tuple[int, ...]
    batch: int


CASES = {
    case.name: case
    for case in (
        Case("two-small", "two layers, 64 wide, batch 64", (784, 64, CLASSES), 64),
        Case("two", "two layers, 512 wide, batch 256", (784, 512, CLASSES), 256),
        Case("six", "six layers, 256 wide, batch 256", (784, *[256] * 5, CLASSES), 256),
        Case("deep", "fifty layers, 16 wide, batch 64", (*[16] * 50, CLASSES), 64),
    )
}


def initial_weights(case: Case) -> list[np.ndarray]:
    """The kernel and bias of every layer, as one flat list."""
    rng = np.random.default_rng(0)
    weights = []
    for inputs, outputs in zip(case.widths, case.widths[1:], strict=False):
        kernel = rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
        weights += [kernel.astype(np.float32), np.zeros(outputs, np.float32)]
    return weights


def replica_batches(case: Case, replicas: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The inputs and labels of each replica: equal parts of one batch."""
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((case.batch, case.widths[0])).astype(np.float32)
    labels = rng.integers(0, CLASSES, case.batch).astype(np.int32)
    parts = zip(np.split(inputs, replicas), np.split(labels, replicas), strict=True)
    return list(parts)
