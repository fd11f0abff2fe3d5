"""Random programs of replicas whose shares are uneven or empty, after even ones or before."""

import numpy as np
import pytest

import replicax as rx
from tests.fuzz.replica_programs import Batch, Writer, check_ways

LAW = "Uneven and empty shares: the same eagerly, compiled and, where rows decide, on one device."
COUNT = 4


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    replicas, alike = int(random.choice([2, 2, 3, 4])), bool(random.random() < 0.5)
    writer = Writer(random, alike, even=False)
    statements = writer.write()
    uneven = [int(each) for each in random.integers(0, 4, replicas)]
    uneven[int(random.integers(replicas))] += 1  # not all of them are empty
    even = [int(random.integers(1, 4))] * replicas
    order = (even, uneven, even) if random.random() < 0.6 else (uneven, even, uneven)
    batches = [Batch.draw(random, shares) for shares in order]
    own = not alike
    ways = {"eagerly": {"own": own}, "in rx.function": {"own": own, "step": rx.function}}
    if alike:
        ways["on one device"] = {"batches": [batch.for_one() for batch in batches], "own": False}
    if writer.has_loss and 0 not in uneven:
        ways["with compiled losses"] = {"own": own, "losses": True}
    return check_ways(statements, batches, ways)


@pytest.mark.parametrize("seed", range(COUNT))
def test_uneven(seed: int):
    assert program(seed) > 0
