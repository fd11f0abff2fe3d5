"""A worker in TensorFlow: `MultiWorkerMirroredStrategy` in a `tf.function`."""

import json
import os

from benchmarks.training.tensorflow_steps import TensorFlow


class TensorFlowWorker(TensorFlow):
    """One of several workers, each with one replica."""

    def __init__(self, rank: int, addresses: list[str]):
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        )
        import tensorflow as tf

        self.tf, self.strategy = tf, tf.distribute.MultiWorkerMirroredStrategy()
        self.version, self.compiled = tf.__version__, True
