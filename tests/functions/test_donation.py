"""Arrays of variables that compiled functions overwrite in place, and what stays in memory."""

import copy
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.context import thread_state
from replicax._src.variable import _program_state
from tests.replicas import by_replica, context, mirrored, parts_of, two_replicas

ON_READ = rx.VariableSynchronization.ON_READ

# Each compiles for a while; these three have a path of their own.
some_strategies = pytest.mark.parametrize(
    "strategy", ["default", "mirrored_2", "central_storage_2"], indirect=True
)


# ------------------------------------------------------------------ donation


@pytest.fixture(params=["plain", "mirrored", "own", "central"])
def counter(request: pytest.FixtureRequest) -> Any:
    """A variable of some kind with a compiled step that adds one to it."""
    kind = request.param
    strategy = mirrored(2)
    if kind == "central":
        strategy = rx.distribute.experimental.CentralStorageStrategy(
            ["CPU:0", "CPU:1"], parameter_device="CPU:0"
        )
    initial = jnp.array([1.0, 2.0])
    if kind == "plain":
        v = rx.Variable(initial)
        step = rx.function(lambda: v.assign_add(jnp.ones(2)).read_value())
    else:
        with strategy.scope():
            v = rx.Variable(
                initial,
                aggregation="MEAN",
                synchronization=ON_READ if kind == "own" else "ON_WRITE",
            )
        step = rx.function(lambda: strategy.run(lambda: v.assign_add(jnp.ones(2)).read_value()))
    return SimpleNamespace(kind=kind, strategy=strategy, v=v, step=step, initial=initial)


def test_arrays_read_before_stay_valid(counter: Any):
    v, step = counter.v, counter.step
    kept: list[tuple[Any, Any]] = [(counter.initial, [1.0, 2.0])]
    for number in range(4):
        expected = [1.0 + number, 2.0 + number]
        looks = [
            v.read_value,
            v.value,
            v.numpy,
            lambda: np.asarray(v),
            lambda: jnp.asarray(v),
            lambda: copy.deepcopy(v),
            lambda: copy.copy(v),
            lambda: jax.tree.leaves(v)[0],
        ]
        # A different one first each time: the first is what makes the array known.
        for index in range(len(looks)):
            kept.append((looks[(index + number) % len(looks)](), expected))
        kept += [(part, expected) for part in counter.strategy.experimental_local_results(v)[:0]]
        result = step()
        kept.append((result, [2.0 + number, 3.0 + number]))
    for value, expected in kept:
        for part in parts_of(counter.strategy, value):
            np.testing.assert_allclose(part, expected)


@pytest.mark.parametrize("look", ["read_value", "numpy", "asarray", "deepcopy", "local_results"])
def test_each_way_to_look_alone_keeps_the_array(counter: Any, look: str):
    v, step = counter.v, counter.step
    step()
    step()  # now the program owns the array
    found = {
        "read_value": lambda: v.read_value(),
        "numpy": lambda: v.numpy(),
        "asarray": lambda: np.asarray(v),
        "deepcopy": lambda: copy.deepcopy(v),
        "local_results": lambda: [
            np.asarray(part) for part in counter.strategy.experimental_local_results(v)
        ][0],
    }[look]()
    step()
    step()
    np.testing.assert_allclose(found, [3.0, 4.0])
    np.testing.assert_allclose(v.numpy(), [5.0, 6.0])


def test_a_copied_variable_goes_its_own_way(counter: Any):
    v, step = counter.v, counter.step
    step()
    other = copy.deepcopy(v)
    step()
    other.assign(jnp.array([100.0, 200.0]))
    step()
    np.testing.assert_allclose(v.numpy(), [4.0, 5.0])
    np.testing.assert_allclose(other.numpy(), [100.0, 200.0])


def test_a_variable_copied_inside_a_function_is_refused():
    v = rx.Variable(1.0)

    @rx.function
    def step() -> Any:
        v.assign_add(1.0)
        return copy.deepcopy(v) * 1

    with pytest.raises(RuntimeError, match="Copy it outside"):
        step()
    assert thread_state.world is None
    assert v.numpy() == 1.0


