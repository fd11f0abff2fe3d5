"""Options check themselves when they are made."""

from typing import Any

import pytest

import replicax as rx
from tests.old_names import warns_of

OPTIONS = rx.distribute.experimental.CommunicationOptions
IMPLEMENTATION = rx.distribute.experimental.CommunicationImplementation


def test_defaults_and_names():
    assert OPTIONS().bytes_per_pack == 0 and OPTIONS().timeout_seconds is None
    assert OPTIONS(implementation="nccl").implementation is IMPLEMENTATION.NCCL  # type: ignore
    with warns_of("rx.distribute.experimental.CollectiveCommunication"):
        assert rx.distribute.experimental.CollectiveCommunication is IMPLEMENTATION


def test_hints_are_options():
    with warns_of("rx.distribute.experimental.CollectiveHints"):
        hints = rx.distribute.experimental.CollectiveHints(50, timeout_seconds=3.0)
    assert isinstance(hints, OPTIONS)
    assert (hints.bytes_per_pack, hints.timeout_seconds) == (50, 3.0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"bytes_per_pack": -1}, ValueError),
        ({"bytes_per_pack": 1.5}, TypeError),
        ({"bytes_per_pack": True}, TypeError),
        ({"timeout_seconds": 0}, ValueError),
        ({"implementation": "MPI"}, ValueError),
        ({"implementation": None}, ValueError),
    ],
)
def test_wrong_values(arguments: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        OPTIONS(**arguments)


@pytest.mark.parametrize("op", ["SUM", "sum", "Sum", rx.distribute.ReduceOp.SUM])
def test_reductions_by_name(op: Any):
    value = rx.distribute.PerReplica([1.0, 2.0])
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.reduce(op, value, axis=None) == 3.0
