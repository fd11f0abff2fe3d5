"""The processes of tests stay small."""

import jax
import jax.numpy as jnp
import pytest

from tests import memory

MB = 2**20


def test_resident_memory_is_that_of_this_process():
    if not memory._RESIDENT.exists():
        pytest.skip("this system does not say how large a process is")
    assert 50 * MB < memory.resident() < 3000 * MB


def test_programs_are_forgotten():
    compiled: list[None] = []

    @jax.jit
    def twice(x: jax.Array) -> jax.Array:
        compiled.append(None)
        return x * 2

    twice(jnp.ones(3))
    twice(jnp.ones(3))
    assert len(compiled) == 1
    memory.forget()
    assert (twice(jnp.ones(3)) == 2).all()
    assert len(compiled) == 2


def test_forgets_past_the_limit_and_not_after_each_test_where_little_could_be_freed():
    # Before each look, and after each time that it forgets.
    sizes = iter([100, 800, 950, 850, 1100, 1140, 1160, 1150, 1440])
    forgotten: list[None] = []
    keeper = memory.Keeper(measure=lambda: next(sizes) * MB, forget=lambda: forgotten.append(None))
    counts = []
    for _ in range(7):
        keeper.look()
        counts.append(len(forgotten))
    assert counts == [0, 0, 1, 1, 1, 2, 2]