def test_arrays_assigned_to_a_variable_stay_valid(counter: Any):
    v, step = counter.v, counter.step
    given = jnp.array([10.0, 20.0])
    v.assign(given)
    step()
    step()
    np.testing.assert_allclose(given, [10.0, 20.0])
    if counter.kind == "plain":
        return
    total = counter.strategy.run(lambda: context().all_reduce("SUM", jnp.ones(2)))
    whole = counter.strategy.extended.broadcast_to(jnp.full(2, 3.0), None)
    for given, expected in ((whole, 3.0), (counter.strategy.reduce("MEAN", total, None), 2.0)):
        v.assign(given)
        step()
        step()
        np.testing.assert_allclose(v.numpy(), [expected + 2] * 2)
        for part in parts_of(counter.strategy, given):
            np.testing.assert_allclose(part, [expected] * 2)


@two_replicas
def test_one_value_in_two_variables(strategy: Any):
    with strategy.scope():
        a = rx.Variable(jnp.ones(2), aggregation="SUM")
        b = rx.Variable(jnp.zeros(2), aggregation="SUM")
    swap = rx.function(lambda: (b.assign(a.read_value()), None)[1])

    @rx.function
    def step() -> None:
        old = a.read_value()
        strategy.run(lambda: a.assign_add(jnp.ones(2)))
        b.assign(old)

    for number in range(4):
        step()
        np.testing.assert_allclose(a.numpy(), [2 * number + 3.0] * 2)
        np.testing.assert_allclose(b.numpy(), [2 * number + 1.0] * 2)
    swap()
    step()
    np.testing.assert_allclose(b.numpy(), [9.0, 9.0])
    b.assign(a)  # eagerly: both now hold one array
    step()
    step()
    np.testing.assert_allclose(a.numpy(), [15.0, 15.0])
    np.testing.assert_allclose(b.numpy(), [13.0, 13.0])


def test_two_functions_and_one_array_in_both_variables():
    shared = jnp.ones(2)
    a, b = rx.Variable(shared), rx.Variable(shared)
    step = rx.function(lambda: (a.assign_add(shared), b.assign_sub(shared), None)[2])
    for _ in range(3):
        step()
    np.testing.assert_allclose(a.numpy(), [4.0, 4.0])
    np.testing.assert_allclose(b.numpy(), [-2.0, -2.0])
    np.testing.assert_allclose(shared, [1.0, 1.0])


def test_a_value_that_is_returned_and_kept_in_the_variable(counter: Any):
    v = counter.v
    results = [counter.step() for _ in range(4)]
    for index, result in enumerate(results):
        for part in parts_of(counter.strategy, result):
            np.testing.assert_allclose(part, [index + 2.0, index + 3.0])
    np.testing.assert_allclose(v.numpy(), [5.0, 6.0])


def test_the_variable_as_the_result():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    step = rx.function(lambda: strategy.run(lambda: v.assign_add(jnp.float32(1.0))))
    history = [step() for _ in range(3)]
    assert [float(value) for value in history] == [3.0, 5.0, 7.0]  # not the live variable
    assert v.numpy() == 7.0


def test_a_result_of_one_step_as_the_argument_of_the_next():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(jnp.zeros(2), aggregation="MEAN")

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            v.assign_add(x)
            return v.read_value()

        return strategy.run(replica_fn, (x,))

    x = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)])
    xs = [x]
    for _ in range(4):
        xs.append(step(xs[-1]))
    for x, expected in zip(xs, [1.0, 1.0, 2.0, 4.0, 8.0], strict=True):
        np.testing.assert_allclose(parts_of(strategy, x), np.full((2, 2), expected))


