"""`element_spec`: what is known of the shares before there are any."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.pipelines import POLICY, Calls, Dataset, on_host, text_files, with_policy
from tests.replicas import mirrored

RANGE = Dataset.range(24)


def shape_of(dataset: Any, replicas: int = 4, workers: int = 1) -> Any:
    return on_host(dataset, replicas, workers).element_spec.shape


def test_the_size_of_a_share_is_known_if_all_batches_are_even():
    assert shape_of(RANGE.batch(8, drop_remainder=True)) == (2,)
    assert shape_of(RANGE.batch(8, drop_remainder=True).repeat()) == (2,)
    assert shape_of(RANGE.repeat().batch(8, drop_remainder=True)) == (2,)
    assert shape_of(RANGE.shuffle(4).batch(8, drop_remainder=True).prefetch(1)) == (2,)


def test_the_size_of_a_share_is_not_known_otherwise():
    assert shape_of(RANGE.batch(8)) == (None,)
    assert shape_of(RANGE.repeat().batch(8)) == (None,)  # as in TensorFlow
    assert shape_of(RANGE.batch(10, drop_remainder=True)) == (None,)
    assert shape_of(RANGE.batch(8, drop_remainder=True), 2, 2) == (None,)


def test_one_replica_is_not_wrapped():
    spec = on_host(RANGE.batch(8), 1).element_spec
    assert spec == rx.TensorSpec([None], "int32")
    assert on_host(RANGE.batch(8, True), 1).element_spec == rx.TensorSpec([8], "int32")


def test_there_is_a_spec_for_each_local_replica():
    spec = on_host(RANGE.batch(8), 3).element_spec
    assert type(spec).__name__ == "PerReplicaSpec"
    assert len(spec.component_specs(3)) == 3
    assert "PerReplicaSpec(TensorSpec(shape=(None,), dtype=int32" in repr(spec)
    assert spec == on_host(RANGE.batch(8), 3).element_spec
    assert spec != on_host(RANGE.batch(8), 2).element_spec
    assert hash(spec) == hash(on_host(RANGE.batch(8), 3).element_spec)
    assert type(on_host(RANGE.batch(8), 1, 2).element_spec).__name__ == "PerReplicaSpec"


def test_structures_and_dtypes():
    rows = {"x": np.zeros((8, 3), np.float64), "t": ["a"] * 8, "y": (np.zeros(8, np.uint8),)}
    spec = on_host(Dataset.from_tensor_slices(rows).batch(4), 2).element_spec
    assert list(spec) == ["x", "t", "y"]
    assert spec["x"].shape == (None, 3) and spec["x"].dtype == np.float32  # as it is on the devices
    assert spec["t"].dtype == rx.string and spec["y"][0].dtype == np.uint8


def test_padded_batches_and_unknown_sizes():
    lists = Dataset.from_generator(
        lambda: iter([[1], [2, 3]]), output_signature=rx.TensorSpec([None], "int32")
    )
    assert shape_of(lists.padded_batch(4, drop_remainder=True)) == (1, None)
    assert shape_of(lists.padded_batch(4, [5], drop_remainder=True)) == (1, 5)


def test_files(tmp_path: Path):
    lines = rx.data.TextLineDataset(text_files(tmp_path, 9, 9))
    spec = on_host(lines.batch(4), 2).element_spec
    assert spec.shape == (None,) and spec.dtype == rx.string


@pytest.mark.parametrize("policy", [POLICY.AUTO, POLICY.DATA, POLICY.OFF])
def test_what_is_promised_is_kept(policy: Any):
    for dataset in (
        RANGE.batch(8, True),
        RANGE.batch(8),
        RANGE.batch(10, True),
        RANGE.batch(5).repeat(2),
        RANGE.batch(8, True).repeat(2),
        Dataset.from_tensor_slices(np.zeros((9, 2, 3))).batch(4),
        RANGE.batch(8, True).map(lambda x: x[:3]),
        RANGE.batch(8).map(lambda x: np.stack([x, x])),
    ):
        for replicas in (1, 2, 4):
            distributed = on_host(with_policy(dataset, policy), replicas)
            wanted = distributed.element_spec.shape
            for value in distributed:
                parts = value.values if replicas > 1 else (value,)
                for part in parts:
                    fits = [a in (None, b) for a, b in zip(wanted, part.shape, strict=True)]
                    assert all(fits), (dataset, wanted)


def test_distributing_runs_nothing_of_the_users():
    calls = Calls()

    def generate() -> Any:
        calls.append("generator")
        yield [1, 2]

    strategy = mirrored(2)
    for dataset in (
        RANGE.map(calls.of()).batch(4),
        RANGE.batch(4).map(calls.of()),
        RANGE.filter(calls.of(lambda x: True)).batch(4),
        Dataset.from_generator(generate),
        RANGE.map(calls.of(), on_device=True).batch(4),
    ):
        distributed = strategy.experimental_distribute_dataset(dataset)
        iter(distributed)
        repr(distributed)
        str(distributed)
    assert calls == []


def test_the_spec_of_an_iterator_is_that_of_its_data_set():
    distributed = mirrored(2).experimental_distribute_dataset(RANGE.batch(4))
    assert iter(distributed).element_spec == distributed.element_spec
