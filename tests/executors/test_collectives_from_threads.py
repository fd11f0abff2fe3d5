"""Several Python threads whose replicas communicate at once: no deadlock, no lost result."""

import gc
import threading
import weakref
from typing import Any

import jax.numpy as jnp
import numpy as np

import replicax as rx
from tests.replicas import mirrored


def test_collectives_of_four_threads_on_the_same_devices():
    strategy, sums = mirrored(4), {}
    x = jnp.ones((200, 200))

    def replica_step() -> Any:
        return rx.get_replica_context().all_reduce("SUM", (x @ x)[0, 0])  # type: ignore[union-attr]

    def work(number: int) -> None:
        for _ in range(10):
            result = strategy.run(replica_step)
        sums[number] = [float(part) for part in result.values]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == {number: [800.0] * 4 for number in range(4)}


class Marked:
    """Something that can be referred to weakly."""


def test_what_run_returns_is_not_kept():
    gc.collect()
    gc.disable()
    try:
        result = mirrored(2).run(Marked)
        seen = [weakref.ref(part) for part in result.values]
        del result
        assert [each() for each in seen] == [None, None]
    finally:
        gc.enable()


def test_an_integer_mean_does_not_overflow():
    strategy = mirrored(2)
    value = strategy.experimental_distribute_values_from_function(
        lambda _: jnp.full(4, 2**30, jnp.int32)
    )
    assert float(strategy.reduce("MEAN", value, axis=0)) == 2.0**30
    small = strategy.experimental_distribute_values_from_function(lambda _: jnp.int8(100))
    assert float(strategy.reduce("MEAN", small, axis=None)) == 100.0


def test_a_numpy_array_may_be_reused_at_once():
    for _ in range(20):
        buffer = np.ones(1 << 16, np.float32)
        variable = rx.Variable(buffer)
        constant = rx.constant(buffer)
        buffer[:] = 7
        assert float(variable[0]) == float(constant[0]) == 1.0