@some_strategies
def test_eager_and_compiled_steps_in_turns(strategy: Any):
    def make() -> Any:
        with strategy.scope():
            w = rx.Variable(jnp.array([1.0, -1.0]))
            own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")
            metric = rx.metrics.Mean()
            optimizer = rx.Optimizer(optax.adam(0.1))

        def replica_fn(x: Any) -> Any:
            loss, gradients = rx.value_and_grad(lambda: jnp.sum((w - x) ** 2), [w])
            optimizer.apply_gradients(zip(gradients, [w]))
            own.assign_add(loss)
            metric.update_state(loss)
            return loss

        def look() -> list[np.ndarray]:
            return [np.asarray(each) for each in (w, own, metric.result(), optimizer.iterations)]

        return replica_fn, look

    x = by_replica(strategy, lambda index: jnp.float32(index))
    eager, look_eager = make()
    mixed, look_mixed = make()
    compiled = rx.function(lambda x: strategy.run(mixed, (x,)))
    for number in range(6):
        strategy.run(eager, (x,))
        if number % 3 == 0:
            strategy.run(mixed, (x,))
        else:
            compiled(x)
        for a, b in zip(look_eager(), look_mixed(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


# ------------------------------------------------------------------ memory


@some_strategies
def test_live_arrays_stay_constant_over_compiled_steps(strategy: Any):
    with strategy.scope():
        w = rx.Variable(jnp.zeros(3))
        own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")
        optimizer = rx.Optimizer(optax.adam(0.1))
    plain = rx.Variable(0.0)

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            loss, gradients = rx.value_and_grad(lambda: jnp.sum((w - x) ** 2), [w])
            optimizer.apply_gradients(zip(gradients, [w]))
            own.assign_add(loss)
            return loss

        loss = strategy.reduce("SUM", strategy.run(replica_fn, (x,)), axis=None)
        plain.assign_add(loss)
        return loss

    def live_after(steps: int) -> tuple[int, int]:
        for _ in range(steps):
            step(by_replica(strategy, lambda _: np.ones(3, np.float32)))
        gc.collect()
        return len(jax.live_arrays()), sum(array.nbytes for array in jax.live_arrays())

    arrays, size = live_after(3)
    arrays_later, size_later = live_after(10)
    assert arrays_later <= arrays and size_later <= size


def test_state_is_written_in_place():
    v = rx.Variable(jnp.zeros(1000))
    step = rx.function(lambda: (v.assign_add(jnp.ones(1000)), None)[1])
    step()
    step()
    old = v._stored.assembled
    step()
    assert old.is_deleted()


@pytest.mark.parametrize("strategy", ["default", "mirrored_2"], indirect=True)
def test_the_first_step_needs_one_program(strategy: Any, caplog: pytest.LogCaptureFixture):
    with strategy.scope():
        variables = [rx.Variable(np.full((7, size), 1.0, np.float32)) for size in (3, 5)]

    @rx.function
    def only_step() -> None:
        for variable in variables:
            variable.assign_add(jnp.ones(variable.shape))

    kept = [variable.read_value() for variable in variables]
    with jax.log_compiles(), jax.transfer_guard("disallow_explicit"):
        only_step()
    compiled = [each.getMessage() for each in caplog.records if "Compiling" in each.getMessage()]
    assert len(compiled) == 1 and "only_step" in compiled[0]
    for array, variable in zip(kept, variables, strict=True):
        np.testing.assert_array_equal(array, np.ones(variable.shape))
        np.testing.assert_array_equal(variable.numpy(), 2 * np.ones(variable.shape))


@pytest.mark.parametrize("layout", [None, "optimizer", "everything"])
def test_the_first_step_has_its_state_once(layout: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_program_state, "_PORTION", 5000)
    state = rx.distribute.StateLayout(over_replicas=layout) if layout else None
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"], state_layout=state)
    mine = jnp.ones(1000)
    with strategy.scope():
        weights = [rx.Variable(jnp.full(1000, each)) for each in range(8)]
        weights.append(rx.Variable(mine))
        optimizer = rx.Optimizer(optax.adam(0.1))
        optimizer.build(weights)

    @rx.function
    def step() -> Any:
        def replica_fn() -> Any:
            loss, gradients = rx.value_and_grad(
                lambda: sum(jnp.sum(w**2) for w in weights), weights
            )
            optimizer.apply_gradients(zip(gradients, weights))
            return loss

        return strategy.reduce("SUM", strategy.run(replica_fn), axis=None)

    live: list[int] = []
    copied = _program_state._copied

    def watched(arrays: list[Any]) -> Any:
        live.append(_live_on_first())
        result = copied(arrays)
        live.append(_live_on_first())
        return result

    monkeypatch.setattr(_program_state, "_copied", watched)
    gc.collect()
    before = _live_on_first()
    first = float(step())
    assert len(live) > 10 and max(live) <= before + 5000 + 4000  # the user's array is one more
    np.testing.assert_array_equal(mine, np.ones(1000))
    assert float(step()) < first


def _live_on_first() -> int:
    """How many bytes of the first device hold arrays, each counted once."""
    shards = [s.data for array in jax.live_arrays() for s in array.addressable_shards]
    found = {s.unsafe_buffer_pointer(): s.nbytes for s in shards if s.device.id == 0}
    return sum(found.values())


@pytest.mark.parametrize("count", [1, 2])
def test_a_model_that_is_dropped_is_freed(count: int):
    strategy = mirrored(count)

    class Model:
        def __init__(self) -> None:
            with strategy.scope():
                self.w = rx.Variable(jnp.ones(2))
                self.optimizer = rx.Optimizer(optax.adam(0.1))

        @rx.function
        def step(self, x: Any) -> Any:
            def replica_fn(x: Any) -> Any:
                loss, gradients = rx.value_and_grad(lambda: jnp.sum(self.w * x), [self.w])
                self.optimizer.apply_gradients(zip(gradients, [self.w]))
                return loss

            return strategy.run(replica_fn, (x,))

    gc.collect()
    before = len(jax.live_arrays())
    model = Model()
    for _ in range(2):
        model.step(jnp.ones(2))
    references = [weakref.ref(each) for each in (model, model.w, model.optimizer)]
    del model
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert len(jax.live_arrays()) <= before + 1  # JAX keeps constants of its own


def test_a_function_that_is_dropped_frees_what_it_captured():
    strategy = mirrored(2)

    def make() -> Any:
        with strategy.scope():
            w = rx.Variable(jnp.ones(2), aggregation="SUM")
        captured = jnp.ones(2)
        step = rx.function(lambda: strategy.run(lambda: w.assign_add(captured)))
        step()
        return [weakref.ref(w), weakref.ref(step), weakref.ref(captured)]

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_a_long_lived_function_does_not_keep_models_alive():
    strategy = mirrored(2)

    @rx.function
    def step(model: Any, x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            model.w.assign_add(x)
            return model.w * 2

        return strategy.run(replica_fn, (x,))

    class Model:
        def __init__(self, start: float):
            with strategy.scope():
                self.w = rx.Variable(start, aggregation="SUM")

    references = []
    for start in (1.0, 10.0):
        model = Model(start)
        assert parts_of(strategy, step(model, jnp.float32(1.0)))[0] == 2 * start + 4
        assert parts_of(strategy, step(model, jnp.float32(1.0)))[0] == 2 * start + 8
        references.append(weakref.ref(model))
        references.append(weakref.ref(model.w))
        del model
        gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_programs_for_objects_that_are_gone_free_their_constants():
    class Model:
        def __init__(self, start: float):
            self.table = jnp.arange(100.0) + start

    step = rx.function(lambda model, x: x + model.table)
    references = []
    for start in range(3):
        model = Model(start)
        assert float(step(model, jnp.float32(1.0))[0]) == 1.0 + start
        references.append(weakref.ref(model.table))
        del model
    step(Model(0.0), jnp.float32(1.0))
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_objects_that_are_gone_are_forgotten_where_a_call_runs_as_python():
    strategies = [mirrored(2), mirrored(3)]

    class Model:
        pass

    @rx.function
    def total(models: Any) -> Any:
        runs = [each.run(lambda: jnp.float32(1.0)) for each in strategies]
        return sum(strategies[0].experimental_local_results(runs[0])) + len(models)

    for _ in range(3):
        assert float(total({Model()})) == 3.0
    gc.collect()
    assert not total._programs._programs
