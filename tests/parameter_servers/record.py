"""Records what TensorFlow's own strategy does, in `recorded/facts.json`.

Run with a Python that has TensorFlow 2.21: `python tests/parameter_servers/record.py`. Each topic
is recorded by a process of its own, which is ended and started again, at most twice, when it takes
longer than `LIMIT` seconds. Its cluster is in the process: two `tf.distribute.Server`s of each
kind. For retries, workers and servers are processes, of which one is killed.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 90
ATTEMPTS = 3
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf: Any = None  # imported by the processes that record
facts = {}
SERVER = """
import json, sys, tensorflow as tf
spec, job, index = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tf.distribute.Server(spec, job_name=job, task_index=index, protocol="grpc").join()
"""


def main():
    path = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "recorded/facts.json")
    found = {}
    for topic in TOPICS:
        start = time.monotonic()
        found |= recorded(topic)  # all or nothing: an old fact is not left among new ones
        print(f"{topic}: {time.monotonic() - start:.0f} s", flush=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def recorded(topic):
    command = [sys.executable, __file__, "--topic", topic]
    for _ in range(ATTEMPTS):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                output = process.communicate(timeout=LIMIT)[0]
            except subprocess.TimeoutExpired:
                print(f"{topic}: not done after {LIMIT} s", flush=True)
                continue
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if process.returncode:
                sys.exit(f"{topic}: exit status {process.returncode}")
            return json.loads(output.splitlines()[-1])
    sys.exit(f"{topic}: not done in {ATTEMPTS} attempts of {LIMIT} s")


def record(topic):
    global tf, coordinators, partitioners
    tf = importlib.import_module("tensorflow")
    coordinators = tf.distribute.coordinator
    partitioners = tf.distribute.experimental.partitioners
    # The servers of this process share its threads: with as many as there are cores, all of them
    # may wait for each other.
    tf.config.threading.set_inter_op_parallelism_threads(16)
    facts["tensorflow"] = ".".join(tf.__version__.split(".")[:2])
    TOPICS[topic]()
    print(json.dumps(facts), flush=True)
    os._exit(0)  # TensorFlow's threads may not end


def error(fn):
    try:
        fn()
    except Exception as found:
        return [type(found).__name__, str(found).partition("\n")[0]]
    return None


def cluster(workers=2, ps=2):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers + ps)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return {"worker": addresses[:workers], "ps": addresses[workers:]}


def strategy_of(spec, partitioner=None):
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(spec), rpc_layer="grpc"
    )
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def strategy_in_process():
    spec = cluster()
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=16)
    for job, addresses in spec.items():
        for index in range(len(addresses)):
            server = tf.distribute.Server(
                spec, job_name=job, task_index=index, protocol="grpc", config=config
            )
            SERVERS.append(server)
    return strategy_of(spec, partitioners.FixedShardsPartitioner(2))


SERVERS = []


def variables():
    strategy = strategy_in_process()
    facts["num_replicas_in_sync"] = strategy.num_replicas_in_sync
    facts["parameter_devices"] = list(strategy.extended.parameter_devices)
    facts["worker_devices"] = list(strategy.extended.worker_devices)
    with strategy.scope():
        scalars = [tf.Variable(float(i)) for i in range(3)]
        table = tf.Variable(np.arange(10.0, dtype=np.float32).reshape(5, 2), name="table")
        vector = tf.Variable(np.arange(3.0, dtype=np.float32))
        one_row = tf.Variable(np.zeros((1, 4), np.float32), name="one_row")
        ints = tf.Variable(np.arange(4), name="ints")
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
        return tf.fill(shard_info.shape, float(shard_info.offset[0]))

    with strategy.scope():
        made = tf.Variable(first_values, shape=(5, 2), dtype=tf.float32)
    facts["made_in_parts"] = [asked, tf.convert_to_tensor(made).numpy().tolist()]
    facts["table_read"] = tf.convert_to_tensor(table).numpy().tolist()
    facts["lookup"] = tf.nn.embedding_lookup(table, [4, 0, 4]).numpy().tolist()
    ones = np.ones((5, 2), np.float32)
    table.assign(ones)
    table.assign_add(2 * ones)
    table.assign_sub(0.5 * ones)
    facts["table_assigned"] = tf.convert_to_tensor(table).numpy().tolist()
    facts["assign_wrong_shape"] = error(lambda: table.assign(ones[:4]))
    facts["table_slice"] = table[1:4].numpy().tolist()
    rows = tf.IndexedSlices(tf.constant([[1.0, 1.0], [5.0, 5.0]]), tf.constant([0, 4]))
    table.scatter_add(rows)
    facts["table_scattered"] = tf.convert_to_tensor(table).numpy().tolist()
    table.scatter_update(tf.IndexedSlices(tf.constant([[7.0, 7.0]]), tf.constant([3])))
    facts["table_scatter_update"] = tf.convert_to_tensor(table).numpy().tolist()


def cut():
    shape = tf.TensorShape
    facts["partitioners"] = {
        "fixed 2 of (10,3)": partitioners.FixedShardsPartitioner(2)(shape([10, 3]), tf.float32),
        "fixed 2 of (10,3) axis 1": partitioners.FixedShardsPartitioner(2)(
            shape([10, 3]), tf.float32, axis=1
        ),
        "fixed 3 of (1,3)": partitioners.FixedShardsPartitioner(3)(shape([1, 3]), tf.float32),
        "min 4 max_shards 10 (6,1)": partitioners.MinSizePartitioner(4, 10)(
            shape([6, 1]), tf.float32
        ),
        "min default (1000,100)": partitioners.MinSizePartitioner()(shape([1000, 100]), tf.float32),
        "min default max 2 (100000,100)": partitioners.MinSizePartitioner(max_shards=2)(
            shape([100000, 100]), tf.float32
        ),
        "min 256k max 8 (100000,100)": partitioners.MinSizePartitioner(256 << 10, 8)(
            shape([100000, 100]), tf.float32
        ),
        "min string": partitioners.MinSizePartitioner(4, 10)(shape([6, 1]), tf.string),
        "max 4 (6,1)": partitioners.MaxSizePartitioner(4)(shape([6, 1]), tf.float32),
        "max 20 (6,1)": partitioners.MaxSizePartitioner(20)(shape([6, 1]), tf.float32),
        "max 1024 (6,1)": partitioners.MaxSizePartitioner(1024)(shape([6, 1]), tf.float32),
        "max 4 max_shards 2 (6,1)": partitioners.MaxSizePartitioner(4, 2)(
            shape([6, 1]), tf.float32
        ),
        "max 8 (6,3)": partitioners.MaxSizePartitioner(8)(shape([6, 3]), tf.float32),
        "max 100 (1000,7)": partitioners.MaxSizePartitioner(100)(shape([1000, 7]), tf.float32),
    }
    facts["partitioner_errors"] = {
        "min 0": error(lambda: partitioners.MinSizePartitioner(0)),
        "min shards 0": error(lambda: partitioners.MinSizePartitioner(4, 0)),
        "max 0": error(lambda: partitioners.MaxSizePartitioner(0)),
        "max shards 0": error(lambda: partitioners.MaxSizePartitioner(4, 0)),
        "bytes_per_string 0": error(lambda: partitioners.MinSizePartitioner(4, 1, 0)),
        "fixed 0": error(lambda: partitioners.FixedShardsPartitioner(0)),
        "two axes": error(lambda: partitioners.FixedShardsPartitioner(2)),
    }


def functions():
    strategy = strategy_in_process()
    coordinator = coordinators.ClusterCoordinator(strategy)
    facts["same_coordinator"] = coordinators.ClusterCoordinator(strategy) is coordinator
    with strategy.scope():
        counter = tf.Variable(0)
        w = tf.Variable(1.0)

    @tf.function
    def step(x):
        counter.assign_add(1)
        return x * w

    values = [coordinator.schedule(step, args=(tf.constant(float(i)),)) for i in range(6)]
    coordinator.join()
    facts["done"] = coordinator.done()
    facts["fetched"] = [float(value) for value in coordinator.fetch(values)]
    facts["get"] = type(values[0].get()).__name__
    facts["fetch"] = type(values[0].fetch()).__name__
    facts["fetch_structure"] = [
        type(coordinator.fetch({"a": values[0], "b": 3})["a"]).__name__,
        coordinator.fetch({"a": 3}),
    ]
    facts["counter"] = int(counter.numpy())
    facts["plain function"] = error(lambda: coordinator.schedule(lambda: 1))
    minus = tf.function(lambda a, b: a - b)
    facts["kwargs"] = float(coordinator.schedule(minus, args=(5.0,), kwargs={"b": 2.0}).fetch())

    @tf.function
    def in_run():
        def replica(x):
            context = tf.distribute.get_replica_context()
            return x + tf.cast(context.num_replicas_in_sync, tf.float32)

        return strategy.reduce("SUM", strategy.run(replica, args=(1.0,)), axis=None)

    facts["run_scheduled"] = float(coordinator.schedule(in_run).fetch())
    index = coordinators.experimental_get_current_worker_index
    on_worker = tf.function(index)
    found = coordinator.fetch([coordinator.schedule(on_worker) for _ in range(8)])
    facts["worker_indices_are_of"] = sorted({*map(int, found), 0, 1})
    facts["worker_index_outside"] = error(index)


def data():
    strategy = strategy_in_process()
    coordinator = coordinators.ClusterCoordinator(strategy)

    def dataset_fn():
        return tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0])

    step = tf.function(lambda iterator: next(iterator))
    per_worker = coordinator.create_per_worker_dataset(dataset_fn)
    iterator = iter(per_worker)
    facts["per_worker_types"] = [type(per_worker).__name__, type(iterator).__name__]
    got = [coordinator.schedule(step, args=(iterator,)) for _ in range(2)]
    facts["per_worker_first"] = [float(x) for x in coordinator.fetch(got)]
    facts["next_on_coordinator"] = error(lambda: next(iterator))
    for _ in range(8):
        coordinator.schedule(step, args=(iterator,))
    facts["end_of_data"] = error(coordinator.join)
    whole = iter(coordinator.create_per_worker_dataset(tf.data.Dataset.range(3)))
    got = [coordinator.schedule(step, args=(whole,)) for _ in range(2)]
    facts["dataset_itself"] = sorted({int(x) for x in coordinator.fetch(got)})[:1]
    distributed = strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(2))
    batches = iter(coordinator.create_per_worker_dataset(distributed))
    facts["distributed_dataset"] = coordinator.schedule(step, args=(batches,)).fetch().tolist()
    facts["create_per_worker_bad"] = error(lambda: coordinator.create_per_worker_dataset(3))


def mistakes():
    strategy = strategy_in_process()
    coordinator = coordinators.ClusterCoordinator(strategy)

    @tf.function
    def bad():
        tf.debugging.assert_equal(tf.constant(1), tf.random.uniform((), 2, 3, tf.int32))
        return 1.0

    values = []

    def schedule_all():
        values.extend(coordinator.schedule(bad) for _ in range(20))
        coordinator.join()

    facts["join_error"] = error(schedule_all)
    facts["join_error_again"] = error(coordinator.join)
    facts["fetch_after_error"] = sorted({(error(value.fetch) or ["None"])[0] for value in values})
    facts["after_error"] = float(coordinator.schedule(tf.function(lambda: 2.0)).fetch())
    facts["schedule_not_callable"] = error(lambda: coordinator.schedule(3))
    value = coordinator.schedule(tf.function(lambda: 1.0))
    negative = tf.function(lambda x: -x)
    facts["schedule_remote_value"] = error(lambda: coordinator.schedule(negative, args=(value,)))

    @tf.function
    def python_error():
        raise KeyError("mine")

    facts["python_error"] = error(lambda: (coordinator.schedule(python_error), coordinator.join()))
    mirrored = tf.distribute.MirroredStrategy(["CPU:0"])
    facts["coordinator_of_other"] = error(lambda: coordinators.ClusterCoordinator(mirrored))
    for name, spec in {"no_ps": cluster(ps=0), "no_workers": cluster(workers=0)}.items():
        jobs = {job: addresses for job, addresses in spec.items() if addresses}
        facts[name] = error(lambda jobs=jobs: strategy_of(jobs))


def updates():
    """Optimizers, with gradients of rows and of all, and an update in a scheduled function."""
    facts["keras"] = tf.keras.__version__
    kinds = {
        "sgd": lambda: tf.keras.optimizers.SGD(0.5),
        "adagrad": lambda: tf.keras.optimizers.Adagrad(0.5, initial_accumulator_value=0.1),
        "adam": lambda: tf.keras.optimizers.Adam(0.5),
    }
    facts["sparse"] = {}
    for name, make in kinds.items():
        for form in ("sparse", "dense"):
            variable = tf.keras.Variable(np.linspace(0, 1.1, 12, dtype=np.float32).reshape(6, 2))
            optimizer = make()
            optimizer.build([variable])
            for _ in range(3):
                rows = tf.IndexedSlices(tf.ones((3, 2)), [0, 4, 5], tf.constant([6, 2]))
                given = rows if form == "sparse" else tf.convert_to_tensor(rows)
                optimizer.apply([given])
            facts["sparse"][f"{form} {name}"] = variable.numpy().tolist()


def updates_scheduled():
    """A step of SGD with the rows of a table in parts."""
    strategy = strategy_in_process()
    with strategy.scope():
        table = tf.Variable(np.linspace(0, 1.1, 12, dtype=np.float32).reshape(6, 2))
    coordinator = coordinators.ClusterCoordinator(strategy)

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
        for part, gradient in zip(table.variables, tape.gradient(loss, table.variables)):
            part.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        return loss

    for _ in range(3):
        coordinator.schedule(step, args=(tf.constant([5, 0, 5]),)).fetch()
    facts["rows_updated"] = tf.convert_to_tensor(table).numpy().tolist()


def retries():
    """A worker is killed while functions run: each of them runs, once more where it was lost."""
    spec = cluster(workers=2, ps=1)

    def start(job, index):
        command = [sys.executable, "-c", SERVER, json.dumps(spec), job, str(index)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    workers = [start("worker", index) for index in range(2)]
    start("ps", 0)  # they end with this process
    strategy = strategy_of(spec)
    with strategy.scope():
        count = tf.Variable(0)
    coordinator = coordinators.ClusterCoordinator(strategy)

    @tf.function
    def step(i):
        def work(number):
            product = tf.linalg.matmul(tf.ones((200, 200)), tf.ones((200, 200)))
            with tf.control_dependencies([product]):
                return (number + 1,)

        tf.while_loop(lambda number: number < 100, work, [tf.constant(0)])
        count.assign_add(1)
        return i

    values = [coordinator.schedule(step, args=(tf.constant(i),)) for i in range(200)]
    while int(count.numpy()) < 20:
        time.sleep(0.01)
    workers[0].kill()
    workers[0].wait()
    start("worker", 0)
    coordinator.join()
    results = [int(x) for x in coordinator.fetch(values)]
    facts["retries"] = {
        "all_ran": results == list(range(200)),
        "at_least_once": int(count.numpy()) >= 200,
    }


TOPICS = {
    "variables": variables,
    "partitioners": cut,
    "functions": functions,
    "data": data,
    "mistakes": mistakes,
    "updates": updates,
    "updates scheduled": updates_scheduled,
    "retries": retries,
}

if __name__ == "__main__":
    record(sys.argv[2]) if sys.argv[1:2] == ["--topic"] else main()
