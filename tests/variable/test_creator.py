"""Making variables: creators, and variables made inside `strategy.run`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import context, mirrored, parts_of, several_replicas

ON_READ = rx.VariableSynchronization.ON_READ


@several_replicas
def test_one_variable_for_all_replicas_starting_from_the_first(strategy: Any):
    def step() -> Any:
        return rx.Variable(10.0 + context().replica_id_in_sync_group, aggregation="SUM")

    v = strategy.run(step)
    assert isinstance(v, rx.Variable) and v.numpy() == 10.0
    assert parts_of(strategy, v) == [10.0] * strategy.num_replicas_in_sync
    assert strategy.extended.variable_created_in_scope(v)


def test_a_guarded_variable_is_made_once(strategy: Any):
    state: list[Any] = []

    def step() -> Any:
        if not state:
            state.append(rx.Variable(0.0, aggregation="SUM"))
        state[0].assign_add(1.0)
        return state[0].read_value()

    for number in (1, 2, 3):
        strategy.run(step)
        assert state[0].numpy() == number * strategy.num_replicas_in_sync
    assert len(state) == 1


def test_a_guard_by_attribute(strategy: Any):
    class Layer:
        w: Any = None

        def __call__(self, x: Any) -> Any:
            if self.w is None:
                self.w = rx.Variable(lambda: jnp.ones(2) * 3)
                self.b = rx.Variable(lambda: jnp.zeros(()))
            return jnp.sum(self.w * x) + self.b

    layer = Layer()
    result = strategy.run(layer, (jnp.ones(2),))
    assert parts_of(strategy, result) == [6.0] * strategy.num_replicas_in_sync
    made = layer.w
    strategy.run(layer, (jnp.ones(2),))
    assert layer.w is made


@several_replicas
def test_an_unguarded_variable_is_one_per_run(strategy: Any):
    def step() -> Any:
        return rx.Variable(1.0)

    first, second = strategy.run(step), strategy.run(step)
    assert first is not second
    first.assign(5.0)
    assert second.numpy() == 1.0


@several_replicas
def test_two_on_one_line_and_many_in_a_loop(strategy: Any):
    def step() -> Any:
        a, b = rx.Variable(1.0), rx.Variable(2.0)
        many = [rx.Variable(float(number)) for number in range(3)]
        return a, b, many

    a, b, many = strategy.run(step)
    assert (a.numpy(), b.numpy()) == (1.0, 2.0)
    assert [v.numpy() for v in many] == [0.0, 1.0, 2.0]
    assert len({id(v) for v in (a, b, *many)}) == 5


@several_replicas
def test_a_variable_that_only_a_later_replica_makes(strategy: Any):
    def step() -> None:
        for _ in range(1 + context().replica_id_in_sync_group):
            rx.Variable(1.0, name="extra")

    with pytest.raises(rx.errors.ReplicaMismatchError, match="extra"):
        strategy.run(step)
    assert strategy.run(lambda: None) is None


@several_replicas
def test_sync_on_read_variables_made_inside(strategy: Any, executor: Any):
    made: dict[str, Any] = {}

    def step() -> None:
        if "v" not in made:
            made["v"] = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")
        made["v"].assign_add(1.0)

    executor.run(strategy, step)
    executor.run(strategy, step)
    assert made["v"].numpy() == 2.0 * strategy.num_replicas_in_sync


def test_a_variable_as_argument_arrives_as_itself(strategy: Any, executor: Any):
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    seen = []

    def step(passed: Any) -> None:
        seen.append(passed is v)

    executor.run(strategy, step, (v,))
    assert seen and all(seen)
    assert strategy.run(lambda passed: passed, args=(v,)) is v


def test_creators_are_asked_innermost_first(strategy: Any):
    order = []

    def named(label: str) -> Any:
        def creator(next_creator: Any, **kwargs: Any) -> Any:
            order.append(label)
            return next_creator(**kwargs)

        return creator

    with strategy.scope():
        with rx.variable_creator_scope(named("outer")), rx.variable_creator_scope(named("inner")):
            rx.Variable(1.0)
        rx.Variable(1.0)
    assert order == ["inner", "outer"]


def test_a_creator_is_given_all_arguments_that_tensorflows_is(strategy: Any):
    seen: dict[str, Any] = {}

    def creator(next_creator: Any, **kwargs: Any) -> Any:
        seen.update(kwargs)
        return next_creator(**{**kwargs, "experimental_enable_variable_lifting": False})

    with strategy.scope(), rx.variable_creator_scope(creator):
        made = rx.Variable([1.0], False, name="v")
    assert made.numpy() == 1.0 and not made.trainable
    assert seen == {
        **dict.fromkeys(["caching_device", "variable_def", "dtype", "import_scope", "constraint"]),
        **dict.fromkeys(["shape", "experimental_enable_variable_lifting"]),
        **{"initial_value": [1.0], "trainable": False, "validate_shape": True, "name": "v"},
        "synchronization": rx.VariableSynchronization.AUTO,
        "aggregation": rx.VariableAggregation.NONE,
    }


def test_a_creator_may_change_the_arguments_or_the_result():
    strategy = mirrored(2)

    def doubled(next_creator: Any, **kwargs: Any) -> Any:
        kwargs["initial_value"] = 2 * kwargs["initial_value"]
        return [next_creator(**kwargs)]

    with strategy.scope(), rx.variable_creator_scope(doubled):
        made: Any = rx.Variable(3.0)
    assert made[0].numpy() == 6.0 and len(made[0].values) == 2


def test_colocated_variables_are_where_the_other_is():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0)
        with strategy.extended.colocate_vars_with(v):
            slot = rx.Variable(0.0)
        with strategy.extended.colocate_vars_with("CPU:5"):
            lone = rx.Variable(0.0)
    assert [part.device for part in slot.values] == [part.device for part in v.values]
    assert lone.device.endswith("CPU:5")
    lone.assign_add(1.0)
    np.testing.assert_array_equal(lone.numpy(), 1)


@several_replicas
def test_values_of_numpy_need_no_program(strategy: Any, caplog: pytest.LogCaptureFixture):
    # A size of its own: programs for others may be there already.
    values = [np.full((11, size), 1.5, dtype) for size in (13, 17) for dtype in ("f4", "i4")]
    with jax.log_compiles(), strategy.scope():
        variables = [rx.Variable(value) for value in values]
    assert "Compiling" not in caplog.text
    for variable, value in zip(variables, values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value.astype(variable.dtype))
