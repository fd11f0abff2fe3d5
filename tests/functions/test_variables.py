"""Variables in compiled functions: how they are found, made, and left by a call that fails."""

import gc
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.context import thread_state
from tests.replicas import by_replica, context, few_replicas, mirrored, parts_of, two_replicas

ON_READ = rx.VariableSynchronization.ON_READ

# Each compiles for a while; these three have a path of their own.
some_strategies = pytest.mark.parametrize(
    "strategy", ["default", "mirrored_2", "central_storage_2"], indirect=True
)


# ------------------------------------------------------------------ found


@some_strategies
def test_variables_in_closures_containers_and_objects(strategy: Any):
    class Layer:
        def __init__(self, value: float):
            self.w = rx.Variable(value, aggregation="MEAN")
            self.parts = {"inner": [rx.Variable(value * 10, aggregation="MEAN")]}

    with strategy.scope():
        closed_over = rx.Variable(1.0, aggregation="MEAN")
        model = SimpleNamespace(layers=(Layer(2.0), {"deep": Layer(3.0)}))

    def replica_fn() -> Any:
        variables = [closed_over]
        for layer in (model.layers[0], model.layers[1]["deep"]):
            variables += [layer.w, *layer.parts["inner"]]
        for variable in variables:
            variable.assign_add(0.5)
        return sum(v.read_value() for v in variables)

    step = rx.function(lambda: strategy.run(replica_fn))
    assert parts_of(strategy, step())[0] == 1 + 2 + 20 + 3 + 30 + 2.5
    assert parts_of(strategy, step())[0] == 1 + 2 + 20 + 3 + 30 + 5.0
    assert closed_over.numpy() == 2.0
    assert model.layers[1]["deep"].parts["inner"][0].numpy() == 31.0


def test_a_global_name_that_comes_to_stand_for_another_variable():
    place = SimpleNamespace(w=rx.Variable(1.0))
    read = rx.function(lambda x: x * place.w)
    add = rx.function(lambda: place.w.assign_add(1.0).read_value())
    assert float(read(jnp.float32(2.0))) == 2.0
    assert float(add()) == 2.0
    place.w = rx.Variable(10.0)
    gc.collect()
    assert float(read(jnp.float32(2.0))) == 20.0
    assert float(add()) == 11.0
    assert place.w.numpy() == 11.0


def test_a_name_that_stands_for_another_variable_while_the_first_lives_on():
    # As in TensorFlow: what a trace has captured it keeps.
    first, second = rx.Variable(1.0), rx.Variable(10.0)
    place = SimpleNamespace(w=first)
    read = rx.function(lambda x: x * place.w)
    assert float(read(jnp.float32(2.0))) == 2.0
    place.w = second
    assert float(read(jnp.float32(2.0))) == 2.0
    assert float(read(jnp.ones(1))[0]) == 10.0  # another shape is another trace


def test_variables_of_two_strategies_in_one_function():
    one, two = mirrored(2), rx.distribute.MirroredStrategy(["CPU:2", "CPU:3", "CPU:4"])
    with one.scope():
        a = rx.Variable(1.0, aggregation="SUM")
        own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")
    with two.scope():
        b = rx.Variable(1.0, aggregation="SUM")

    def first(x: Any) -> Any:
        a.assign_add(x)
        own.assign_add(x * (context().replica_id_in_sync_group + 1))
        return a * 1

    def second(x: Any) -> Any:
        b.assign_add(x)
        return b * 1

    @rx.function
    def step(x: Any) -> Any:
        total = one.reduce("SUM", one.run(first, (x,)), axis=None)
        return total + two.reduce("SUM", two.run(second, (x,)), axis=None)

    assert float(step(jnp.float32(1.0))) == 2 * 3.0 + 3 * 4.0
    assert float(step(jnp.float32(1.0))) == 2 * 5.0 + 3 * 7.0
    assert (a.numpy(), b.numpy(), own.numpy()) == (5.0, 7.0, 6.0)


