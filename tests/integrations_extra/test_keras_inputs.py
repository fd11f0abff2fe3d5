"""`fit`, `evaluate` and `predict` under a strategy, fed by data sets of other libraries.

Whatever brings the rows, the numbers are those of one device that trains on NumPy arrays.
"""

import functools
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.integrations.keras_programs import X, Y, fitted, mlp, same, seeded
from tests.replicas import mirrored

BATCH = 8  # of 14 rows: the second one has 6, which 4 replicas do not divide


@functools.cache
def on_one_device() -> Any:
    model = seeded(lambda: mlp(metrics=["mae"]))
    found = fitted(model, X, Y, shuffle=False, validation_data=(X[:5], Y[:5]))
    return found, model.evaluate(X, Y, verbose=0), model.predict(X, verbose=0)


def check(rows: Any, few: Any, replicas: int = 4) -> None:
    """Trains on `rows`, with the first five as `few`, and compares with one device."""
    model = seeded(lambda: mlp(metrics=["mae"]), mirrored(replicas))
    arguments = {"batch_size": None, "shuffle": False, "validation_data": few}
    found = fitted(model, rows, None, **arguments)
    history, scores, outputs = on_one_device()
    same(found, history)
    same(model.evaluate(rows, verbose=0), scores)
    np.testing.assert_allclose(model.predict(rows, verbose=0), outputs, atol=1e-5)


# torch


def loader(torch: Any, rows: int, **options: Any) -> Any:
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X[:rows]), torch.from_numpy(Y[:rows]))
    return torch.utils.data.DataLoader(dataset, batch_size=BATCH, **options)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_loader_of_torch(torch: Any, replicas: int):
    check(loader(torch, 14), loader(torch, 5), replicas)


def test_a_loader_of_torch_as_a_data_set_of_ours(torch: Any):
    from_source = rx.data.Dataset.from_source
    check(from_source(loader(torch, 14)), from_source(loader(torch, 5)))


def test_a_loader_of_torch_in_random_order_trains(torch: Any):
    random = torch.Generator().manual_seed(0)
    model = seeded(mlp, mirrored(4))
    rows = loader(torch, 14, shuffle=True, generator=random)
    losses = model.fit(rows, epochs=20, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


# TensorFlow


def pipeline(tensorflow: Any, rows: int) -> Any:
    return tensorflow.data.Dataset.from_tensor_slices((X[:rows], Y[:rows])).batch(BATCH)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_data_set_of_tensorflow(tensorflow: Any, replicas: int):
    check(pipeline(tensorflow, 14), pipeline(tensorflow, 5), replicas)


def test_a_data_set_of_tensorflow_as_one_of_ours(tensorflow: Any):
    from_source = rx.data.Dataset.from_source
    check(from_source(pipeline(tensorflow, 14)), from_source(pipeline(tensorflow, 5)))


def test_an_endless_data_set_of_tensorflow(tensorflow: Any):
    model = seeded(mlp, mirrored(4))
    rows = pipeline(tensorflow, 14).repeat().prefetch(2)
    found = fitted(model, rows, None, batch_size=None, steps_per_epoch=2, shuffle=False)
    same(found["history"]["loss"], on_one_device()[0]["history"]["loss"])


def test_tensors_of_tensorflow_and_torch(tensorflow: Any, torch: Any):
    losses = on_one_device()[0]["history"]["loss"]
    for convert in (tensorflow.constant, torch.from_numpy):
        model = seeded(mlp, mirrored(4))
        found = fitted(model, convert(X), convert(Y), shuffle=False)
        same(found["history"]["loss"], losses)


# Grain


def grain_map(grain: Any, rows: int) -> Any:
    return grain.MapDataset.source([(X[i], Y[i]) for i in range(rows)]).batch(BATCH)


def grain_loader(grain: Any, rows: int) -> Any:
    sampler = grain.samplers.IndexSampler(
        num_records=rows, shuffle=False, num_epochs=1, shard_options=grain.sharding.NoSharding()
    )
    return grain.DataLoader(
        data_source=[(X[i], Y[i]) for i in range(rows)],
        sampler=sampler,
        operations=[grain.transforms.Batch(BATCH)],
        worker_count=0,
    )


# So says Keras after every epoch of Grain's data sets, whose length it does not ask for.
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize(
    "make",
    [grain_map, lambda grain, rows: grain_map(grain, rows).to_iter_dataset(), grain_loader],
    ids=["map", "iter", "loader"],
)
def test_data_sets_of_grain(grain: Any, make: Any):
    check(make(grain, 14), make(grain, 5))


def test_a_data_set_of_grain_as_one_of_ours(grain: Any):
    from_source = rx.data.Dataset.from_source
    check(from_source(grain_map(grain, 14)), from_source(grain_map(grain, 5)))


# Hugging Face


def table(datasets: Any, rows: int) -> Any:
    return datasets.Dataset.from_dict({"x": X[:rows].tolist(), "y": Y[:rows].tolist()})


def columns(row: Any) -> Any:
    return np.asarray(row["x"], np.float32), np.asarray(row["y"], np.float32)


def test_a_table_of_hugging_face_as_a_data_set_of_ours(datasets: Any):
    def rows(count: int) -> Any:
        return rx.data.Dataset.from_source(table(datasets, count)).map(columns).batch(BATCH)

    check(rows(14), rows(5))


def test_a_table_of_hugging_face_through_torch(datasets: Any, torch: Any):
    def rows(count: int) -> Any:
        def pairs(rows: list[Any]) -> Any:
            return tuple(torch.stack([row[name] for row in rows]) for name in ("x", "y"))

        formatted = table(datasets, count).with_format("torch")
        return torch.utils.data.DataLoader(formatted, batch_size=BATCH, collate_fn=pairs)

    check(rows(14), rows(5))


def test_a_table_of_hugging_face_through_tensorflow(datasets: Any, tensorflow: Any):
    def rows(count: int) -> Any:
        return table(datasets, count).to_tf_dataset(
            columns="x", label_cols="y", batch_size=BATCH, shuffle=False
        )

    check(rows(14), rows(5))
