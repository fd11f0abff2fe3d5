"""Distributed data sets: every strategy sums what one device sums, eagerly and compiled."""

import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.old_names import with_old_names
from tests.pipelines import POLICY, Dataset, elements, flat, shares, with_policy
from tests.replicas import mirrored, several_replicas
from tests.under_test import Executor

ROWS = np.arange(46, dtype=np.float32).reshape(23, 2)
LABELS = np.arange(23, dtype=np.int32)

PIPELINES = {
    "even": lambda rows: rows.batch(8, drop_remainder=True),
    "uneven": lambda rows: rows.batch(5),
    "a last batch of one": lambda rows: rows.batch(11),
    "fewer rows than replicas": lambda rows: rows.batch(2),
    "one batch": lambda rows: rows.batch(100),
    "shuffled": lambda rows: rows.shuffle(23, seed=1).repeat(2).batch(6),
    "mapped": lambda rows: rows.batch(7).map(lambda x, y: (x, y)),
    "anew": lambda rows: with_policy(rows.batch(5).repeat(2), POLICY.OFF),
    "cached": lambda rows: rows.cache().batch(4).prefetch(2),
}


def dataset(name: str = "uneven") -> Any:
    return PIPELINES[name](Dataset.from_tensor_slices((ROWS, LABELS)))


def expected(source: Any) -> tuple[float, int]:
    batches = list(source)
    return (
        float(sum((x.sum(1) * (y + 1)).sum() for x, y in batches)),
        sum(len(x) for x, _ in batches),
    )


def weighted_sum(x: Any, y: Any) -> Any:
    return jnp.sum(jnp.sum(x, axis=1) * (y + 1)), jnp.float32(x.shape[0])


@pytest.mark.parametrize("name", PIPELINES)
def test_replicas_have_all_rows_together(name: str, strategy: Any):
    total, count = 0.0, 0
    parts = strategy.experimental_local_results
    for x, y in strategy.experimental_distribute_dataset(dataset(name)):
        for rows, labels in zip(parts(x), parts(y), strict=True):
            total += float((np.asarray(rows).sum(1) * (np.asarray(labels) + 1)).sum())
            count += len(labels)
    assert (total, count) == expected(dataset(name))


def test_both_executors_take_batches(strategy: Any, executor: Executor):
    total = 0.0
    for batch in strategy.experimental_distribute_dataset(dataset()):
        now, _ = executor.run(strategy, weighted_sum, batch)
        total += float(strategy.reduce("SUM", now, axis=None))
    assert total == expected(dataset())[0]


@pytest.mark.filterwarnings("ignore:rx.function .* has run as plain Python")  # all are uneven
def test_a_loop_over_a_data_set_in_a_compiled_function(strategy: Any):
    distributed = strategy.experimental_distribute_dataset(dataset())
    wanted = expected(dataset())[0]

    def step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(weighted_sum, args=batch)[0], axis=None)

    @rx.function
    def as_argument(data: Any) -> Any:
        total = 0.0
        for batch in data:
            total += step(batch)
        return total

    @rx.function
    def by_closure() -> Any:
        total = 0.0
        for batch in distributed:
            total += step(batch)
        return total

    @rx.function
    def one_step(iterator: Any) -> Any:
        return step(next(iterator))

    assert float(as_argument(distributed)) == wanted
    assert float(as_argument(iter(distributed))) == wanted
    assert float(as_argument(distributed)) == wanted
    assert float(by_closure()) == float(by_closure()) == wanted
    iterator = iter(distributed)
    assert sum(float(one_step(iterator)) for _ in range(5)) == wanted
    with pytest.raises((StopIteration, rx.errors.OutOfRangeError, RuntimeError)):
        one_step(iterator)


def test_compiled_steps_of_a_whole_batch(strategy: Any):
    distributed = strategy.experimental_distribute_dataset(dataset())
    steps = 0

    @rx.function
    def train(batch: Any) -> Any:
        nonlocal steps
        steps += 1
        return strategy.reduce("SUM", strategy.run(weighted_sum, args=batch)[0], axis=None)

    total = sum(float(train(batch)) for batch in distributed)
    assert total == expected(dataset())[0]


