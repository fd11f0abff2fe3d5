"""`recorder_callback`: the steps of Keras's `fit`, recorded and looked at."""

from __future__ import annotations

import importlib
import os
from typing import Any

from replicax._src.recording import LIMIT, Traps


def recorder_callback(
    directory: str | os.PathLike[str],
    *,
    traps: Traps | None = None,
    on_trap: str = "stop",
    rows: bool | None = None,
    limit: int = LIMIT,
) -> Any:
    """Returns a Keras callback that records the steps of `fit`, so that they can be run again.

    It does what an `rx.debug.Recorder` and an `rx.train.CheckpointManager` do in a loop: there is a
    checkpoint before the first step of each epoch, and each step is recorded. `replicax replay`
    runs a step again.

        callback = rx.debug.recorder_callback("recording", traps=rx.debug.Traps(finite=True))
        model.fit(data, callbacks=[callback])

    Steps have the numbers of `model.optimizer.iterations`. The model is one that was made in a
    strategy's scope. In a job of many workers all of them have the callback, with a folder that
    they share. What is recorded of a step are its logs; batches of an `rx.data.Dataset` are
    described by their position, those of arrays and other libraries are kept up to `limit`.

    Args:
      directory: where to write: the checkpoints, and the steps.
      traps: what to look for, as in `rx.debug.Recorder`; by default nothing.
      on_trap: "stop" lets `fit` raise an `rx.errors.TrappedStepError`; "skip" and "continue" as
        there.
      rows: whether arrays are kept, as there.
      limit: bytes of arrays that are kept on the disk at most.

    Returns:
      A `keras.callbacks.Callback`. While `fit` runs, its `recorder` is the `rx.debug.Recorder`.
    """
    ours = importlib.import_module("replicax._src.integrations.keras._recorder")
    options = {"traps": traps, "on_trap": on_trap, "rows": rows, "limit": limit}
    return ours.RecorderCallback(directory, options)
