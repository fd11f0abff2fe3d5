"""Training Keras models on some devices, in three ways; the environment names the backend."""

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from benchmarks.harness.sides import Cost, Side, Work
from benchmarks.keras_fit.models import CASES, compiled, data

CHECKED_EPOCHS = 3
KIND = "GPU" if os.environ.get("JAX_PLATFORMS") == "cuda" else "CPU"


def _names(kind: str, replicas: int) -> list[str]:
    return [f"{kind}:{index}" for index in range(replicas)]


class KerasFit(Side):
    """Models that are made and trained as a subclass distributes them."""

    # Around the making of a model.
    scope: Any = staticmethod(nullcontext)

    def __init__(self, replicas: int):
        import keras

        self.keras, self.replicas = keras, replicas

    def keras_version(self) -> str:
        """Returns the version of Keras."""
        return self.keras.__version__

    def copies(self, variable: Any) -> int:
        """Returns on how many devices a variable of a model is."""
        raise NotImplementedError

    def prepare(self, name: str) -> Work:
        # No clear_session: Keras would forget its distribution.
        self.case = CASES[name]
        self.data = data(self.case)
        with self.scope():
            self.model = compiled(self.keras, self.case)

        def checked(batches: int) -> Sequence[float]:
            rows = self.case.batch * batches
            history = self.fit(rows, epochs=CHECKED_EPOCHS, shuffle=False)
            devices = self.copies(self.model.trainable_variables[0])
            assert devices == self.replicas, f"it trained on {devices} device(s)"
            return history.history["loss"]

        return checked

    def fit(self, rows: int | None, **options: Any) -> Any:
        """Calls `fit` on the first rows."""
        x, y = (each[:rows] for each in self.data)
        return self.model.fit(x, y, batch_size=self.case.batch, verbose=0, **options)

    def turn(self, count: int) -> Cost:
        """Returns what an epoch costs in one `fit`, in the mean of so many after a first one.

        That is not counted: what starts with it (TensorFlow's input above all) is no part of a
        step.
        """
        ends: list[tuple[float, float]] = []
        # Called when the epoch's loss is known, and so when its steps are done.
        watch = self.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_: ends.append((time.perf_counter(), time.process_time()))
        )
        self.fit(None, epochs=1 + count, callbacks=[watch])
        return Cost(*((last - first) / count for first, last in zip(ends[0], ends[-1])))


class Replicax(KerasFit):
    """In the scope of our `MirroredStrategy`, on JAX."""

    def __init__(self, replicas: int):
        super().__init__(replicas)
        import replicax as rx

        self.scope = rx.distribute.MirroredStrategy(_names(KIND, replicas)).scope

    def copies(self, variable: Any) -> int:
        ours = variable.__rx_variable__
        return len(ours.distribute_strategy.experimental_local_results(ours))


class DataParallel(KerasFit):
    """With Keras's own means on JAX, for the whole process, as its documentation has it."""

    def __init__(self, replicas: int):
        super().__init__(replicas)
        kind = self.keras.distribution
        kind.set_distribution(kind.DataParallel(devices=_names(KIND.lower(), replicas)))

    def copies(self, variable: Any) -> int:
        return len(variable.value.devices())


class TensorFlow(KerasFit):
    """In the scope of TensorFlow's `MirroredStrategy`."""

    def __init__(self, replicas: int):
        from benchmarks.training.tensorflow_steps import tensorflow_on

        tf, strategy = tensorflow_on(replicas)
        super().__init__(replicas)
        self.version, self.scope = tf.__version__, strategy.scope

    def copies(self, variable: Any) -> int:
        values = getattr(variable.value, "values", None)  # of mirrored ones
        return 1 if values is None else len(values)
