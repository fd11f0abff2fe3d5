"""Rows of tables: what a step moves, and gradients of a table that is looked up several times."""

# Looks into what workers and servers tell each other.
# pyright: basic

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.parameter_servers._messages import Gradient, KnownOptimizer, OptimizerSpec, Part
from replicax._src.parameter_servers._parts import summed
from replicax._src.parameter_servers._server_optimizer import ServerOptimizer
from replicax._src.parameter_servers._worker_optimizer import WorkerOptimizer
from tests.parameter_servers.actors import Cluster

WIDTH = 8


def trained(cluster: Cluster, rows: int, *lookups: Any, compiled: bool = True) -> Any:
    """One step of Adagrad with rows of a table: how many bytes it moves, and the table then."""
    table = cluster.variable(np.ones((rows, WIDTH), np.float32))
    sums = cluster.variable(np.full((rows, WIDTH), 0.1, np.float32))
    spec = OptimizerSpec(
        optax.adagrad(0.5),
        [None],
        None,
        [Part(0, table.spec.key, {"0/sum_of_squares": sums.spec.key})],
        {},
    )
    cluster.servers[0].target._optimizers["o"] = ServerOptimizer(spec)
    worker, view = cluster.worker, cluster.worker._view
    here, count = worker.variable(table.spec), worker.variable(cluster.variable(0).spec)
    optimizer = worker._optimizers[0] = WorkerOptimizer(
        view, 0, count, KnownOptimizer("o", [here], ())
    )
    moved: list[int] = []

    def counted(method: Any, data: bytes) -> bytes:
        answer = method(data)
        moved.append(len(data) + len(answer))
        return answer

    cluster.servers[0].around["exchange"] = counted

    def step(*found: Any) -> Any:
        def loss() -> Any:
            values = [each.value() for each in found]
            return sum(jnp.sum(each * (i + 1.0)) for i, each in enumerate(values))

        _, gradients = rx.value_and_grad(loss, list(found))
        optimizer.apply_gradients(zip(gradients, found))

    view.begin(f"a step {table.spec.key}", set())
    with worker.strategy.scope():
        found = [rx.nn.embedding_lookup(here, ids) for ids in lookups]
        (rx.function(step) if compiled else step)(*found)
        worker.collect()
        view.finish()
    view.flush()
    cluster.servers[0].around.clear()
    return sum(moved), np.array(table.numpy())


def test_a_step_moves_the_rows_that_it_touches(cluster: Cluster):
    ids = np.arange(100)
    small, _ = trained(cluster, 1000, ids)
    large, _ = trained(cluster, 100_000, ids)
    assert abs(large - small) < 50  # numbers of keys and the like
    twice, _ = trained(cluster, 1000, np.arange(200))
    row = 2 * (WIDTH * 4 + 8)  # the row and its gradient, and its number with each of them
    assert abs(twice - small - 100 * row) < 50
    again, _ = trained(cluster, 1000, np.concatenate([ids, ids, ids]))
    assert abs(again - small) < 50


@pytest.mark.parametrize("compiled", [True, False])
def test_several_look_ups_of_a_table_are_one_gradient(cluster: Cluster, compiled: bool):
    lookups = np.array([[0, 1], [1, 1]]), np.array([1, 2]), np.array([], np.int32)
    _, found = trained(cluster, 5, *lookups, compiled=compiled)
    table: Any = np.ones((5, WIDTH), np.float32)
    gradient = np.zeros_like(table)
    for index, ids in enumerate(lookups):
        np.add.at(gradient, ids.reshape(-1), index + 1.0)
    rule = optax.adagrad(0.5)
    updates, _ = rule.update(gradient, rule.init(table), table)
    expected: Any = optax.apply_updates(table, updates)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_each_server_takes_part_in_each_step(cluster: Cluster):
    """The rows of a step are on the first server; the count of steps is on both."""
    tables = [cluster.variable(np.ones((4, 2), np.float32), server) for server in (0, 1)]
    counts = [cluster.variable(0, server) for server in (0, 1)]
    rate = optax.linear_schedule(0.5, 0.0, 2)
    for server, (table, count) in enumerate(zip(tables, counts)):
        parts = [Part(server, table.spec.key, {})]
        spec = OptimizerSpec(
            optax.sgd(rate), [None, None], None, parts, {"1/count": count.spec.key}
        )
        cluster.servers[server].target._optimizers["o"] = ServerOptimizer(spec)
    worker, view = cluster.worker, cluster.worker._view
    here = [worker.variable(table.spec) for table in tables]
    steps = worker.variable(cluster.variable(0).spec)
    optimizer = WorkerOptimizer(view, 0, steps, KnownOptimizer("o", here, (0, 1)))
    worker._optimizers[0] = optimizer
    view.begin("steps", set())
    with worker.strategy.scope():
        for table in (here[0], here[1]):
            rows = rx.nn.embedding_lookup(table, [0])
            optimizer.apply_gradients([(np.ones((1, 2), np.float32), rows)])
        view.finish()
    view.flush()
    assert [int(count.numpy()) for count in counts] == [2, 2]
    assert [float(table.numpy()[0, 0]) for table in tables] == [0.5, 0.75]


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_the_sum_of_gradients(dtype: Any):
    """Of rows, and of rows and the whole: that of the arrays which they stand for."""
    random = np.random.default_rng(0)

    def of_rows(rows: list[int]) -> Gradient:
        values = random.integers(-9, 9, size=(len(rows), 2)).astype(dtype)
        return Gradient(3, 7, values, np.array(rows, np.int64))

    def dense(gradient: Gradient) -> np.ndarray:
        if gradient.rows is None:
            return gradient.values
        found = np.zeros((6, 2), dtype)
        found[gradient.rows] = gradient.values
        return found

    whole = Gradient(3, 7, random.integers(-9, 9, size=(6, 2)).astype(dtype))
    whole.values.flags.writeable = False  # as those of JAX are
    some = [of_rows([0, 5]), of_rows([]), of_rows([2, 3, 5]), of_rows([5])]
    for given in (some, [*some, whole], [whole, some[0], whole], [some[1], some[1]]):
        found = summed(given)
        assert (found.position, found.key) == (3, 7) and found.values.dtype == dtype
        assert (found.rows is None) == any(each is whole for each in given)
        np.testing.assert_array_equal(dense(found), sum(map(dense, given)))
    assert summed([whole]) is whole


def test_an_embedding_lookup_takes_one_table():
    parts = [np.zeros((2, 3)), np.ones((2, 3))]
    with pytest.raises(TypeError, match="takes one table; got a list of 2 .*the table itself"):
        rx.nn.embedding_lookup(parts, [3])