def test_a_variable_of_another_strategy_is_read_and_set_around_the_run():
    one, two = mirrored(2), rx.distribute.MirroredStrategy(["CPU:2", "CPU:3"])
    with one.scope():
        a = rx.Variable(1.0, aggregation="SUM")
    with two.scope():
        b = rx.Variable(10.0)

    @rx.function
    def step(x: Any) -> Any:
        one.run(lambda x: a.assign_add(x * b), (x,))
        b.assign(a.read_value())
        return b.read_value()

    assert float(step(jnp.float32(1.0))) == 21.0
    assert float(step(jnp.float32(1.0))) == 63.0
    assert (a.numpy(), b.numpy()) == (63.0, 63.0)


@few_replicas
@pytest.mark.parametrize("kind", ["assign_add", "assign_sub"])
def test_plain_variables_get_the_updates_of_all_replicas(strategy: Any, executor: Any, kind: str):
    plain = rx.Variable(jnp.zeros(2))

    def replica_fn(x: Any) -> None:
        getattr(plain, kind)(x)
        getattr(plain, kind)(jnp.ones(2))

    x = by_replica(strategy, lambda index: jnp.full(2, index + 1.0))
    executor.run(strategy, replica_fn, (x,))
    count = strategy.num_replicas_in_sync
    sign = 1 if kind == "assign_add" else -1
    total = sign * (sum(range(1, count + 1)) + count)
    np.testing.assert_allclose(plain.numpy(), [total, total])


@few_replicas
def test_a_plain_variable_assigned_by_replicas_has_the_lasts_value(strategy: Any, executor: Any):
    plain = rx.Variable(0.0)

    def replica_fn(x: Any) -> None:
        plain.assign(x)
        plain.assign_add(x)

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    executor.run(strategy, replica_fn, (x,))
    assert plain.numpy() == 2.0 * strategy.num_replicas_in_sync


@pytest.mark.parametrize("kind", ["read_first", "read_and_assign", "merge", "read_in_merge"])
def test_replicas_take_turns_with_a_plain_variable(executor: Any, kind: str):
    strategy = mirrored(2)
    plain = rx.Variable(0.0)

    def replica_fn(x: Any) -> Any:
        if kind == "read_first":  # sees what the replicas before have done
            seen = plain.read_value()
            plain.assign_add(x)
            return seen + 0
        if kind == "read_and_assign":
            plain.assign(plain + x)
            return plain.read_value() + 0
        plain.assign_add(x)
        if kind == "merge":  # by then all replicas have done it
            context().merge_call(lambda strategy: None)
            return plain.read_value() + 0
        return context().merge_call(lambda strategy: plain.read_value() * 1) + 0

    result = executor.run(strategy, replica_fn, (rx.distribute.PerReplica([1.0, 2.0]),))
    expected = {
        "read_first": [0.0, 1.0],
        "read_and_assign": [1.0, 3.0],
        "merge": [3.0, 3.0],
        "read_in_merge": [3.0, 3.0],
    }[kind]
    assert plain.numpy() == 3.0
    assert parts_of(strategy, result) == expected


def test_a_plain_variable_on_another_device():
    strategy = mirrored(2)
    with rx.device("CPU:5"):
        far = rx.Variable(1.0)
        made_by_optax = rx.Optimizer(optax.sgd(0.5))

    @rx.function
    def step(x: Any) -> Any:
        far.assign_add(strategy.reduce("SUM", x, axis=None))
        return strategy.run(lambda: far * 2)

    assert parts_of(strategy, step(rx.distribute.PerReplica([1.0, 2.0]))) == [8.0, 8.0]
    assert parts_of(strategy, step(rx.distribute.PerReplica([1.0, 2.0]))) == [14.0, 14.0]
    assert far.device.endswith("CPU:5")
    assert far.read_value().devices() == {jax.devices("cpu")[5]}

    @rx.function
    def descend() -> None:
        made_by_optax.apply_gradients([(jnp.float32(2.0), far)])

    descend()
    descend()
    assert far.numpy() == 5.0 and made_by_optax.iterations.numpy() == 2


def test_central_storage_on_a_device_without_a_replica():
    strategy = rx.distribute.experimental.CentralStorageStrategy(
        ["CPU:1", "CPU:2"], parameter_device="CPU:4"
    )
    with strategy.scope():
        w = rx.Variable(jnp.ones(2), aggregation="SUM")
        own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")
        optimizer = rx.Optimizer(optax.adam(0.1))

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            own.assign_add(x)
            loss, gradients = rx.value_and_grad(lambda: jnp.sum(w * x), [w])
            optimizer.apply_gradients(zip(gradients, [w]))
            return loss

        return strategy.run(replica_fn, (x,))

    x = rx.distribute.PerReplica([1.0, 2.0])
    for _ in range(3):
        result = step(x)
    np.testing.assert_allclose(parts_of(strategy, result), [1.6, 3.2], rtol=1e-5)
    np.testing.assert_allclose(w.numpy(), [0.7, 0.7], rtol=1e-5)
    assert own.numpy() == 9.0
    assert w.read_value().devices() == {jax.devices("cpu")[4]}
    assert w.device.endswith("CPU:4")