def test_many_steps_of_an_iterator_in_one_call(strategy: Any):
    rows = Dataset.from_tensor_slices(np.arange(48, dtype=np.float32)).batch(8)
    iterator = iter(strategy.experimental_distribute_dataset(rows))

    @rx.function
    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)

    wanted = [float(batch.sum()) for batch in rows]
    assert np.asarray(step.steps(iterator, 2)).tolist() == wanted[:2]
    assert iterator.get_state()["position"] == 2
    assert np.asarray(step.steps(iterator, 3)).tolist() == wanted[2:5]
    with pytest.raises(rx.errors.OutOfRangeError, match="after 1 of 4 steps"):
        step.steps(iterator, 4)


@with_old_names
def test_experimental_run_steps_on_iterator(strategy: Any):
    rows = Dataset.from_tensor_slices(np.arange(32, dtype=np.float32)).batch(8)
    iterator = iter(strategy.experimental_distribute_dataset(rows))

    def step(context: Any, x: Any) -> None:
        total = strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)
        context.set_last_step_output("total", total)

    with strategy.scope():
        context = strategy.extended.experimental_run_steps_on_iterator(step, iterator, 3)
    assert float(context.last_step_outputs["total"]) == sum(range(16, 24))
    assert iterator.get_state()["position"] == 3


@pytest.mark.parametrize("name", ["even", "uneven", "one batch"])
def test_the_spec_of_a_data_set_is_a_signature(name: str, strategy: Any):
    distributed = strategy.experimental_distribute_dataset(dataset(name))
    calls = 0

    def step(batch: Any) -> Any:
        nonlocal calls
        calls += 1
        return strategy.reduce("SUM", strategy.run(weighted_sum, args=batch)[0], axis=None)

    compiled = rx.function(step, input_signature=[distributed.element_spec])
    assert sum(float(compiled(batch)) for batch in distributed) == expected(dataset(name))[0]


@pytest.mark.parametrize("replicas", [2, 3])
def test_training_is_the_same_on_any_number_of_replicas(replicas: int):
    def train(strategy: Any) -> np.ndarray:
        with strategy.scope():
            w = rx.Variable(jnp.zeros(2), aggregation=rx.VariableAggregation.SUM)
        rows = Dataset.from_tensor_slices((ROWS / 50, LABELS.astype(np.float32) / 23))
        batches = rows.shuffle(23, seed=3).repeat(2).batch(6)

        def replica_fn(x: Any, y: Any) -> None:
            _, (gradient,) = rx.value_and_grad(lambda: jnp.sum((x @ w - y) ** 2) / 6, [w])
            w.assign_add(-0.1 * gradient)

        for batch in strategy.experimental_distribute_dataset(batches):
            strategy.run(replica_fn, args=batch)
        return np.asarray(w)

    with_one = train(rx.distribute.OneDeviceStrategy("CPU:0"))
    np.testing.assert_allclose(train(mirrored(replicas)), with_one, rtol=1e-5)
    assert np.abs(with_one).min() > 0.01


