"""What a strategy with two workers and two servers does: printed, for a test to look at.

One program for many checks, because a cluster takes seconds to start.
"""

# A program: what it does is checked by its test.
# pyright: basic, reportOptionalMemberAccess=false, reportIndexIssue=false, reportArgumentType=false

import json
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

ray: Any = None
facts: dict[str, Any] = {}
partitioners = rx.distribute.experimental.partitioners


def error(fn):
    try:
        fn()
    except Exception as found:
        return [type(found).__name__, str(found)]
    return None


def main():
    resolver = rx.distribute.cluster_resolver.RayClusterResolver(workers=2, ps=2)
    strategy = rx.distribute.ParameterServerStrategy(
        resolver, variable_partitioner=partitioners.FixedShardsPartitioner(2)
    )
    variables(strategy)
    coordinator = rx.distribute.coordinator.ClusterCoordinator(strategy)
    facts["same_coordinator"] = (
        rx.distribute.coordinator.ClusterCoordinator(strategy) is coordinator
    )
    functions(strategy, coordinator)
    data(strategy, coordinator)
    mistakes(strategy, coordinator)
    training(strategy, coordinator)
    losses(strategy, coordinator)
    coordinator.close()


def variables(strategy):
    facts["num_replicas_in_sync"] = strategy.num_replicas_in_sync
    facts["parameter_devices"] = list(strategy.extended.parameter_devices)
    with strategy.scope():
        scalars = [rx.Variable(float(i)) for i in range(3)]
        table = rx.Variable(np.arange(10.0, dtype=np.float32).reshape(5, 2), name="table")
        vector = rx.Variable(np.arange(3.0, dtype=np.float32))
        one_row = rx.Variable(np.zeros((1, 4), np.float32), name="one_row")
        ints = rx.Variable(np.arange(4), name="ints")
    facts["placement"] = {
        "scalars": [v.device for v in scalars],
        "table": [v.device for v in table.variables],
        "vector": [v.device for v in vector.variables],
        "one_row": [one_row.device],
        "ints": [v.device for v in ints.variables],
    }
    facts["shards"] = {
        "table": [v.numpy().tolist() for v in table.variables],
        "names": [v.name for v in table.variables],
        "vector": [v.numpy().tolist() for v in vector.variables],
        "table_shape": list(table.shape),
    }
    asked = []

    def first_values(shard_info):
        asked.append([list(shard_info.shape), list(shard_info.offset)])
        return np.full(shard_info.shape, shard_info.offset[0], np.float32)

    with strategy.scope():
        made = rx.Variable(first_values, shape=(5, 2), dtype=np.float32)
    facts["made_in_parts"] = [asked, made.numpy().tolist()]
    facts["table_read"] = table.numpy().tolist()
    facts["lookup"] = np.asarray(rx.nn.embedding_lookup(table, [4, 0, 4])).tolist()
    table.assign(np.ones((5, 2)))
    table.assign_add(2 * np.ones((5, 2)))
    table.assign_sub(0.5 * np.ones((5, 2)))
    facts["table_assigned"] = table.numpy().tolist()
    facts["table_slice"] = np.asarray(table[1:4]).tolist()
    rows = np.array([[1.0, 1.0], [5.0, 5.0]], np.float32)
    table.scatter_add(rx.IndexedSlices(rows, np.array([0, 4])))
    facts["table_scattered"] = table.numpy().tolist()
    table.scatter_update(rx.IndexedSlices(np.array([[7.0, 7.0]], np.float32), np.array([3])))
    facts["table_scatter_update"] = table.numpy().tolist()
    facts["assign_wrong_shape"] = error(lambda: table.assign(np.ones((4, 2))))
    facts["no_row"] = error(lambda: rx.nn.embedding_lookup(table, [5]))


def functions(strategy, coordinator):
    with strategy.scope():
        counter = rx.Variable(0)
        w = rx.Variable(1.0)

    @rx.function
    def step(x):
        counter.assign_add(1)
        return x * w

    values = [coordinator.schedule(step, args=(float(i),)) for i in range(6)]
    coordinator.join()
    facts["done"] = coordinator.done()
    facts["fetched"] = [float(value) for value in coordinator.fetch(values)]
    facts["fetch"] = type(values[0].fetch()).__name__
    facts["fetch_structure"] = [
        type(coordinator.fetch({"a": values[0], "b": 3})["a"]).__name__,
        coordinator.fetch({"a": 3}),
    ]
    facts["counter"] = int(counter.numpy())
    difference = coordinator.schedule(lambda a, b: a - b, args=(5.0,), kwargs={"b": 2.0})
    facts["kwargs"] = difference.fetch()

    def in_run():
        def replica(x):
            context = rx.distribute.get_replica_context()
            return x + context.num_replicas_in_sync + context.replica_id_in_sync_group

        return strategy.reduce("SUM", strategy.run(replica, args=(jnp.float32(1),)), axis=None)

    facts["run_scheduled"] = float(coordinator.schedule(rx.function(in_run)).fetch())
    facts["run_scheduled_eagerly"] = float(coordinator.schedule(in_run).fetch())
    index = rx.distribute.coordinator.experimental_get_current_worker_index
    found = coordinator.fetch([coordinator.schedule(index) for _ in range(8)])
    facts["worker_indices_are_of"] = sorted({*found, 0, 1})
    facts["worker_index_outside"] = error(index)

    def eagerly():
        counter.assign_add(1)
        counter.assign_sub(2)
        return counter.read_value()

    before = int(counter.numpy())
    facts["own_changes_are_seen"] = int(coordinator.schedule(eagerly).fetch()) - before
    metric_in_function(strategy, coordinator)


