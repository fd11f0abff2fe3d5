"""A compiled training loop over data sets of other libraries, shared out by a strategy."""

from typing import Any

import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import mirrored

X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
Y = X @ np.array([1, -2, 3], np.float32)
BATCH = 8  # the last batch has 6 rows


def trained(source: Any) -> np.ndarray:
    """The weights after five epochs over `source`, on 4 replicas."""
    strategy = mirrored(4)
    with strategy.scope():
        w = rx.Variable(np.zeros(3, np.float32))
        optimizer = rx.Optimizer(optax.sgd(0.1))

    def step(x: Any, y: Any) -> Any:
        def loss() -> Any:
            return rx.nn.compute_average_loss((x @ w - y) ** 2, global_batch_size=BATCH)

        value, gradients = rx.value_and_grad(loss, [w])
        optimizer.apply_gradients(zip(gradients, [w]))
        return value

    @rx.function
    def train(x: Any, y: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)

    batches = strategy.experimental_distribute_dataset(source)
    for _ in range(5):
        for x, y in batches:
            train(x, y)
    return w.numpy()


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return trained(rx.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH))


def test_a_loader_of_torch(torch: Any, expected: np.ndarray):
    rows = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    found = trained(torch.utils.data.DataLoader(rows, batch_size=BATCH))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_data_set_of_tensorflow(tensorflow: Any, expected: np.ndarray):
    found = trained(tensorflow.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_data_sets_of_grain(grain: Any, expected: np.ndarray):
    rows = grain.MapDataset.source([(X[i], Y[i]) for i in range(len(X))]).batch(BATCH)
    np.testing.assert_allclose(trained(rows), expected, rtol=1e-6)
    np.testing.assert_allclose(trained(rows.to_iter_dataset()), expected, rtol=1e-6)


def test_a_table_of_hugging_face(datasets: Any, expected: np.ndarray):
    table = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()})

    def columns(row: Any) -> Any:
        return np.asarray(row["x"], np.float32), np.asarray(row["y"], np.float32)

    rows = rx.data.Dataset.from_source(table.shuffle(seed=1)).map(columns)
    assert trained(rows.batch(BATCH)) == pytest.approx([1, -2, 3], abs=0.2)
    rows = rx.data.Dataset.from_source(table).map(columns)
    np.testing.assert_allclose(trained(rows.batch(BATCH)), expected, rtol=1e-6)