@several_replicas
def test_what_is_uneven_has_its_true_shapes(strategy: Any):
    replicas = strategy.num_replicas_in_sync
    distributed = strategy.experimental_distribute_dataset(Dataset.range(replicas + 1).batch(100))
    (value,) = list(distributed)
    parts = strategy.experimental_local_results(value)
    size = -(-(replicas + 1) // replicas)
    assert sum(part.shape[0] for part in parts) == replicas + 1 and parts[0].shape == (size,)
    assert all(isinstance(part, jax.Array) and part.dtype == jnp.int32 for part in parts)
    table = Dataset.from_tensor_slices(np.ones((1, 2, 3), np.float32)).batch(4)
    (value,) = list(strategy.experimental_distribute_dataset(table))
    shapes = [part.shape for part in strategy.experimental_local_results(value)]
    assert shapes == [(1, 2, 3)] + [(0, 2, 3)] * (replicas - 1)


def test_elements_keep_their_structure(strategy: Any):
    rows = {"image": ROWS, "labels": (LABELS, {"text": [str(n) for n in LABELS]})}
    batches = Dataset.from_tensor_slices(rows).batch(8)
    distributed = strategy.experimental_distribute_dataset(batches)
    value = next(iter(distributed))
    assert list(value) == ["image", "labels"] and list(value["labels"][1]) == ["text"]
    assert flat(shares(value["labels"][1]["text"])) == [str(n).encode() for n in range(8)]
    assert flat(shares(value["labels"][0])) == list(range(8))
    first = strategy.experimental_local_results(value["labels"][1]["text"])[0]
    assert isinstance(first, np.ndarray) and first.dtype == object
    assert isinstance(strategy.experimental_local_results(value["image"])[0], jax.Array)


def test_the_end(strategy: Any):
    distributed = strategy.experimental_distribute_dataset(Dataset.range(10).batch(8))
    iterator = iter(distributed)
    assert iterator.get_next() is not None
    optional = iterator.get_next_as_optional()
    assert optional.has_value() and flat(shares(optional.get_value())) == [8, 9]
    assert optional.element_spec == distributed.element_spec
    for _ in range(2):
        assert not iterator.get_next_as_optional().has_value()
        assert next(iterator, None) is None
        with pytest.raises(rx.errors.OutOfRangeError, match="no more elements"):
            iterator.get_next()
    with pytest.raises(ValueError, match="has_value"):
        iterator.get_next_as_optional().get_value()


def test_an_empty_data_set(strategy: Any):
    nothing = Dataset.from_tensor_slices(np.zeros((0, 3), np.float32)).batch(4)
    distributed = strategy.experimental_distribute_dataset(nothing)
    assert list(distributed) == [] and len(distributed) == 0
    assert not iter(distributed).get_next_as_optional().has_value()
    mapped = Dataset.range(0).batch(2, drop_remainder=True).map(lambda x: x)
    for policy in (POLICY.AUTO, POLICY.OFF, POLICY.HINT):
        assert list(strategy.experimental_distribute_dataset(with_policy(mapped, policy))) == []


def test_lengths(strategy: Any):
    def distribute(source: Any) -> Any:
        return strategy.experimental_distribute_dataset(source)

    for name in ("even", "uneven", "fewer rows than replicas", "one batch", "shuffled", "anew"):
        distributed = distribute(dataset(name))
        assert len(distributed) == len(list(distributed)), name
    assert bool(distribute(dataset()))
    with pytest.raises(TypeError, match="no known length.*forever"):
        len(distribute(dataset().repeat()))
    filtered = Dataset.range(9).filter(lambda x: True).batch(2)
    with pytest.raises(TypeError, match="no known length"):
        len(distribute(filtered))
    assert distribute(dataset()).cardinality == 5
    assert len(list(distribute(filtered))) == 5


def test_iterations_over_one_data_set():
    strategy = mirrored(2)
    source = Dataset.range(12).shuffle(12, seed=1).batch(4)
    distributed = strategy.experimental_distribute_dataset(source)
    first, second = ([shares(value) for value in distributed] for _ in range(2))
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(12)) and first != second
    one, other = iter(distributed), iter(distributed)
    interleaved = [(shares(a), shares(b)) for a, b in zip(one, other)]
    assert sorted(flat([a for a, _ in interleaved])) == list(range(12))
    assert sorted(flat([b for _, b in interleaved])) == list(range(12))


def test_the_data_set_and_the_distributed_one_do_not_disturb_each_other():
    strategy = mirrored(2)
    source = Dataset.range(12).shuffle(12, seed=1).batch(4)
    distributed = strategy.experimental_distribute_dataset(source)
    alone = elements(Dataset.range(12).shuffle(12, seed=1).batch(4))
    assert elements(source) == alone
    assert [flat(shares(value)) for value in distributed] == alone
    twice = strategy.experimental_distribute_dataset(source)
    assert [flat(shares(value)) for value in twice] == alone


def test_several_threads_may_read_from_one_iterator():
    iterator = iter(mirrored(2).experimental_distribute_dataset(Dataset.range(400).batch(2)))
    found: list[Any] = []
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for value in iterator:
                found.append(shares(value))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert failures == [] and sorted(flat(found)) == list(range(400))
    assert iterator.get_state()["position"] == 200


