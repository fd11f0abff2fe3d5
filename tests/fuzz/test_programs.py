"""Random programs of replicas with even shares: eagerly, compiled, and on one device."""

import numpy as np
import pytest

import replicax as rx
from tests.fuzz.replica_programs import Batch, Writer, check_ways

LAW = "A program computes the same eagerly, compiled and, where rows decide, on one device."
COUNT = 8


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    replicas, alike = int(random.choice([1, 2, 2, 3, 4])), bool(random.random() < 0.5)
    writer = Writer(random, alike, even=True)
    statements = writer.write()
    shares = [int(random.integers(1, 4))] * replicas
    batches = [Batch.draw(random, shares) for _ in range(2)]
    own = not alike
    ways = {"eagerly": {"own": own}, "in rx.function": {"own": own, "step": rx.function}}
    if alike:
        for_one = {"batches": [batch.for_one() for batch in batches], "own": False}
        ways["on one device"] = for_one
        ways["on one device, in rx.function"] = {**for_one, "step": rx.function}
    else:
        ways["replicas in rx.function"] = {"replica": rx.function}
    if writer.has_loss:
        ways["with compiled losses"] = {"own": own, "losses": True}
    return check_ways(statements, batches, ways)


@pytest.mark.parametrize("seed", range(COUNT))
def test_programs(seed: int):
    assert program(seed) > 0
