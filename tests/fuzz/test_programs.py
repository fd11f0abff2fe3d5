"""Random programs of replicas with even shares: eagerly, compiled, and on one device."""

import numpy as np
import pytest

import replicax as rx
from tests.fuzz.replica_programs import COLUMNS, Writer, compare_ways, show
from tests.fuzz.sources import check

LAW = "A program computes the same eagerly, compiled and, where rows decide, on one device."
COUNT = 20


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    replicas, alike = int(random.choice([1, 2, 2, 3, 4])), bool(random.random() < 0.5)
    writer = Writer(random, alike, even=True)
    statements = writer.write()
    shares = [int(random.integers(1, 4))] * replicas
    rows = sum(shares)
    batches = [random.integers(0, 5, (rows, COLUMNS)).astype(np.float32) for _ in range(2)]
    ways = {
        "eagerly": {"own": not alike},
        "in rx.function": {"step": rx.function, "own": not alike},
    }
    if alike:
        ways["on one device"] = {"shares": [rows], "own": False}
        ways["on one device, in rx.function"] = {
            "shares": [rows],
            "own": False,
            "step": rx.function,
        }
    else:
        ways["replicas in rx.function"] = {"replica": rx.function}
    if writer.has_loss:
        ways["with compiled losses"] = {"losses": True, "own": not alike}
    return check(
        statements,
        lambda each: compare_ways(each, batches, shares, ways),
        show(replicas, shares),
    )


@pytest.mark.parametrize("seed", range(COUNT))
def test_programs(seed: int):
    assert program(seed) > 0
