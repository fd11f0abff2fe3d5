"""`SidecarEvaluator`: evaluates a model beside its training, whenever there is a new checkpoint."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from replicax._src._errors import CheckpointError
from replicax._src._local_path import made_absolute
from replicax._src.checkpoints._checkpoint import Checkpoint
from replicax._src.checkpoints._latest import checkpoints_iterator
from replicax._src.checkpoints._paths import as_path
from replicax._src.checkpoints._reading import list_variables

_NOTICE_SECONDS = 30.0


class Evaluated(Protocol):
    """What is needed of a Keras model."""

    optimizer: Any

    evaluate: Callable[..., object]


class SidecarEvaluator:
    """Evaluates a Keras model in a separate process, while others train it.

    The training saves `rx.train.Checkpoint(model=model, optimizer=model.optimizer)`, with a
    `CheckpointManager` for example, to a directory that this process sees. Each time there is a
    newer checkpoint, it is restored and evaluated; of several new ones, only the last. The process
    is the task `evaluator` of a cluster, or any other.

    >>> import os, tempfile
    >>> os.environ.setdefault("KERAS_BACKEND", "jax")
    'jax'
    >>> import keras, numpy as np, replicax as rx
    >>> with rx.distribute.OneDeviceStrategy("CPU:0").scope():
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    >>> checkpoint = rx.train.Checkpoint(model=model, optimizer=model.optimizer)
    >>> folder = tempfile.mkdtemp()
    >>> path = checkpoint.save(f"{folder}/ckpt")  # the training does this, in another process
    >>> losses = []
    >>> keep = keras.callbacks.LambdaCallback()
    >>> keep.on_test_end = lambda logs: losses.append(logs["loss"])
    >>> rows = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)
    >>> data = rx.data.Dataset.from_tensor_slices(rows).batch(2)
    >>> rx.train.SidecarEvaluator(model, data, folder, max_evaluations=1, callbacks=[keep]).start()
    2/2 ...
    >>> len(losses)
    1

    Args:
      model: the model as in training, compiled with its metrics.
      data: what `model.evaluate` takes.
      checkpoint_dir: where the training saves.
      steps: batches of each evaluation; None: all that there are.
      max_evaluations: the number of the last checkpoint, as in `ckpt-10`, after which it ends.
        None: it never ends.
      callbacks: for `model.evaluate`.
    """

    def __init__(
        self,
        model: Evaluated,
        data: object,
        checkpoint_dir: str | os.PathLike[str],
        steps: int | None = None,
        max_evaluations: int | None = None,
        callbacks: Sequence[object] | None = None,
    ):
        if not callable(getattr(model, "evaluate", None)):
            raise TypeError(
                f"SidecarEvaluator takes a compiled Keras model, which has `evaluate`; got "
                f"{model!r}."
            )
        self.model = model
        self.data = data
        self.checkpoint_dir = made_absolute(as_path(checkpoint_dir, "checkpoint_dir"))
        self.steps = steps
        self.max_evaluations = max_evaluations
        self.callbacks = list(callbacks or [])

    def start(self) -> None:
        """Waits for checkpoints and evaluates them, up to number `max_evaluations`."""
        kept = {"model": self.model}
        if self.model.optimizer is not None:
            kept["optimizer"] = self.model.optimizer
        checkpoint = Checkpoint(**kept)
        for path in checkpoints_iterator(
            self.checkpoint_dir, timeout=_NOTICE_SECONDS, timeout_fn=self._still_waits
        ):
            try:
                _require_model(path)
                checkpoint.restore(path).expect_partial()
            except (CheckpointError, OSError):
                if os.path.isdir(path):
                    raise
                continue  # the training has removed it meanwhile, and has saved a newer one
            self.model.evaluate(
                self.data, steps=self.steps, callbacks=self.callbacks or None, verbose=2
            )
            number = re.search(r"-(\d+)$", path)
            last = self.max_evaluations
            if last is not None and number is not None and int(number[1]) >= last:
                return

    def _still_waits(self) -> bool:
        print(
            f"replicax: SidecarEvaluator waits for a new checkpoint in {self.checkpoint_dir}, for "
            f"{_NOTICE_SECONDS:g} s by now.",
            file=sys.stderr,
        )
        return False


def _require_model(path: str) -> None:
    """Raises `CheckpointError` if a checkpoint has no `model`: all of it would be left as it is."""
    names = {name.split("/")[0] for name, _ in list_variables(path)}
    if "model" not in names:
        raise CheckpointError(
            f"{path} has nothing named `model`; it has {', '.join(sorted(names)) or 'nothing'}. "
            "Save rx.train.Checkpoint(model=model, optimizer=model.optimizer) in the training."
        )
