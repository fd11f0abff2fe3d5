"""Every strategy of `rx.compat.v1.distribute` has the methods of TensorFlow 1."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.compat.older_strategies import OLDER, call, distribute
from tests.old_names import with_old_names
from tests.pipelines import Dataset, flat, shares
from tests.under_test import Executor, cpus

pytestmark = with_old_names


@pytest.fixture(params=OLDER)
def strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return OLDER[request.param]()


def test_they_are_strategies_of_both_generations(strategy: Any):
    assert isinstance(strategy, distribute.Strategy)
    assert isinstance(strategy, rx.distribute.Strategy)
    assert isinstance(strategy.extended, distribute.StrategyExtended)
    current = getattr(rx.distribute, type(strategy).__name__)
    assert isinstance(strategy, current) and type(strategy) is not current
    with strategy.scope():
        assert distribute.has_strategy() and distribute.get_strategy() is strategy
        assert distribute.in_cross_replica_context()
        assert distribute.get_replica_context() is None
    assert not distribute.has_strategy()


def test_setting_a_strategy(strategy: Any):
    distribute.experimental_set_strategy(strategy)
    try:
        assert rx.distribute.get_strategy() is strategy
    finally:
        distribute.experimental_set_strategy(None)


# --- iterators ------------------------------------------------------------------------------------


def test_a_data_set_iterator_is_ready_and_begins_anew(strategy: Any):
    iterator = strategy.make_dataset_iterator(Dataset.range(24).batch(24))
    assert flat(shares(iterator.get_next())) == list(range(24))
    with pytest.raises(rx.errors.OutOfRangeError):
        iterator.get_next()
    with pytest.raises(StopIteration):
        next(iterator)
    assert not iterator.get_next_as_optional().has_value()
    assert iterator.initialize() is None
    assert flat(shares(next(iter(iterator)))) == list(range(24))
    assert iterator.initializer is None
    assert iterator.get_next_as_optional().has_value()


def test_a_data_set_iterator_has_the_spec_of_the_data_set(strategy: Any):
    batches = Dataset.range(48).batch(24, drop_remainder=True)
    iterator = strategy.make_dataset_iterator(batches)
    expected = strategy.experimental_distribute_dataset(batches).element_spec
    assert repr(iterator.element_spec) == repr(expected)


def test_types_and_shapes_are_those_of_a_replica():
    """As TensorFlow has them: a dimension that varies is None."""
    strategy = distribute.MirroredStrategy(cpus(2))
    rows = Dataset.from_tensor_slices({"a": np.ones((4, 3), np.float32), "b": np.arange(4.0)})
    iterator = strategy.make_dataset_iterator(rows.batch(2))
    assert iterator.output_types == {"a": np.float32, "b": np.float32}
    assert iterator.output_shapes == {"a": (None, 3), "b": (None,)}
    whole = strategy.make_dataset_iterator(rows.batch(2, drop_remainder=True))
    assert whole.output_shapes == {"a": (1, 3), "b": (1,)}


def test_each_beginning_shuffles_anew(strategy: Any):
    rows = Dataset.range(24).shuffle(24, seed=1).batch(24)
    iterator = strategy.make_dataset_iterator(rows)
    first = flat(shares(iterator.get_next()))
    iterator.initialize()
    second = flat(shares(iterator.get_next()))
    assert sorted(first) == sorted(second) and first != second


def test_an_input_function_is_called_once_and_told_who_reads(strategy: Any):
    contexts: list[Any] = []
    replicas = strategy.num_replicas_in_sync

    def input_fn(context: Any) -> Any:
        contexts.append(context)
        return Dataset.range(48).batch(context.get_per_replica_batch_size(24))

    iterator = strategy.make_input_fn_iterator(input_fn)
    assert flat(shares(iterator.get_next())) == list(range(24))
    iterator.initialize()
    assert flat(shares(iterator.get_next())) == list(range(24))
    assert contexts == [distribute.InputContext(1, 0, replicas)]


@pytest.mark.parametrize("known", [True, False], ids=["known_number", "unknown_number"])
def test_steps_of_an_input_function_are_whole(known: bool, strategy: Any):
    replicas = strategy.num_replicas_in_sync

    def input_fn(context: Any) -> Any:
        numbers = Dataset.range(2 * replicas + 1)
        numbers = numbers if known else numbers.filter(lambda x: True)
        return numbers.map(lambda x: {"x": x, "y": (x, x + 1)}).batch(1)

    iterator = strategy.make_input_fn_iterator(input_fn)
    steps = [strategy.experimental_local_results(step) for step in iterator]
    expected = 2 if replicas > 1 else 3
    assert [len(step) for step in steps] == [replicas] * expected
    seen = [int(part["y"][1][0]) for step in steps for part in step]
    assert seen == list(range(1, expected * replicas + 1))


def test_an_input_function_without_an_end(strategy: Any):
    iterator = strategy.make_input_fn_iterator(lambda context: Dataset.range(2).repeat().batch(2))
    for _ in range(5):
        assert flat(shares(iterator.get_next())) == [0, 1] * strategy.num_replicas_in_sync


def test_an_input_function_may_return_an_iterable(strategy: Any):
    batch = {"x": np.ones((2, 3), np.float32)}
    iterator = strategy.make_input_fn_iterator(lambda context: [batch] * 20)
    parts = strategy.experimental_local_results(iterator.get_next())
    assert [part["x"].shape for part in parts] == [(2, 3)] * strategy.num_replicas_in_sync


def test_an_input_function_may_return_a_function(strategy: Any, executor: Executor):
    made: list[float] = []

    def make() -> Any:
        made.append(float(len(made)))
        return {"x": jnp.full(2, made[-1])}

    replicas = strategy.num_replicas_in_sync
    iterator = strategy.make_input_fn_iterator(lambda context: make)
    assert not made
    sums = call(executor, lambda: strategy.experimental_run(lambda each: each["x"].sum(), iterator))
    assert [float(x) for x in strategy.experimental_local_results(sums)] == [
        2.0 * index for index in range(replicas)
    ]
    iterator.initialize()
    assert float(strategy.experimental_local_results(next(iterator))[0]["x"][0]) == replicas
    assert iterator.get_next_as_optional().has_value()
    with pytest.raises(TypeError, match="no element_spec"):
        iterator.element_spec  # noqa: B018


# --- running --------------------------------------------------------------------------------------


def test_running_on_what_an_iterator_gives(strategy: Any, executor: Executor):
    iterator = strategy.make_dataset_iterator(Dataset.range(36).batch(24))

    def step() -> Any:
        return strategy.experimental_run(lambda x: x * 2, iterator)

    assert flat(shares(call(executor, step))) == [2 * n for n in range(24)]
    assert flat(shares(call(executor, step))) == [2 * n for n in range(24, 36)]
    with pytest.raises(rx.errors.OutOfRangeError):
        call(executor, step)
    iterator.initialize()
    assert flat(shares(call(executor, step))) == [2 * n for n in range(24)]


def test_running_a_compiled_replica_function(strategy: Any):
    iterator = strategy.make_dataset_iterator(Dataset.range(24).batch(24))
    result = strategy.experimental_run(rx.function(lambda x: x + 1), iterator)
    assert flat(shares(result)) == list(range(1, 25))


def test_running_on_an_iterator_of_the_current_names(strategy: Any):
    iterator = iter(strategy.experimental_distribute_dataset(Dataset.range(24).batch(24)))
    assert flat(shares(strategy.experimental_run(lambda x: -x, iterator))) == [
        -n for n in range(24)
    ]


def test_running_without_an_iterator(strategy: Any, executor: Executor):
    def replica_fn() -> Any:
        context = distribute.get_replica_context()
        assert isinstance(context, distribute.ReplicaContext)
        return context.all_reduce(distribute.ReduceOp.SUM, jnp.ones(()))

    result = call(executor, lambda: strategy.experimental_run(replica_fn))
    for each in strategy.experimental_local_results(result):
        assert float(each) == strategy.num_replicas_in_sync


def test_by_default_only_replicas_are_combined(strategy: Any):
    value = strategy.run(lambda: jnp.array([1.0, 2.0]))
    replicas = strategy.num_replicas_in_sync
    total = strategy.reduce(distribute.ReduceOp.SUM, value)
    assert total.tolist() == [replicas, 2 * replicas]
    assert strategy.reduce("MEAN", value).tolist() == [1.0, 2.0]
    assert float(strategy.reduce("SUM", value, axis=0)) == 3 * replicas


@pytest.mark.parametrize("strategy", ["mirrored_3", "central_storage_2", "tpu"], indirect=True)
def test_a_program_of_2019_trains_as_one_of_today(strategy: Any, executor: Executor):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((48, 3)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5], np.float32)

    def variable() -> Any:
        with strategy.scope():
            return rx.Variable(jnp.zeros(3), aggregation=distribute_sum)

    distribute_sum = rx.VariableAggregation.SUM

    def step_of(w: Any) -> Any:
        def replica_fn(batch: Any) -> Any:
            features, labels = batch
            loss, (gradient,) = rx.value_and_grad(
                lambda: jnp.sum((features @ w - labels) ** 2) / 24, [w]
            )
            w.assign_sub(0.1 * gradient)
            return loss

        return replica_fn

    # As it was written then.
    w = variable()
    replica_fn = step_of(w)
    with strategy.scope():
        dataset = strategy.experimental_make_numpy_dataset((x, y)).batch(24)
        iterator = strategy.make_dataset_iterator(dataset)
    losses = []
    for _ in range(2):
        iterator.initialize()
        for _ in range(2):
            loss = call(executor, lambda: strategy.experimental_run(replica_fn, iterator))
            losses.append(float(strategy.reduce(distribute.ReduceOp.SUM, loss)))

    # As it is written today.
    today = variable()
    today_fn = step_of(today)
    distributed = strategy.experimental_distribute_dataset(
        Dataset.from_tensor_slices((x, y)).batch(24)
    )
    expected = []
    for _ in range(2):
        for batch in distributed:
            loss = executor.run(strategy, today_fn, args=(batch,))
            expected.append(float(strategy.reduce("SUM", loss, axis=None)))

    assert losses == expected and losses[-1] < losses[0]
    np.testing.assert_array_equal(w.numpy(), today.numpy())


# --- the extended object --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["mirrored_2", "central_storage_2"], indirect=True)
def test_many_steps_on_an_iterator(strategy: Any):
    """The numbers are those of TensorFlow in a graph: the third batch of two is (4, 5)."""
    with strategy.scope():
        w = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)

    def step_fn(context: Any, inputs: Any) -> Any:
        def fn(x: Any) -> Any:
            total = jnp.sum(x.astype(jnp.float32))
            w.assign_add(total)
            context.set_non_tensor_output("n", "name")
            context.set_last_step_output("in_replica", total, "MEAN")
            return total

        result = strategy.extended.call_for_each_replica(fn, args=(inputs,))
        context.set_last_step_output("a", result, distribute.ReduceOp.SUM)
        context.set_last_step_output("b", result)
        context.set_non_tensor_output("c", "text")
        return strategy.group(result)

    iterator = strategy.make_dataset_iterator(Dataset.range(8).batch(2))
    iterator.initialize()
    initial = {"a": 0.0, "b": (0.0, 0.0), "in_replica": 0.0}
    context = strategy.extended.experimental_run_steps_on_iterator(step_fn, iterator, 3, initial)
    outputs = context.last_step_outputs
    assert (float(outputs["a"]), float(outputs["in_replica"])) == (9.0, 4.5)
    assert [float(x) for x in strategy.experimental_local_results(outputs["b"])] == [4.0, 5.0]
    assert context.non_tensor_outputs == {"n": ("name",), "c": "text"}
    assert context.run_op is None
    assert float(w.read_value()) == sum(range(6))
    with pytest.raises(rx.errors.OutOfRangeError, match="after 1 of 2"):
        strategy.extended.experimental_run_steps_on_iterator(step_fn, iterator, iterations=2)


def test_an_extended_of_ones_own():
    class Extended(distribute.StrategyExtended):
        @property
        def worker_devices(self) -> tuple[str, ...]:
            return tuple(cpus(2))

    class Own(distribute.Strategy):
        def __init__(self) -> None:
            super().__init__(Extended(self))

    strategy = Own()
    iterator = strategy.make_dataset_iterator(Dataset.range(4).batch(4))
    assert flat(shares(strategy.experimental_run(lambda x: x, iterator))) == [0, 1, 2, 3]
    config = rx.compat.v1.ConfigProto(allow_soft_placement=True)
    assert strategy.update_config_proto(config) == config


def test_variables_are_placed_with_another(strategy: Any):
    with strategy.scope():
        first = rx.Variable(1.0)
        with strategy.colocate_vars_with(first):
            second = rx.Variable(2.0)
    assert strategy.extended.variable_created_in_scope(second)


def test_configuring_changes_the_session_only():
    strategy = distribute.MirroredStrategy(cpus(2))
    config = rx.compat.v1.ConfigProto(allow_soft_placement=True)
    assert strategy.configure() is None and strategy.configure(config) is None
    assert config.isolate_session_state and config.allow_soft_placement
    with pytest.raises(
        ValueError, match=r"MultiWorkerMirroredStrategy\(cluster_resolver\).*'chief'"
    ):
        strategy.configure(None, {"chief": ["a:1"]}, "chief", 0)


def test_arguments_of_the_tpu_strategy():
    resolver = distribute.cluster_resolver.TPUClusterResolver(tpu="")
    strategy = distribute.experimental.TPUStrategy(resolver, 20)
    assert strategy.steps_per_run == 20 and strategy.cluster_resolver is resolver
    assert distribute.experimental.TPUStrategy().steps_per_run == 1
    topology = rx.tpu.experimental.initialize_tpu_system(resolver)
    assignment = rx.tpu.experimental.DeviceAssignment.build(topology, num_replicas=2)
    few = distribute.experimental.TPUStrategy(resolver, device_assignment=assignment)
    assert few.num_replicas_in_sync == 2


# --- wrong programs -------------------------------------------------------------------------------


def test_a_data_set_for_each_replica_is_refused(strategy: Any):
    mode = distribute.InputReplicationMode.PER_REPLICA
    with pytest.raises(ValueError, match=r"PER_WORKER.*distribute_datasets_from_function\("):
        strategy.make_input_fn_iterator(lambda context: Dataset.range(4), mode)


def test_things_that_are_no_input(strategy: Any):
    with pytest.raises(TypeError, match="A data set itself goes to make_dataset_iterator"):
        strategy.make_input_fn_iterator(Dataset.range(4))

    def forgot_to_return(context: Any) -> None:
        Dataset.range(4)

    with pytest.raises(TypeError, match="forgot_to_return' returned None"):
        strategy.make_input_fn_iterator(forgot_to_return)
    with pytest.raises(TypeError, match="3 is no data set"):
        strategy.make_input_fn_iterator(lambda context: 3)
    with pytest.raises(TypeError, match=r"get_next\(\).*strategy\.run\(fn, args=\(value,\)\)"):
        strategy.experimental_run(lambda x: x, jnp.ones(4))


def test_iterators_are_read_outside_of_replica_functions():
    strategy = distribute.MirroredStrategy(cpus(2))
    iterator = strategy.make_dataset_iterator(Dataset.range(4).batch(4))
    with pytest.raises(RuntimeError, match="take it outside"):
        strategy.run(lambda: iterator.get_next())
    with pytest.raises(RuntimeError, match="replica context"):
        strategy.run(lambda: strategy.experimental_run(lambda: 1.0))
