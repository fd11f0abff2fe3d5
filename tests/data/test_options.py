"""`rx.data.Options`: what can be set, how it is merged, what is refused."""

from typing import Any

import pytest

import replicax as rx
from tests.pipelines import POLICY, Dataset, with_policy


def test_defaults_and_what_ported_code_sets():
    options = rx.data.Options()
    assert options.experimental_distribute.auto_shard_policy is POLICY.AUTO
    assert options.deterministic is None
    options.deterministic = False
    options.experimental_deterministic = True
    options.experimental_distribute.num_devices = 2
    assert Dataset.range(2).with_options(options).options().deterministic is False


def test_what_is_not_there_is_refused():
    options = rx.data.Options()
    with pytest.raises(AttributeError, match="no option 'autoshard'.*experimental_distribute"):
        options.autoshard = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="auto_shard_policy"):
        options.experimental_distribute.policy = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="AutoShardPolicy"):
        options.experimental_distribute.auto_shard_policy = "DATA"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="DistributeOptions"):
        options.experimental_distribute = POLICY.DATA  # type: ignore[assignment]


def test_options_go_along_and_the_last_ones_count():
    dataset = with_policy(Dataset.range(4), POLICY.OFF)
    assert policy(dataset.batch(2).map(lambda x: x)) is POLICY.OFF
    assert policy(with_policy(dataset.batch(2), POLICY.DATA)) is POLICY.DATA
    assert policy(Dataset.range(4)) is POLICY.AUTO
    assert policy(with_policy(dataset.batch(2), POLICY.AUTO)) is POLICY.AUTO
    both = Dataset.zip(dataset, Dataset.range(4))
    assert policy(both) is POLICY.OFF


def policy(dataset: Any) -> Any:
    return dataset.options().experimental_distribute.auto_shard_policy


def test_options_are_copied():
    options = rx.data.Options()
    dataset = Dataset.range(2).with_options(options)
    options.experimental_distribute.auto_shard_policy = POLICY.OFF
    assert policy(dataset) is POLICY.AUTO
    dataset.options().experimental_distribute.auto_shard_policy = POLICY.OFF
    assert policy(dataset) is POLICY.AUTO


def test_numbers_of_the_policies_are_tensorflows():
    numbers = {each.name: int(each) for each in POLICY}
    assert numbers == {"OFF": -1, "AUTO": 0, "FILE": 1, "DATA": 2, "HINT": 3}
    assert rx.data.experimental.SHARD_HINT == -1
    assert rx.data.AUTOTUNE == -1 and rx.data.experimental.AUTOTUNE == -1