# ------------------------------------------------------------------ made on the first call


class Lazy:
    """Makes its variables and its optimizer when it is first called."""

    def __init__(self) -> None:
        self.w: Any = None
        self.optimizer: Any = None

    def __call__(self, x: Any) -> Any:
        if self.w is None:
            self.w = rx.Variable(jnp.ones(x.shape[-1:]) * 2, name="w")
            self.optimizer = rx.Optimizer(optax.adam(0.1))
        loss, gradients = rx.value_and_grad(lambda: jnp.sum(self.w * x), [self.w])
        self.optimizer.apply_gradients(zip(gradients, [self.w]))
        return loss


@some_strategies
def test_a_model_and_its_optimizer_made_inside_run(strategy: Any, executor: Any):
    model = Lazy()
    x = by_replica(strategy, lambda index: jnp.ones((1, 3)) * (index + 1))
    expected: Any = jnp.full(3, 2.0)
    state = optax.adam(0.1).init(expected)
    step = rx.function(lambda x: strategy.run(model, (x,)))
    total = sum(range(1, strategy.num_replicas_in_sync + 1))
    for _ in range(3):
        if executor.name == "compiled":
            step(x)
        else:
            strategy.run(model, (x,))
        updates: Any
        updates, state = optax.adam(0.1).update(jnp.full(3, float(total)), state)
        expected = expected + updates
    np.testing.assert_allclose(model.w.numpy(), expected, rtol=1e-5)
    assert model.optimizer.iterations.numpy() == 3
    assert [v.numpy().shape for v in model.optimizer.variables] == [(), (), (3,), (3,)]


@some_strategies
def test_variables_made_outside_of_run_on_the_first_call(strategy: Any):
    made: dict[str, Any] = {}

    @rx.function
    def step(x: Any) -> Any:
        if not made:
            with strategy.scope():
                made["w"] = rx.Variable(x * 2, aggregation="SUM")
                made["own"] = rx.Variable(1.0, synchronization=ON_READ, aggregation="SUM")
            made["plain"] = rx.Variable(jnp.arange(3.0))

        def replica_fn(x: Any) -> Any:
            made["w"].assign_add(x)
            made["own"].assign_add(1.0)
            return made["w"].read_value() + made["plain"]

        return strategy.run(replica_fn, (x,))

    count = strategy.num_replicas_in_sync
    for calls in (1, 2):
        result = parts_of(strategy, step(jnp.ones(3)))[-1]
        np.testing.assert_allclose(result, 2 + calls * count + np.arange(3.0))
        assert made["own"].numpy() == count * (1 + calls)
    assert made["w"].distribute_strategy is (strategy if count > 1 else made["w"]._strategy)


@two_replicas
def test_initial_values_of_every_sort(strategy: Any):
    made: list[Any] = []
    key = jax.random.key(3)
    captured = jnp.array([7.0, 8.0])

    def replica_fn(x: Any) -> Any:
        if not made:
            made.append(rx.Variable(x))  # the first replica's
            made.append(rx.Variable(lambda: jax.random.normal(key, (2,))))
            made.append(rx.Variable(captured))
            made.append(rx.Variable([1, 2]))
            made.append(rx.Variable(np.ones(2, np.float16)))
            made.append(rx.Variable(made[0] * 2))
            made.append(rx.Variable(context().replica_id_in_sync_group, synchronization=ON_READ))
            made.append(rx.Variable(jnp.zeros((0, 2))))
            made.append(rx.Variable(True))
        return made[0] + made[2]

    step = rx.function(lambda x: strategy.run(replica_fn, (x,)))
    x = by_replica(strategy, lambda index: jnp.full(2, index + 1.0))
    for _ in range(2):
        np.testing.assert_allclose(parts_of(strategy, step(x)), [[8.0, 9.0]] * 2)
    np.testing.assert_allclose(made[0].numpy(), [1.0, 1.0])
    np.testing.assert_allclose(made[1].numpy(), jax.random.normal(key, (2,)), rtol=1e-6)
    np.testing.assert_allclose(made[2].numpy(), [7.0, 8.0])
    assert made[3].dtype == jnp.int32 and made[4].dtype == jnp.float16
    np.testing.assert_allclose(made[5].numpy(), [2.0, 2.0])
    assert parts_of(strategy, made[6]) == [0, 0]
    assert made[7].numpy().shape == (0, 2)
    assert made[8].numpy() and made[8].dtype == jnp.bool_
    np.testing.assert_allclose(captured, [7.0, 8.0])


