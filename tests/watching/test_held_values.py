"""Values of all kinds, shown without waiting for them; and how many examples a batch has."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.watching import _held_values
from replicax._src.watching._held_values import is_one_number, is_there, number_as_text, rows_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.12345678, "0.1235"),
        (0.97, "0.9700"),
        (12.3, "12.30"),
        (1234.0, "1234"),
        (1.5e-7, "1.500e-07"),
        (float("nan"), "nan"),
        (12345, "12,345"),
        (True, "True"),
        ("warm-up", "warm-up"),
        (np.float32(2.5), "2.500"),
        (np.array([7]), "7"),
        (jnp.float32(2.5), "2.500"),
        (jnp.asarray([0.5], jnp.bfloat16), "0.5000"),
        (rx.distribute.Mirrored([jnp.float32(1), jnp.float32(1)]), "1.000"),
        (rx.distribute.PerReplica([2.0, 0.5, 1.0]), "0.5000 … 2.000"),
        (rx.distribute.PerReplica([2.0, 2.0]), "2.000"),
    ],
)
def test_number_as_text(value: Any, text: str):
    assert is_one_number(value)
    assert is_there(value)
    assert number_as_text(value) == text


def test_variables_and_metrics_are_read_when_they_are_shown(strategy: Any):
    with strategy.scope():
        variable, metric = rx.Variable(1.0), rx.metrics.Mean()
    strategy.run(lambda: metric.update_state(4.0))
    for value in (variable, metric):
        assert is_one_number(value)
    variable.assign(2.0)
    assert (number_as_text(variable), number_as_text(metric)) == ("2.000", "4.000")


def test_a_donated_array_is_no_error():
    value = jnp.float32(1)
    value.delete()
    assert is_there(value) and number_as_text(value) == "?"


def test_one_array_for_all_replicas_is_not_taken_apart():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    x = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.ones((3, 2)) * context.replica_id_in_sync_group
    )
    doubled = rx.function(lambda x: strategy.run(lambda x: x * 2, args=(x,)))(x)
    assert doubled._values is None
    assert rows_of(doubled) == 6 and not is_one_number(doubled)
    assert doubled._values is None


@pytest.mark.parametrize(
    ("element", "rows"),
    [
        (3, None),
        ("text", None),
        (None, None),
        (np.zeros((4, 2)), 4),
        ((np.zeros((4, 2)), np.zeros(4)), 4),
        ({"x": jnp.zeros((5, 1)), "weight": None}, 5),
        (np.float32(1), 1),
        ((np.zeros((8, 8)), np.int32(3)), 1),
        ((rx.distribute.PerReplica([np.zeros((3, 2)), np.zeros((1, 2))]), 7), 4),
        (rx.distribute.PerReplica([np.float32(1), np.float32(2)]), 1),
        (np.zeros((0, 3)), 0),
    ],
)
def test_rows_of(element: Any, rows: int | None):
    assert rows_of(element) == rows


@pytest.mark.parametrize("logical", [1, 2])
def test_rows_of_a_distributed_batch(logical: int):
    strategy = rx.distribute.MirroredStrategy(logical_devices_per_replica=logical)
    dataset = rx.data.Dataset.from_tensor_slices(np.zeros((21, 2), np.float32)).batch(16)
    batches = strategy.experimental_distribute_dataset(dataset)
    assert [rows_of(batch) for batch in batches] == [16, 5]


def test_with_several_workers_a_metric_is_read_by_all(monkeypatch: pytest.MonkeyPatch):
    metric = rx.metrics.Mean()
    assert _held_values.held(metric) is metric
    monkeypatch.setattr(_held_values, "number_of_workers", lambda: 2)
    assert isinstance(_held_values.held(metric), jax.Array)
