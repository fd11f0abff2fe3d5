"""Programs that once gave wrong numbers, or failed where eager ones do not."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import replicax as rx
from tests.replicas import context, mirrored, parts_of


@pytest.fixture
def strategy() -> Any:
    return mirrored(2)


VALUES = rx.distribute.PerReplica([1.0, 2.0])


def test_a_kept_jitted_function_is_looked_into_again_by_a_loss(strategy: Any):
    with strategy.scope():
        w = rx.Variable(3.0)
    model = jax.jit(lambda x: w.value() * x)
    checkpointed = jax.checkpoint(lambda x: w.value() * x)

    def replica_fn(x: Any) -> Any:
        before = model(x) + checkpointed(x)
        _, (first,) = rx.value_and_grad(lambda: model(x) ** 2 + checkpointed(x), [w])
        _, (second,) = rx.value_and_grad(lambda: model(x) ** 2 + checkpointed(x), [w])
        return before, first, second, model(x)

    before, first, second, after = rx.function(lambda x: strategy.run(replica_fn, (x,)))(VALUES)
    assert parts_of(strategy, before) == [6.0, 12.0]
    assert parts_of(strategy, first) == parts_of(strategy, second) == [7.0, 26.0]
    assert parts_of(strategy, after) == [3.0, 6.0]


def test_a_loss_that_assigns_and_a_kept_jitted_function(strategy: Any):
    with strategy.scope():
        w = rx.Variable(3.0)
        calls = rx.Variable(0.0, aggregation="SUM")
    seen = jax.jit(lambda: calls.value() * 1)

    def replica_fn(x: Any) -> Any:
        first = seen()
        rx.value_and_grad(lambda: w * calls.assign_add(x), [w])
        return first, seen()

    first, second = rx.function(lambda x: strategy.run(replica_fn, (x,)))(VALUES)
    assert parts_of(strategy, first) == [0.0, 0.0]
    assert parts_of(strategy, second) == [3.0, 3.0]


def test_structures_are_told_apart_by_type_and_static_data():
    @dataclasses.dataclass
    class Settings:
        scale: Any

    class Pair:
        def __init__(self, x: Any, k: int):
            self.x, self.k = x, k

    jax.tree_util.register_pytree_node(
        Pair, lambda pair: ((pair.x,), pair.k), lambda k, children: Pair(children[0], k)
    )
    step = rx.function(lambda pair, settings: pair.x * pair.k * settings.scale)
    x = jnp.float32(1.0)
    assert step(Pair(x, 2), Settings(jnp.float32(1.0))) == 2.0
    assert step(Pair(x, 5), Settings(jnp.float32(1.0))) == 5.0


@pytest.mark.parametrize("argument", ["committed", "sharded"])
def test_variables_stay_where_they_are(argument: str):
    devices = jax.devices("cpu")
    v = rx.Variable(jnp.zeros(4))
    x = jax.device_put(jnp.ones(4), devices[3])
    if argument == "sharded":
        mesh = jax.sharding.Mesh(np.array(devices[:4]), ("x",))
        x = jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
    step = rx.function(lambda x: (v.assign_add(x), None)[1])
    for _ in range(2):
        step(x)
    assert v.value().devices() == {devices[0]}
    np.testing.assert_allclose(v.numpy(), 2.0)


def test_a_mesh_that_the_user_has_set(strategy: Any):
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    plain = rx.Variable(1.0)
    step = rx.function(lambda x: strategy.run(lambda x: v.assign_add(x).read_value(), (x,)))
    other = rx.function(lambda: plain.assign_add(1.0).read_value())
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh):
        for total in (4.0, 7.0):
            assert parts_of(strategy, step(VALUES)) == [total, total]
        assert [float(other()), float(other())] == [2.0, 3.0]


def test_programs_that_are_rewritten_under_a_mesh_that_the_user_has_set():
    strategy = mirrored(2)
    with strategy.scope():
        variables = [rx.Variable(jnp.full(4, float(i)), aggregation="SUM") for i in range(12)]

    def of_replica(x: Any) -> Any:
        for v in variables:  # the sums become one, out of which they are taken
            v.assign_add(x[:4])
        return jax.grad(
            lambda x: jnp.sum(lax.reduce_window(x, -np.inf, lax.max, (2,), (2,), "VALID"))
        )(x)

    step = rx.function(lambda x: strategy.run(of_replica, (x,)))
    x = rx.distribute.PerReplica([jnp.arange(8.0), jnp.arange(8.0) + 1])
    with jax.set_mesh(jax.make_mesh((4,), ("data",))):
        found = step(x)
        report = step.explain(x)
    assert [each.times for each in report.collectives] == [1]
    np.testing.assert_array_equal(found.values[1], np.tile([0, 1], 4))
    np.testing.assert_array_equal(variables[3].numpy(), 3 + 2 * np.arange(4.0) + 1)


def test_running_replicas_in_a_merge_fn(strategy: Any, executor: Any):
    def merge_fn(strategy: Any, x: Any) -> Any:
        doubled = strategy.run(lambda x: x * 2, (x,))
        return strategy.reduce("SUM", doubled, axis=None)

    def replica_fn(x: Any) -> Any:
        return context().merge_call(merge_fn, args=(x,)) + x

    assert parts_of(strategy, executor.run(strategy, replica_fn, (VALUES,))) == [7.0, 8.0]


def test_numbers_that_replicas_compute(strategy: Any, executor: Any):
    def replica_fn(x: Any) -> Any:
        return x.shape[0] * 1000, float(x.shape[0]), 7, 2.5

    x = rx.distribute.PerReplica([jnp.ones(3), jnp.ones(3)])
    computed, number, small, written = executor.run(strategy, replica_fn, (x,))
    assert strategy.reduce("SUM", computed, axis=None) == 6000
    assert strategy.reduce("SUM", number, axis=None) == 6.0
    assert (small, written) == (7, 2.5)


def test_numbers_that_are_written_in_code_that_is_compiled_again(strategy: Any, executor: Any):
    """As of a cell that is run again: the code is equal, and the numbers are other objects."""
    for _ in range(2):
        scope: dict[str, Any] = {}
        exec(compile("replica_fn = lambda: (2.5, (3.5, 1000))", "a cell", "exec"), scope)
        assert executor.run(strategy, scope["replica_fn"]) == (2.5, (3.5, 1000))


def test_numbers_that_are_written_where_replicas_meet(strategy: Any, executor: Any):
    found: list[Any] = []

    def merge_fn(strategy: Any, *numbers: Any) -> Any:
        found.append(numbers)

    def meet(x: Any) -> None:
        context().merge_call(merge_fn, (2.0, 2.5, (3.5, 1000)))
        context().merge_call(merge_fn, (float(x.shape[0]),))

    executor.run(strategy, lambda x: meet(x), (rx.distribute.PerReplica([jnp.ones(3)] * 2),))
    assert found[0] == (2.0, 2.5, (3.5, 1000))
    assert isinstance(found[1][0], rx.distribute.PerReplica)


@pytest.mark.parametrize("flag", ["jax_enable_checks", "jax_check_tracer_leaks"])
def test_the_checks_of_jax_itself(strategy: Any, flag: str):
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    before = getattr(jax.config, flag)
    jax.config.update(flag, True)
    try:
        step = rx.function(lambda x: strategy.run(lambda x: v.assign_add(x).read_value(), (x,)))
        assert parts_of(strategy, step(VALUES)) == [4.0, 4.0]
    finally:
        jax.config.update(flag, before)


def test_functions_that_call_each_other_in_a_loop(strategy: Any):
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    @rx.function
    def epoch(batches: Any) -> Any:
        return [strategy.run(lambda x: x * even(4), (x,)) for x in batches]

    assert [parts_of(strategy, x) for x in epoch(iter([VALUES, VALUES]))] == [[1.0, 2.0]] * 2


def test_random_keys_in_variables(strategy: Any, executor: Any):
    with strategy.scope():
        key = rx.Variable(jax.random.key(0), aggregation="ONLY_FIRST_REPLICA")

    def replica_fn() -> Any:
        new, drawn = jax.random.split(key.value())
        key.assign(new)
        return jax.random.uniform(drawn)

    results = [parts_of(strategy, executor.run(strategy, replica_fn)) for _ in range(2)]
    new, first = jax.random.split(jax.random.key(0))
    second = jax.random.split(new)[1]
    expected = [jax.random.uniform(first), jax.random.uniform(second)]
    np.testing.assert_allclose(results, [[value] * 2 for value in expected])


def test_weak_types_are_those_of_jit():
    v = rx.Variable(jnp.ones((), jnp.bfloat16))
    assert rx.function(lambda x: v * x)(jnp.asarray(2.0)).dtype == jnp.bfloat16


def test_jax_functions_of_the_copies_that_update_hands_out(strategy: Any, executor: Any):
    with strategy.scope():
        v, a = rx.Variable(np.ones(3, np.float32)), rx.Variable(np.full(3, 4.0, np.float32))

    def replica_fn() -> None:
        context().merge_call(
            lambda strategy: strategy.extended.update(
                v, lambda v, a: v.assign_sub(jnp.sqrt(a) + jax.jit(jnp.tanh)(a)), args=(a,)
            )
        )

    executor.run(strategy, replica_fn)
    np.testing.assert_allclose(v.numpy(), 1 - 2 - np.tanh(4.0), rtol=1e-6)


def test_two_strategies_in_one_function():
    two, three = mirrored(2), mirrored(3)
    one = rx.distribute.OneDeviceStrategy("CPU:0")

    @rx.function
    def step(x: Any, y: Any, z: Any) -> Any:
        return (
            two.reduce("SUM", two.run(lambda x: x * 2, (x,)), axis=None),
            three.reduce("SUM", three.run(lambda y: y * 2, (y,)), axis=None),
            one.run(lambda z: z * 2, (z,)),
        )

    y = rx.distribute.PerReplica([1.0, 2.0, 3.0])
    for _ in range(2):
        found = step(VALUES, y, rx.distribute.PerReplica([5.0]))
        assert [float(value) for value in found] == [6.0, 12.0, 10.0]


def test_a_function_that_only_mentions_another_strategy(strategy: Any):
    a_bigger_one = mirrored(3)

    @rx.function
    def step(x: Any) -> Any:
        return strategy.run(lambda x: x * a_bigger_one.num_replicas_in_sync, (x,))

    assert parts_of(strategy, step(VALUES)) == [3.0, 6.0]


def test_the_replicas_number_in_a_branch_is_no_collective(strategy: Any):
    def replica_fn(x: Any) -> Any:
        number = context().replica_id_in_sync_group
        return lax.cond(number > 0, lambda: number * 10, lambda: 0)

    result = rx.function(lambda x: strategy.run(replica_fn, (x,)))(VALUES)
    assert parts_of(strategy, result) == [0, 10]


def test_arguments_by_name_or_by_position_are_one_program():
    traces: list[int] = []

    @rx.function
    def step(x: Any, training: bool = False) -> Any:
        traces.append(1)
        return x * training

    x = jnp.float32(1.0)
    assert [float(step(x, True)), float(step(x, training=True)), float(step(training=True, x=x))]
    assert len(traces) == 1


def test_many_calls_that_nobody_waits_for():
    strategy = mirrored(8)
    with strategy.scope():
        ws = [rx.Variable(jnp.eye(256), aggregation="MEAN") for _ in range(3)]

    def replica_fn() -> None:
        for w in ws:
            w.assign(w @ w)

    step = rx.function(lambda: strategy.run(replica_fn))
    for _ in range(100):
        step()
    np.testing.assert_allclose(ws[0].numpy(), np.eye(256))


def test_steps_take_any_number_of_items():
    total = rx.Variable(0.0)

    @rx.function
    def step(x: Any) -> Any:
        total.assign_add(jnp.sum(x))
        return total * 1

    assert step.steps(iter([jnp.ones(2)]), 1).tolist() == [2.0]
    np.testing.assert_allclose(step.steps([jnp.ones(2), jnp.ones(3), jnp.ones(3)]), [4, 7, 10])
    source = iter([jnp.ones(2)] * 3)
    np.testing.assert_allclose(step.steps(source, 2), [12, 14])
    with pytest.raises(rx.errors.OutOfRangeError, match="after 1 of 2"):
        step.steps(source, 2)
    assert total.numpy() == 16.0
    with pytest.raises(rx.errors.OutOfRangeError, match="after 0 of 2"):
        step.steps(source, 2)
    with pytest.raises(ValueError, match="no items"):
        step.steps([])


def test_an_error_while_the_program_runs_names_what_it_took():
    v = rx.Variable(jnp.zeros(3))

    def fail(x: Any) -> Any:
        raise ValueError("in the callback")

    @rx.function
    def step(x: Any) -> Any:
        v.assign_add(x)
        return jax.pure_callback(fail, jax.ShapeDtypeStruct((), jnp.float32), x)

    with pytest.raises(Exception, match="in the callback"):
        jax.block_until_ready(step(jnp.ones(3)))
    v.assign(jnp.ones(3))
    np.testing.assert_allclose(v.numpy(), 1.0)