def metric_in_function(strategy, coordinator):
    with strategy.scope():
        metric = rx.metrics.Mean()

    @rx.function
    def update(x):
        metric.update_state(x)

    for x in ([1.0, 2.0], [6.0]):
        coordinator.schedule(update, args=(np.float32(x),))
    coordinator.join()
    facts["metric"] = float(metric.result())


def data(strategy, coordinator):
    def dataset_fn():
        return rx.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0])

    of_random = rx.function(lambda: rx.data.Dataset.from_tensor_slices(rx.random.uniform([3, 2])))
    drawn = iter(coordinator.create_per_worker_dataset(of_random))  # as in TensorFlow's tutorial
    facts["random_data"] = coordinator.schedule(next, args=(drawn,)).fetch().shape[0]
    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
    got = [coordinator.schedule(next, args=(iterator,)) for _ in range(2)]
    facts["per_worker_first"] = {float(x) for x in coordinator.fetch(got)} <= {1.0, 2.0}
    facts["next_on_coordinator"] = error(lambda: next(iterator))
    for _ in range(8):
        coordinator.schedule(next, args=(iterator,))
    facts["end_of_data"] = error(coordinator.join)
    whole = iter(coordinator.create_per_worker_dataset(rx.data.Dataset.range(3)))
    facts["dataset_itself"] = int(coordinator.schedule(next, args=(whole,)).fetch())
    distributed = strategy.experimental_distribute_dataset(rx.data.Dataset.range(8).batch(2))
    batches = iter(coordinator.create_per_worker_dataset(distributed))
    facts["distributed_dataset"] = coordinator.schedule(next, args=(batches,)).fetch().tolist()
    index = rx.distribute.coordinator.experimental_get_current_worker_index
    own = iter(
        coordinator.create_per_worker_dataset(lambda: rx.data.Dataset.range(5).skip(index()))
    )
    facts["worker_index_in_data"] = coordinator.schedule(
        lambda data: int(next(data)) == index(), args=(own,)
    ).fetch()
    values = coordinator.create_per_worker_values(os.getpid)
    facts["per_worker_values"] = (
        coordinator.schedule(lambda pid: pid == os.getpid(), args=(values,)).fetch() is True
    )
    facts["create_per_worker_bad"] = error(lambda: coordinator.create_per_worker_dataset(3))


def mistakes(strategy, coordinator):
    def bad():
        raise KeyError("mine")

    values = []

    def schedule_all():
        values.extend(coordinator.schedule(bad) for _ in range(20))
        coordinator.join()

    facts["join_error"] = error(schedule_all)
    facts["join_error_again"] = error(coordinator.join)
    facts["fetch_after_error"] = sorted({(error(value.fetch) or ["None"])[0] for value in values})
    facts["cancelled"] = error(values[-1].fetch)
    facts["after_error"] = coordinator.schedule(lambda: 2.0).fetch()
    facts["schedule_not_callable"] = error(lambda: coordinator.schedule(3))
    facts["args_is_no_list"] = error(lambda: coordinator.schedule(abs, args=3.0))
    facts["kwargs_is_no_dictionary"] = error(lambda: coordinator.schedule(abs, kwargs={1: 2}))
    facts["coordinator_in_function"] = error(lambda: coordinator.schedule(lambda: coordinator))
    value = coordinator.schedule(lambda: 1)
    facts["schedule_remote_value"] = error(lambda: coordinator.schedule(abs, args=(value,)))
    facts["coordinator_of_other"] = error(
        lambda: rx.distribute.coordinator.ClusterCoordinator(
            rx.distribute.OneDeviceStrategy("CPU:0")
        )
    )
    resolver = rx.distribute.cluster_resolver.SimpleClusterResolver
    for name, job in {"no_ps": "worker", "no_workers": "ps"}.items():
        jobs = resolver(rx.train.ClusterSpec({job: ["host:1", "host:2"]}))
        facts[name] = error(lambda jobs=jobs: rx.distribute.ParameterServerStrategy(jobs))
    outside = rx.Variable(4.0, name="outside")
    facts["variable_outside"] = error(lambda: coordinator.schedule(lambda: outside + 1.0))
    lock = threading.Lock()
    facts["cannot_be_pickled"] = error(lambda: coordinator.schedule(lambda: lock.locked()))
    coordinator.schedule(lambda: rx.Variable(1.0, name="mine"))
    facts["variable_in_function"] = error(coordinator.join)


