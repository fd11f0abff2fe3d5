"""Several workers: all of them train on the same data, the first one prints and writes.

Every worker calls `fit` with the same arguments. Each reads all batches and keeps its own rows of
them; metrics, and so whatever callbacks decide, are the same everywhere.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from keras.src.callbacks import BackupAndRestore, Callback, CallbackList

# What callbacks of Keras's own call the place where they write.
_PLACES = ("filename", "log_dir")


def agree_on_chance(strategy: Any) -> None:
    """Data is shuffled in the same way on all workers: as on the first one."""
    layout = strategy.extended._input_layout
    if layout.workers == 1:
        return
    name, keys, *rest = np.random.get_state()
    kind, internal, gauss = random.getstate()
    exchange = layout.meet()
    said = exchange([[name, np.asarray(keys).tolist(), *rest], [kind, list(internal), gauss]])
    exchange.close()
    if layout.worker and said:
        (name, keys, *rest), (kind, internal, gauss) = said[0]
        np.random.set_state((name, np.asarray(keys, np.uint32), *rest))
        random.setstate((kind, tuple(internal), gauss))


@contextlib.contextmanager
def silent_unless_first(strategy: Any, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments of `fit` and the like for this worker, for as long as it takes."""
    layout = strategy.extended._input_layout
    callbacks = arguments.get("callbacks")
    if layout.workers == 1 or isinstance(callbacks, CallbackList):
        yield arguments
        return
    given = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or [])
    if any(isinstance(each, BackupAndRestore) for each in given):
        raise ValueError(
            "BackupAndRestore does not know several workers. Use rx.train.CheckpointManager with "
            "rx.train.Checkpoint(model=model, optimizer=model.optimizer), or ModelCheckpoint."
        )
    if layout.worker == 0:
        yield arguments
        return
    with tempfile.TemporaryDirectory(prefix="replicax_") as folder, contextlib.ExitStack() as undo:
        for each in given:
            for place in _PLACES:
                if isinstance(getattr(each, place, None), str):
                    _set_for_now(
                        undo, each, place, str(Path(folder, Path(getattr(each, place)).name))
                    )
            if hasattr(each, "verbose"):
                _set_for_now(undo, each, "verbose", 0)
        yield {**arguments, "verbose": 0}


def written_once(strategy: Any, write: Callable[[Any], None], path: Any) -> None:
    """Calls `write(path)` on the first worker; on the others `write` has another path.

    All of them have to call it, as what they read for it they read together. Nobody goes on before
    the file is there.
    """
    layout = strategy.extended._input_layout
    if layout.workers == 1:
        write(path)
        return
    exchange = layout.meet()
    try:
        if layout.worker == 0:
            write(path)
        else:
            with tempfile.TemporaryDirectory(prefix="replicax_") as folder:
                write(str(Path(folder, Path(path).name)))
        exchange("written")
    finally:
        exchange.close()


def _set_for_now(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)
