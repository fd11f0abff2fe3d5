"""A worker in TensorFlow: `MultiWorkerMirroredStrategy` in a `tf.function`."""

from benchmarks.harness.sides import set_tf_config
from benchmarks.training.tensorflow_steps import TensorFlow


class TensorFlowWorker(TensorFlow):
    """One of several workers, each with one replica."""

    def __init__(self, rank: int, addresses: list[str]):
        set_tf_config(rank, addresses)
        import tensorflow as tf

        self.tf, self.strategy = tf, tf.distribute.MultiWorkerMirroredStrategy()
        self.version, self.compiled = tf.__version__, True