def test_foreign_data_sets_are_distributed():
    strategy = mirrored(2)
    batches = [{"x": np.arange(4, dtype=np.int32) + 4 * step} for step in range(3)]

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            return iter(batches)

    def generator() -> Iterator[Any]:
        yield from batches

    for source in (Loader(), generator(), iter(batches), Dataset.from_generator(generator)):
        distributed = strategy.experimental_distribute_dataset(source)
        assert [flat(shares(value["x"])) for value in distributed] == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8, 9, 10, 11],
        ]


def test_a_strategy_of_the_users_can_distribute():
    class Backwards(rx.distribute.StrategyExtended):
        """Two replicas, on the devices in reverse."""

        @property
        def worker_devices(self) -> tuple[str, ...]:
            return ("CPU:1", "CPU:0")

    class Mine(rx.distribute.Strategy):
        def __init__(self) -> None:
            super().__init__(Backwards(self))

    strategy = Mine()
    assert strategy.num_replicas_in_sync == 2
    for value in strategy.experimental_distribute_dataset(Dataset.range(8).batch(4)):
        parts = strategy.experimental_local_results(value)
        assert [str(part.devices()) for part in parts] == [
            str({jax.devices("cpu")[1]}),
            str({jax.devices("cpu")[0]}),
        ]
        assert float(strategy.reduce("SUM", strategy.run(jnp.sum, args=(value,)), axis=None)) > 0
    made = strategy.distribute_datasets_from_function(lambda context: Dataset.range(8).batch(2))
    assert [shares(value) for value in made] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_functions_that_make_batches_are_taken():
    def read(number: Any) -> Any:
        return np.arange(4, dtype=np.int32) + 4 * int(number)

    strategy = mirrored(2)
    for source in (Dataset.range(2), Dataset.from_tensor_slices(["0", "1"])):
        distributed = strategy.experimental_distribute_dataset(source.map(read))
        assert [flat(shares(value)) for value in distributed] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@with_old_names
def test_numpy_data_sets_under_their_older_name():
    strategy = mirrored(2)
    rows = strategy.experimental_make_numpy_dataset((ROWS, LABELS))
    assert isinstance(rows, rx.data.Dataset) and len(rows) == 23
    assert plain_first(rows) == ([0.0, 1.0], 0)
    also = strategy.extended.experimental_make_numpy_dataset(np.arange(3))
    assert elements(also) == [0, 1, 2]


def plain_first(rows: Any) -> Any:
    return elements(rows.take(1))[0]


def test_inside_a_scope_and_in_replica_context():
    strategy = mirrored(2)
    with strategy.scope():
        distributed = strategy.experimental_distribute_dataset(Dataset.range(8).batch(4))
        assert len(list(distributed)) == 2
    with pytest.raises(rx.errors.WrongContextError, match="before strategy.run"):
        strategy.run(lambda: strategy.experimental_distribute_dataset(Dataset.range(8).batch(4)))


def test_what_is_distributed_is_not_distributed_again():
    strategy = mirrored(2)
    distributed = strategy.experimental_distribute_dataset(Dataset.range(8).batch(4))
    for again in (distributed, iter(distributed)):
        with pytest.raises(TypeError, match="distributed already|already distributed"):
            list(strategy.experimental_distribute_dataset(again))


def test_a_distributed_data_set_shows_what_was_decided():
    strategy = mirrored(2)
    distributed = strategy.experimental_distribute_dataset(Dataset.range(9).batch(4).repeat(2))
    assert repr(distributed).startswith("<DistributedDataset of <RepeatDataset")
    text = str(distributed)
    for part in ("2 here (CPU:0, CPU:1)", "DATA (RangeDataset is not read", "batch size: 4"):
        assert part in text, text
    assert "Repeat" in text and "Range" in text
    html = distributed._repr_html_()
    assert html.count("<table") == html.count("</table>") and "DATA" in html
    iterator = iter(distributed)
    next(iterator)
    assert "step 1" in repr(iterator)
    made = strategy.distribute_datasets_from_function(lambda context: Dataset.range(4).batch(2))
    assert "2 here" in str(made) and "Batch" in made._repr_html_()
