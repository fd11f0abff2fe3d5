"""TensorFlow's own reader of its checkpoints; runs where TensorFlow is."""

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.harness.sides import Side, Work  # noqa: E402


class TensorFlowReader(Side):
    """Reads every tensor of a checkpoint."""

    def __init__(self) -> None:
        import tensorflow as tf  # pyright: ignore

        self.tf: Any = tf
        self.version = f"TensorFlow {tf.__version__}"

    def prepare(self, *case: Any) -> Work:
        prefix = case[0]

        def work(count: int) -> list[float]:
            total = 0.0
            for _ in range(count):
                reader = self.tf.train.load_checkpoint(prefix)
                for name in sorted(reader.get_variable_to_shape_map()):
                    total = float(reader.get_tensor(name).reshape(-1)[-1])
            return [total]

        return work
