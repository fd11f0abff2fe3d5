"""Changes of single rows and items: the numbers of TensorFlow are in `tests/parity`."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import context, mirrored, several_replicas, two_replicas

START = np.array([[8.0, 7.0], [6.0, 5.0], [4.0, 3.0]], np.float32)


def slices(values: Any, indices: Any) -> Any:
    return rx.IndexedSlices(values=values, indices=indices)


@several_replicas
def test_the_changes_of_all_replicas_count(strategy: Any, executor: Any):
    count = strategy.num_replicas_in_sync
    with strategy.scope():
        added, times = (rx.Variable(START, aggregation="SUM") for _ in range(2))
        average = rx.Variable(START, aggregation="MEAN")

    def replica_fn() -> None:
        rid = context().replica_id_in_sync_group
        rows = jnp.array([[0, 0], [2, 1]])
        rx.Variable.scatter_nd_add(added, rows, jnp.array([1.0, 2.0]) * (rid + 1))
        times.scatter_mul(slices(jnp.array([[2.0, 1.0]]), jnp.array([1])))
        times.scatter_div(slices(jnp.array([[1.0, 4.0]]), jnp.array([1])))
        average.scatter_sub(slices(jnp.array([[1.0, 2.0]]) * (rid + 1), [1]))

    executor.run(strategy, replica_fn)
    ids = count * (count + 1) / 2
    expected = START.copy()
    expected[0, 0] += ids
    expected[2, 1] += 2 * ids
    np.testing.assert_allclose(added.numpy(), expected, rtol=1e-6)
    expected = START.copy()
    expected[1] *= [2.0**count, 0.25**count]
    np.testing.assert_allclose(times.numpy(), expected, rtol=1e-6)
    expected = START.copy()
    expected[1] -= np.array([1.0, 2.0]) * ids / count
    np.testing.assert_allclose(average.numpy(), expected, rtol=1e-6)
    for variable in (added, times, average):
        copies = [np.asarray(copy) for copy in strategy.experimental_local_results(variable)]
        assert all(np.array_equal(copy, copies[0]) for copy in copies)


@two_replicas
def test_own_copies_and_variables_of_no_strategy(strategy: Any, executor: Any):
    plain = rx.Variable([8.0, 8.0, 8.0])
    with strategy.scope():
        own = rx.Variable([8.0, 8.0, 8.0], synchronization="ON_READ", aggregation="SUM")

    def replica_fn() -> None:
        rid = context().replica_id_in_sync_group
        own.scatter_update(slices(jnp.array([1.0]), jnp.array([rid])))
        own.scatter_add(slices(jnp.array([5.0]), jnp.array([2])))
        plain.scatter_update(slices(jnp.array([rid + 1.0]), jnp.array([rid])))
        plain.scatter_mul(slices(jnp.array([2.0]), jnp.array([2])))

    executor.run(strategy, replica_fn)
    np.testing.assert_array_equal(own.numpy(), [9.0, 9.0, 26.0])
    np.testing.assert_array_equal(plain.numpy(), [1.0, 2.0, 32.0])


def test_integers_scalars_and_reads_of_variables():
    v = rx.Variable([7, 7, 7])
    v.scatter_div(slices([2, 3], [0, 0])).scatter_add(slices(1, [1, 2]))
    assert v.numpy().tolist() == [1, 8, 8]
    assert v.scatter_sub(slices(3, 1)) is v
    assert v.sparse_read(1) == 5
    assert v.gather_nd([[2], [0]]).tolist() == [8, 1]
    assert v.sparse_read(rx.Variable([0, 1])).tolist() == [1, 5]


WRONG = {
    "no slices": (TypeError, r"takes an rx\.IndexedSlices", lambda v: v.scatter_add([1.0])),
    "outside": (
        IndexError,
        r"\[3\] is outside",
        lambda v: v.scatter_add(slices(1.0, [3])),
    ),
    "negative": (IndexError, r"\[-1\] is outside", lambda v: v.sparse_read([-1])),
    "floats": (TypeError, "must be integers", lambda v: v.sparse_read([0.5])),
    "depth": (ValueError, "last dimension", lambda v: v.gather_nd([[0, 0, 0]])),
    "shape": (ValueError, r"values of shape \(1, 2\)", lambda v: v.scatter_add(slices([1.0], [0]))),
    "dtype": (ValueError, "Convert it yourself", lambda v: v.scatter_nd_add([[0, 0]], [1j])),
    "batch": (
        ValueError,
        "except the last",
        lambda v: v.batch_scatter_update(slices([[1.0]], [[0]])),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(case: str):
    error, text, action = WRONG[case]
    with pytest.raises(error, match=text):
        action(rx.Variable(START))


@pytest.mark.parametrize("aggregation", ["NONE", "SUM"])
def test_replicas_need_an_aggregation_that_says_whose_values_count(aggregation: str, executor: Any):
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(START, aggregation=aggregation)
    with pytest.raises(rx.errors.AggregationError, match=r"scatter_min.*ONLY_FIRST_REPLICA"):
        executor.run(strategy, lambda: v.scatter_min(slices([[1.0, 1.0]], [0])) and None)
