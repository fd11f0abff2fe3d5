"""A function that never gets even shares runs as Python each time: somebody should know."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import mirrored


def total_of(strategy: Any) -> Any:
    @rx.function
    def total(x: Any) -> Any:
        return sum(jnp.sum(part) for part in strategy.experimental_local_results(x))

    return total


def batches(strategy: Any, size: int, rows: int) -> Any:
    dataset = rx.data.Dataset.from_tensor_slices(np.ones(rows, np.float32)).batch(size)
    return strategy.experimental_distribute_dataset(dataset)


def test_many_uneven_calls_in_a_row_get_one_warning():
    strategy = mirrored(4)
    total = total_of(strategy)
    text = r"'total' has run as plain Python 10 times.*\(8,\), \(6,\)"
    with pytest.warns(UserWarning, match=text):
        for x in batches(strategy, 30, 300):
            assert float(total(x)) == 30
    for x in batches(strategy, 30, 300):  # once is enough
        total(x)


def test_the_last_batch_of_epochs_does_not():
    strategy = mirrored(4)
    total = total_of(strategy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(12):
            assert [float(total(x)) for x in batches(strategy, 8, 14)] == [8, 6]