def test_a_new_variable_can_be_used_eagerly_at_once():
    strategy = mirrored(2)
    model = Lazy()
    step = rx.function(lambda x: strategy.run(model, (x,)))
    x = by_replica(strategy, lambda _: jnp.ones((1, 2)))
    step(x)
    model.w.assign(jnp.array([5.0, 6.0]))
    strategy.run(model, (x,))
    step(x)
    np.testing.assert_allclose(model.w.numpy(), [4.8, 5.8], atol=1e-3)
    assert model.optimizer.iterations.numpy() == 3


def test_a_lazy_method_makes_variables_for_each_object():
    strategy = mirrored(2)

    class Counter:
        def __init__(self, start: float):
            self.start = start
            self.v: Any = None

        @rx.function
        def count(self) -> Any:
            if self.v is None:
                with strategy.scope():
                    self.v = rx.Variable(self.start, aggregation="SUM")
            strategy.run(lambda: self.v.assign_add(jnp.float32(1.0)))
            return self.v.read_value()

    one, other = Counter(0.0), Counter(10.0)
    assert [float(c.count()) for c in (one, other, one, other, one)] == [2, 12, 4, 14, 6]
    assert (one.v.numpy(), other.v.numpy()) == (6.0, 14.0)


@pytest.mark.parametrize("in_run", [False, True])
def test_a_variable_made_on_every_call_is_refused(in_run: bool):
    strategy = mirrored(2)
    kept: list[Any] = []

    def make() -> Any:
        kept.append(rx.Variable(1.0))
        return kept[-1] * 2

    step = rx.function(lambda: strategy.run(make) if in_run else make())
    # TensorFlow traces twice before it runs anything, and refuses the first call already.
    with pytest.raises(ValueError, match="if self.v is None"):
        step()
        step()
    assert thread_state.world is None


def test_a_variable_made_for_a_second_shape_is_refused():
    made: dict[Any, Any] = {}

    @rx.function
    def step(x: Any) -> Any:
        if x.shape not in made:
            made[x.shape] = rx.Variable(jnp.zeros(x.shape))
        return made[x.shape].assign_add(x).read_value()

    step(jnp.ones(2))
    np.testing.assert_allclose(step(jnp.ones(2)), [2.0, 2.0])
    with pytest.raises(ValueError, match="on a call after the first"):
        step(jnp.ones(3))
    np.testing.assert_allclose(step(jnp.ones(2)), [3.0, 3.0])


# ------------------------------------------------------------------ a first call that fails


@pytest.mark.parametrize("count", [1, 2])
def test_a_first_call_that_fails_leaves_a_variable_with_its_first_value(count: int):
    strategy = mirrored(count)
    made: list[Any] = []
    fail = [True]

    @rx.function
    def step(x: Any) -> Any:
        if not made:
            with strategy.scope():
                made.append(rx.Variable(x + 1))
        made[0].assign_add(x)
        if fail[0]:
            raise ZeroDivisionError("on purpose")
        return made[0].read_value()

    with pytest.raises(ZeroDivisionError):
        step(jnp.float32(1.0))
    assert thread_state.world is None
    assert made[0].numpy() == 2.0
    made[0].assign_add(10.0)
    fail[0] = False
    assert float(step(jnp.float32(1.0))) == 13.0
    assert float(step(jnp.float32(1.0))) == 14.0
    assert len(made) == 1


