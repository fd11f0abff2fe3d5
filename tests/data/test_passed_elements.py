"""An element that fails is passed, wherever it fails; the others are there."""

from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.under_test import cpus

Dataset = rx.data.Dataset


def bad(x: Any) -> Any:
    if int(np.max(x)) == 3:
        raise KeyError("three")
    return x


def received(iterator: Any) -> list[Any]:
    """What the iterator gives until it ends, with "failed" for what it does not."""
    found: list[Any] = []
    for _ in range(20):
        try:
            found.append(np.asarray(next(iterator)).tolist())
        except StopIteration:
            return found
        except KeyError:
            found.append("failed")
    raise AssertionError(f"it does not end: {found}")


PIPELINES: dict[str, tuple[Any, list[Any]]] = {
    "map": (Dataset.range(5).map(bad), [0, 1, 2, "failed", 4]),
    "parallel map": (Dataset.range(5).map(bad, 4), [0, 1, 2, "failed", 4]),
    "filter": (Dataset.range(5).filter(lambda x: bad(x) >= 0), [0, 1, 2, "failed", 4]),
    "filter after map": (
        Dataset.range(5).map(bad).filter(lambda x: x >= 0),
        [0, 1, 2, "failed", 4],
    ),
    "repeat": (
        Dataset.range(5).filter(lambda x: bad(x) >= 2).repeat(2),
        [2, "failed", 4, 2, "failed", 4],
    ),
    "batch": (Dataset.range(6).map(bad).batch(2), [[0, 1], "failed", [4, 5]]),
    "padded_batch": (Dataset.range(6).map(bad).padded_batch(2), [[0, 1], "failed", [4, 5]]),
    "unbatch": (Dataset.range(6).batch(2).map(bad).unbatch(), [0, 1, "failed", 4, 5]),
    "rebatch": (Dataset.range(6).batch(2).map(bad).rebatch(1), [[0], [1], "failed", [4], [5]]),
    "flat_map": (
        Dataset.range(5).flat_map(lambda x: Dataset.from_tensors(bad(x))),
        [0, 1, 2, "failed", 4],
    ),
    "flat_map over map": (
        Dataset.range(5).map(bad).flat_map(Dataset.from_tensors),
        [0, 1, 2, "failed", 4],
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("ahead", [0, 2])
def test_one_is_passed(name: str, ahead: int):
    dataset, wanted = PIPELINES[name]
    dataset = dataset.prefetch(ahead) if ahead else dataset
    assert received(iter(dataset)) == wanted


@pytest.mark.parametrize("name", PIPELINES)
def test_a_state_after_it_goes_on_behind_it(name: str):
    dataset, wanted = PIPELINES[name]
    iterator = iter(dataset)
    index = wanted.index("failed")
    for _ in range(index):
        next(iterator)
    with pytest.raises(KeyError):
        next(iterator)
    again = iter(dataset)
    again.set_state(iterator.get_state())
    assert received(again) == wanted[index + 1 :]


@pytest.mark.parametrize("policy", ["DATA", "OFF"])
@pytest.mark.parametrize("ahead", [0, 1])
def test_one_batch_is_passed_on_replicas(policy: str, ahead: int):
    options = rx.data.Options()
    options.experimental_distribute.auto_shard_policy = rx.data.experimental.AutoShardPolicy[policy]
    dataset = Dataset.range(6, output_type=np.int32).batch(2).map(bad).with_options(options)
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    distributed = strategy.experimental_distribute_dataset(
        dataset, rx.distribute.InputOptions(experimental_per_replica_buffer_size=ahead)
    )

    def shares(iterator: Any) -> Any:
        for value in iterator:
            yield [part.tolist() for part in strategy.experimental_local_results(value)]

    iterator = iter(distributed)
    assert next(shares(iterator)) == [[0], [1]]
    with pytest.raises(KeyError):
        next(iterator)
    state = iterator.get_state()
    assert list(shares(iterator)) == [[[4], [5]]]
    again = iter(distributed)
    again.set_state(state)
    assert list(shares(again)) == [[[4], [5]]]
