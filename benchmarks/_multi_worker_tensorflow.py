"""A worker of `multi_worker.py` in TensorFlow: `MultiWorkerMirroredStrategy` in a `tf.function`."""

import json
import os

from _step_models import Model
from _step_tensorflow import make_step
from _workers import Requests, Train, arguments, serve, training


def start() -> tuple[str, Requests]:
    rank, addresses = arguments()
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
    )
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def prepare(model: Model) -> Train:
        step = make_step(tf, strategy, model)
        # A tf.function returns when its program has ended.
        return lambda count: [float(loss) for loss in [step() for _ in range(count)]]

    return tf.__version__, training(prepare)


if __name__ == "__main__":
    serve(start)