def training(strategy, coordinator):
    """Sparse and dense gradients, one step after the other: the numbers of one process."""
    with strategy.scope():
        table = rx.Variable(np.linspace(0, 1, 12, dtype=np.float32).reshape(6, 2), name="rows")
        w = rx.Variable(np.float32([1, -1]), name="w")
        optimizer = rx.Optimizer(optax.adagrad(0.1))
    ids, y = np.array([[1, 4], [4, 5]]), np.float32([[1, 0], [0, 1]])

    @rx.function
    def core(rows, y):
        loss, gradients = rx.value_and_grad(
            lambda: jnp.mean((rows.value() @ w.value() - y) ** 2), [rows, w]
        )
        optimizer.apply_gradients(zip(gradients, [rows, w]))
        return loss

    def step(ids, y):
        return core(rx.nn.embedding_lookup(table, ids), y)

    arrays = [table.numpy(), w.numpy()]
    found = [float(coordinator.schedule(step, args=(ids, y)).fetch()) for _ in range(3)]
    plain = optax.adagrad(0.1)
    state = plain.init(arrays)

    def loss_of(arrays):
        return jnp.mean((arrays[0][ids] @ arrays[1] - y) ** 2)

    import jax

    expected = []
    for _ in range(3):
        loss, gradients = jax.value_and_grad(loss_of)(arrays)
        expected.append(float(loss))
        updates, state = plain.update(gradients, state, arrays)
        arrays = optax.apply_updates(arrays, updates)
    facts["losses"] = np.allclose(found, expected, rtol=1e-5)
    facts["trained"] = bool(
        np.allclose(table.numpy(), arrays[0], rtol=1e-5) and np.allclose(w.numpy(), arrays[1])
    )
    facts["iterations"] = int(optimizer.iterations.numpy())
    facts["updates"] = coordinator.staleness.updates
    rows_updated(strategy, coordinator)
    strategy.trained = (table, w, optimizer, step, ids, y)


def rows_updated(strategy, coordinator):
    """SGD with rows of a table in parts, of which one occurs twice."""
    with strategy.scope():
        table = rx.Variable(np.linspace(0, 1.1, 12, dtype=np.float32).reshape(6, 2))
        optimizer = rx.Optimizer(optax.sgd(0.1))

    def step(ids):
        rows = rx.nn.embedding_lookup(table, ids)
        _, (gradient,) = rx.value_and_grad(lambda: jnp.sum(rows.value() ** 2), [rows])
        optimizer.apply_gradients([(gradient, rows)])

    for _ in range(3):
        coordinator.schedule(step, (np.array([5, 0, 5]),)).fetch()
    facts["rows_updated"] = table.numpy().tolist()


def losses(strategy, coordinator):
    """A worker and a server are killed."""
    import ray

    table, w, optimizer, step, ids, y = strategy.trained
    with strategy.scope():
        counter = rx.Variable(0)

    def count(i):
        time.sleep(0.02)
        counter.assign_add(1)
        return i

    pids = [ray.get(actor.ready.remote()) for actor in strategy.extended.workers]
    values = [coordinator.schedule(count, args=(i,)) for i in range(40)]
    for pid in pids:
        before = int(counter.numpy())
        while int(counter.numpy()) < min(before + 5, 40):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
    coordinator.join()
    facts["retries"] = {
        "all_ran": coordinator.fetch(values) == list(range(40)),
        "at_least_once": int(counter.numpy()) >= 40,
    }
    facts["counted_though_killed"] = [int(counter.numpy()), coordinator.fetch(values)[-1]]
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = rx.train.Checkpoint(table=table, w=w, optimizer=optimizer)
        path = checkpoint.save(f"{folder}/saved")
        before = table.numpy()
        written_by_servers(strategy, checkpoint, path, before)
        optimizer.iterations.assign(0)
        (pid,) = strategy.extended.view.servers.ask("ready", {1: ()}).values()
        os.kill(pid, signal.SIGKILL)

        def go_on():
            coordinator.schedule(step, args=(ids, y))
            coordinator.join()

        while (lost := error(go_on)) is None:
            pass
        facts["server_lost"] = lost
        checkpoint.restore(path)
        facts["restored"] = bool(np.array_equal(table.numpy(), before))
        facts["restored_iterations"] = int(optimizer.iterations.numpy())
        coordinator.schedule(step, args=(ids, y)).fetch()
        facts["goes_on"] = int(optimizer.iterations.numpy())
        coordinator.close()
        facts["closed"] = error(lambda: coordinator.schedule(abs, args=(1,)))
        again = rx.distribute.coordinator.ClusterCoordinator(strategy)
        facts["another_coordinator"] = again.schedule(abs, args=(-1,)).fetch()
        again.close()
        another_cluster(path, before, table)


