"""The recommender with TensorFlow: workers and servers run a `tf.distribute.Server` each."""

import json
import os
import socket
import subprocess
import sys
from typing import Any

from benchmarks.harness.sides import Side, Work
from benchmarks.parameter_server.recommender import (
    RATE,
    START,
    initial_tables,
    initial_weights,
    make_clicks,
)

_SERVER = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
tf.distribute.Server(
    resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
    protocol="grpc", start=True,
).join()
"""


class TensorFlowServers(Side):
    """`ParameterServerStrategy` and `ClusterCoordinator`."""

    def __init__(self, workers: int, servers: int):
        import tensorflow as tf

        self.tf, self.version = tf, tf.__version__
        sockets = [socket.socket() for _ in range(1 + workers + servers)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        chief, *others = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        for each in sockets:
            each.close()
        cluster = {"chief": [chief], "worker": others[:workers], "ps": others[workers:]}

        def config(job: str, index: int) -> str:
            return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})

        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                env=os.environ | {"TF_CONFIG": config(job, index)},
                stdout=subprocess.DEVNULL,
            )
            for job in ("worker", "ps")
            for index in range(len(cluster[job]))
        ]
        os.environ["TF_CONFIG"] = config("chief", 0)
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    def prepare(self, rows: int, batch: int) -> Work:
        tf = self.tf
        with self.strategy.scope():
            tables = [tf.Variable(table) for table in initial_tables(rows)]
            weights = [tf.Variable(weight) for weight in initial_weights()]
            sums = [tf.Variable(tf.fill(each.shape, START)) for each in [*tables, *weights]]
            steps = tf.Variable(0, dtype=tf.int64)

        def apply(gradient: Any, variable: Any, total: Any) -> None:
            common = dict(var=variable.handle, accum=total.handle, lr=RATE, epsilon=1e-7)
            if not isinstance(gradient, tf.IndexedSlices):
                tf.raw_ops.ResourceApplyAdagradV2(grad=gradient, **common)
                return
            ids, places = tf.unique(gradient.indices)
            values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids))
            tf.raw_ops.ResourceSparseApplyAdagradV2(grad=values, indices=ids, **common)

        @tf.function
        def step(iterator: Any) -> Any:
            users, items, clicked = next(iterator)
            with tf.GradientTape() as tape:
                found = [
                    tf.nn.embedding_lookup(table, ids) for table, ids in zip(tables, (users, items))
                ]
                w1, b1, w2, b2 = weights
                hidden = tf.nn.relu(tf.concat(found, axis=1) @ w1 + b1)
                logits = (hidden @ w2 + b2)[:, 0]
                losses = tf.nn.sigmoid_cross_entropy_with_logits(clicked, logits)
                loss = tf.reduce_mean(losses)
            variables = [*tables, *weights]
            for gradient, variable, total in zip(tape.gradient(loss, variables), variables, sums):
                apply(gradient, variable, total)
            steps.assign_add(1)
            return loss

        def dataset() -> Any:
            return tf.data.Dataset.from_tensor_slices(tuple(make_clicks(rows, batch))).repeat()

        iterator = iter(self.coordinator.create_per_worker_dataset(dataset))

        def work(count: int) -> list[float]:
            values = [self.coordinator.schedule(step, args=(iterator,)) for _ in range(count)]
            self.coordinator.join()
            return [sum(float(each) for each in self.coordinator.fetch(values)) / count]

        return work

    def close(self) -> None:
        """Ends the workers and servers."""
        for process in self._processes:
            process.kill()
            process.wait()
