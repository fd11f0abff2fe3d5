"""Random numbers: different by replica, the same eagerly and compiled, repeatable, saved."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import mirrored, parts_of, several_replicas


def generator_in(strategy: Any, seed: int = 7) -> rx.random.Generator:
    with strategy.scope():
        return rx.random.Generator.from_seed(seed)


def draws(strategy: Any, executor: Any, seed: int = 7, steps: int = 3) -> np.ndarray:
    generator = generator_in(strategy, seed)
    found = [
        parts_of(strategy, executor.run(strategy, lambda: generator.normal([2])))
        for _ in range(steps)
    ]
    return np.array(found)


@several_replicas
def test_replicas_and_steps_draw_different_numbers(strategy: Any, executor: Any):
    numbers = draws(strategy, executor)
    assert len(np.unique(numbers)) == numbers.size


def test_the_same_eagerly_and_compiled_and_repeatable(strategy: Any, executor: Any):
    first, again = draws(strategy, executor), draws(strategy, executor)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, draws(strategy, executor, seed=8))


def test_eager_and_compiled_are_one_stream():
    strategy = mirrored(2)
    generator = generator_in(strategy)
    compiled = rx.function(lambda: strategy.run(lambda: generator.uniform([3])))
    mixed = [strategy.run(lambda: generator.uniform([3])), compiled(), compiled()]
    generator.reset_from_seed(7)
    again = [compiled(), strategy.run(lambda: generator.uniform([3])), compiled()]
    for one, other in zip(mixed, again, strict=True):
        np.testing.assert_array_equal(parts_of(strategy, one), parts_of(strategy, other))


def test_the_state_can_be_saved_and_restored(strategy: Any, executor: Any):
    generator = generator_in(strategy)
    executor.run(strategy, lambda: generator.normal([]))
    saved = np.asarray(generator.state)
    expected = parts_of(strategy, executor.run(strategy, lambda: generator.normal([2])))
    other = generator_in(strategy, seed=99)
    with strategy.scope():
        other.state.assign(saved)
    found = parts_of(strategy, executor.run(strategy, lambda: other.normal([2])))
    np.testing.assert_array_equal(found, expected)
    assert other.variables == [other.state]


def test_in_a_loop_of_a_compiled_function():
    strategy = mirrored(2)
    generator = generator_in(strategy)

    def replica_fn() -> Any:
        return jax.lax.scan(lambda _, __: (0, generator.normal([])), 0, None, length=4)[1]

    looped = parts_of(strategy, rx.function(lambda: strategy.run(replica_fn))())
    generator.reset_from_seed(7)
    single = [parts_of(strategy, strategy.run(lambda: generator.normal([]))) for _ in range(4)]
    np.testing.assert_allclose(looped, np.array(single).T, rtol=1e-6)


def test_every_kind_of_number():
    generator = rx.random.Generator.from_seed(0)
    floats = generator.uniform([1000], 2.0, 3.0)
    assert 2.0 <= float(floats.min()) and float(floats.max()) < 3.0
    ints = generator.uniform([1000], 0, 5, dtype=jnp.int32)
    assert set(np.asarray(ints).tolist()) == {0, 1, 2, 3, 4}
    assert float(jnp.abs(generator.truncated_normal([1000], stddev=2.0)).max()) <= 4.0
    assert generator.uniform_full_int([3]).dtype == jnp.uint32
    assert generator.binomial([50], 10.0, 0.5).dtype == jnp.int32
    assert generator.normal([2], dtype=jnp.bfloat16).dtype == jnp.bfloat16
    assert jax.random.bernoulli(generator.next_key()).dtype == jnp.bool_


def test_skip_and_split():
    one, other = rx.random.Generator.from_seed(3), rx.random.Generator.from_seed(3)
    for _ in range(2):
        one.normal([])
    other.skip(2)
    assert one.normal([]) == other.normal([])
    first, second = one.split(2)
    assert first.normal([]) != second.normal([])


def test_the_global_generator():
    mine = rx.random.Generator.from_seed(1)
    before = rx.random.get_global_generator()
    try:
        rx.random.set_global_generator(mine)
        assert rx.random.get_global_generator() is mine
    finally:
        rx.random.set_global_generator(before)
    assert rx.random.Generator.from_non_deterministic_state().normal([]) is not None


def test_bad_input():
    with pytest.raises(TypeError, match="whole number"):
        rx.random.Generator(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="maxval"):
        rx.random.Generator(1).uniform([2], dtype=jnp.int32)
    with pytest.raises(TypeError, match="Generator"):
        rx.random.set_global_generator(3)  # type: ignore[arg-type]


@several_replicas
def test_a_generator_of_no_strategy_is_drawn_from_by_all_replicas_together(
    strategy: Any, executor: Any
):
    outside, inside = rx.random.Generator(7), generator_in(strategy)
    numbers = [
        parts_of(strategy, executor.run(strategy, lambda: outside.normal([2]) + outside.normal([])))
        for _ in range(2)
    ]
    assert len(np.unique(numbers)) == np.size(numbers)
    assert outside.state.numpy()[-1] == 4
    expected = strategy.run(lambda: inside.normal([2]) + inside.normal([]))  # the same numbers
    np.testing.assert_allclose(numbers[0], parts_of(strategy, expected), rtol=1e-6)


@several_replicas
def test_functions_draw_from_the_global_generator_in_replicas(strategy: Any, executor: Any):
    step = executor.step(strategy, lambda: rx.random.normal([2]))
    before = rx.random.get_global_generator()
    try:
        rx.random.set_global_generator(rx.random.Generator.from_seed(1))
        numbers = [parts_of(strategy, step()) for _ in range(2)]
        assert len(np.unique(numbers)) == np.size(numbers)
        rx.random.set_seed(1)
        np.testing.assert_array_equal(parts_of(strategy, step()), numbers[0])
    finally:
        rx.random.set_global_generator(before)


def test_functions_draw_what_the_generator_does():
    generator = rx.random.Generator.from_seed(5)
    rx.random.set_seed(5)
    for name, arguments in [
        ("normal", ([3], 1.0, 2.0)),
        ("truncated_normal", ([3],)),
        ("uniform", ([3], 2, 9, "int32")),
    ]:
        found = getattr(rx.random, name)(*arguments)
        np.testing.assert_array_equal(found, getattr(generator, name)(*arguments))
    rows = rx.random.shuffle(np.arange(20).reshape(10, 2))
    assert sorted(map(tuple, rows.tolist())) == [(2 * n, 2 * n + 1) for n in range(10)]
    with pytest.raises(ValueError, match=r"takes no seed of its own; got seed=3.*set_seed"):
        rx.random.normal([2], seed=3)


def test_numbers_that_cannot_be_drawn_are_errors_and_not_others():
    generator = rx.random.Generator.from_seed(1)
    for minval, maxval in ((-3, 3), (0, 257), (np.array([-1, 0]), 5)):
        with pytest.raises(ValueError, match="numbers of uint8, which are from 0 to 255"):
            generator.uniform([2], minval, maxval, "uint8")
    assert int(generator.uniform([], 255, 256, "uint8")) == 255
    with pytest.raises(TypeError, match="whole number of draws; got 1.5"):
        generator.skip(1.5)  # type: ignore[arg-type]
    generator.reset_from_seed(1)
    generator.skip(np.int64(2**32 + 3))  # type: ignore[arg-type]
    after = generator.normal([])
    generator.reset_from_seed(1)
    generator.skip(3)
    assert after == generator.normal([])
    assert generator.binomial([2], [10.0, 20.0], [1.0, 0.0]).tolist() == [10, 0]
    assert rx.random.shuffle(3).tolist() == 3  # and not the numbers below it