def written_by_servers(strategy, checkpoint, path, table):
    """Each server has written its own part; a server that cannot is no obstacle."""
    facts["files"] = sorted(os.listdir(path))
    facts["read_as_one"] = bool(np.array_equal(rx.train.load_variable(path, "table"), table))
    alone = rx.train.Checkpoint(
        table=rx.Variable(np.zeros((6, 2), np.float32)), w=rx.Variable(np.zeros(2, np.float32))
    )
    alone.restore(path).assert_existing_objects_matched()
    facts["without_servers"] = bool(np.array_equal(alone.table.numpy(), table))
    saved_alone = alone.write(f"{path}-alone")
    rx.train.Checkpoint(table=checkpoint.table).read(saved_alone)
    holder = strategy.extended.view.holder
    holder.ask = lambda question: [True, False]  # server 1 is on a machine without the directory
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        through_here = checkpoint.write(f"{path}-through-here")
        checkpoint.read(through_here)
    del holder.ask
    facts["warned"] = any("do not see" in str(each.message) for each in caught)
    facts["through_here"] = bool(
        np.array_equal(rx.train.load_variable(through_here, "table"), table)
        and np.array_equal(checkpoint.table.numpy(), table)
    )


def another_cluster(path, saved, of_another):
    """From TF_CONFIG, with other numbers, a limit, and a server that stands still."""
    jobs = {"worker": 2, "ps": 3, "chief": 1}
    cluster = {job: [f"{job}{i}:1" for i in range(count)] for job, count in jobs.items()}
    task = {"type": "chief", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    os.environ["REPLICAX_SERVER_TIMEOUT"] = "8"
    strategy = rx.distribute.ParameterServerStrategy(
        variable_partitioner=partitioners.FixedShardsPartitioner(3)
    )
    facts["from_tf_config"] = repr(strategy)
    with strategy.scope():
        table = rx.Variable(np.zeros((6, 2), np.float32))
        w = rx.Variable(np.zeros(2, np.float32))
        optimizer = rx.Optimizer(optax.adagrad(0.1))
    optimizer.build([table, w])
    rx.train.Checkpoint(table=table, w=w, optimizer=optimizer).restore(path)
    facts["in_other_parts"] = [
        len(table.variables),
        bool(np.array_equal(table.numpy(), saved)),
        int(optimizer.iterations.numpy()),
    ]
    make = rx.distribute.coordinator.ClusterCoordinator
    facts["bad_limit"] = error(lambda: make(strategy, max_staleness=-1))
    coordinator = make(strategy, max_staleness=0)
    facts["of_another"] = error(lambda: coordinator.schedule(lambda: of_another + 1))
    facts["another_limit"] = error(lambda: make(strategy, max_staleness=3))

    def update():
        gradient = 0.01 * w.read_value()
        time.sleep(0.01)  # time for another one, if it were let in
        optimizer.apply_gradients([(gradient, w)])

    for _ in range(20):
        coordinator.schedule(update)
    coordinator.join()
    facts["largest_staleness"] = coordinator.staleness.largest
    facts["limited_updates"] = coordinator.staleness.updates

    @rx.function
    def one_more():
        w.assign_add(np.ones(2, np.float32))

    before = w.numpy()
    one_more()
    facts["program_of_the_coordinator"] = np.round(w.numpy() - before, 5).tolist()
    (pid,) = strategy.extended.view.servers.ask("ready", {1: ()}).values()
    os.kill(pid, signal.SIGSTOP)
    facts["stands_still"] = error(table.numpy)
    facts["stands_still_in_function"] = error(
        coordinator.schedule(lambda: np.asarray(table.read_value())).fetch
    )
    os.kill(pid, signal.SIGCONT)
    error(coordinator.join)
    facts["answers_again"] = bool(np.array_equal(table.numpy(), saved))
    facts["processes"] = strategy.extended.view.servers.ask_all("ready")
    facts["processes"] += coordinator.fetch([coordinator.schedule(os.getpid) for _ in range(4)])


main()
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(facts, file)
os.kill(os.getpid(), signal.SIGKILL)  # so that nothing here ends workers and servers