@two_replicas
def test_first_values_that_depend_on_what_the_function_did_before(strategy: Any):
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
        looped = rx.Variable(0.0, aggregation="SUM")
    made: dict[str, Any] = {}

    def replica_fn(x: Any) -> Any:
        v.assign_add(x)
        jax.lax.fori_loop(0, 2, lambda i, c: c + 0 * looped.assign_add(x).read_value(), 0.0)
        if not made:
            made["after"] = rx.Variable(v * 2)
            made["of_made"] = rx.Variable(made["after"] + 1)
            made["reduced"] = rx.Variable(context().all_reduce("SUM", x))
            made["looped"] = rx.Variable(looped.read_value())
        return made["after"] + made["of_made"] + made["reduced"]

    step = rx.function(lambda x: strategy.run(replica_fn, (x,)))
    x = rx.distribute.PerReplica([1.0, 2.0])
    for _ in range(2):
        assert parts_of(strategy, step(x)) == [20.0, 20.0]
    assert (v.numpy(), looped.numpy()) == (7.0, 12.0)
    found = {name: float(variable) for name, variable in made.items()}
    assert found == {"after": 8.0, "of_made": 9.0, "reduced": 3.0, "looped": 6.0}


@two_replicas
def test_a_layer_made_inside_a_loss(strategy: Any):
    made: list[Any] = []

    def loss(x: Any) -> Any:
        if not made:
            made.append(rx.Variable(jnp.ones(x.shape) * 2))
            made.append(rx.Variable(x * 1))
        return jnp.sum(made[0] * x + made[1])

    def replica_fn(x: Any) -> Any:
        value = rx.value_and_grad(lambda: loss(x), [other, *made])[0]
        return value, rx.grad(lambda: loss(x), made)

    with strategy.scope():
        other = rx.Variable(1.0)
    step = rx.function(lambda x: strategy.run(replica_fn, (x,)))
    x = rx.distribute.PerReplica([jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])])
    for _ in range(2):
        value, (first, second) = step(x)
        assert parts_of(strategy, value) == [9.0, 17.0]
        np.testing.assert_allclose(parts_of(strategy, first), [[1.0, 2.0], [3.0, 4.0]])
        np.testing.assert_allclose(parts_of(strategy, second), np.ones((2, 2)))


@pytest.mark.parametrize("count", [1, 2])
def test_an_optimizer_works_after_a_first_call_that_failed(count: int):
    strategy = mirrored(count)
    with strategy.scope():
        w = rx.Variable(jnp.zeros(2))
        optimizer = rx.Optimizer(optax.adam(0.1))
    fail = [True]

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> None:
            _, gradients = rx.value_and_grad(lambda: jnp.sum(w * x), [w])
            optimizer.apply_gradients(zip(gradients, [w]))
            if fail[0]:
                raise ZeroDivisionError("on purpose")

        strategy.run(replica_fn, (x,))

    with pytest.raises(ZeroDivisionError):
        step(jnp.ones(2))
    np.testing.assert_allclose(w.numpy(), [0.0, 0.0])
    assert optimizer.iterations.numpy() == 0
    fail[0] = False
    step(jnp.ones(2))
    np.testing.assert_allclose(w.numpy(), [-0.1, -0.1], rtol=1e-5)
    step(jnp.ones(2))
    np.testing.assert_allclose(w.numpy(), [-0.2, -0.2], rtol=1e-5)
    assert optimizer.iterations.numpy() == 2


def test_an_optimizer_works_eagerly_after_a_first_call_that_failed():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(jnp.zeros(2))
        optimizer = rx.Optimizer(optax.sgd(0.1, momentum=0.9))

    def replica_fn(x: Any) -> None:
        _, gradients = rx.value_and_grad(lambda: jnp.sum(w * x), [w])
        optimizer.apply_gradients(zip(gradients, [w]))

    @rx.function
    def step(x: Any) -> None:
        strategy.run(replica_fn, (x,))
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        step(jnp.ones(2))
    strategy.run(replica_fn, (jnp.ones(2),))
    np.testing.assert_allclose(w.numpy(), [-0.2, -0.2], rtol=1e-5)


def test_assignments_of_a_call_that_fails_do_not_happen():
    w = rx.Variable(1.0)

    @rx.function
    def step(x: Any) -> None:
        w.assign_add(x)
        raise ZeroDivisionError("on purpose")

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            step(jnp.float32(1.0))
    assert w.numpy() == 1.0
    w.assign_add(1.0)
    assert w.numpy() == 2.0
