"""Several workers: all of them train on the same data, the first one prints and writes.

Every worker calls `fit` with the same arguments. Each reads all batches and keeps its own rows of
them; metrics, and so whatever callbacks decide, are the same everywhere.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from keras.src.callbacks import BackupAndRestore, Callback, CallbackList, RemoteMonitor
from keras.src.callbacks.orbax_checkpoint import OrbaxCheckpoint

from replicax._src._errors import ReplicaMismatchError, WorkerLostError
from replicax._src.data.distributed import Exchange, InputLayout
from replicax._src.strategies import Strategy, input_layout_of

# What callbacks of Keras's own call the place where they write.
_PLACES = ("filename", "log_dir")
_FOR_ONE_WORKER = (BackupAndRestore, OrbaxCheckpoint)


def agree_on_chance(strategy: Strategy) -> None:
    """Data is shuffled in the same way on all workers: as on the first one."""
    layout = input_layout_of(strategy)
    if layout.workers == 1:
        return
    name, keys, *rest = np.random.get_state()
    kind, internal, gauss = random.getstate()
    torch: Any = sys.modules.get("torch")
    torchs = [] if torch is None else [torch.get_rng_state().tolist()]
    with contextlib.closing(layout.meet()) as exchange:
        said = said_by_all(
            exchange,
            [[name, np.asarray(keys).tolist(), *rest], [kind, list(internal), gauss], torchs],
            "the first batch",
        )
    if layout.worker:
        (name, keys, *rest), (kind, internal, gauss), torchs = said[0]
        np.random.set_state((name, np.asarray(keys, np.uint32), *rest))
        random.setstate((kind, tuple(internal), gauss))
        if torch is not None and torchs:
            torch.set_rng_state(torch.tensor(torchs[0], dtype=torch.uint8))


def said_by_all(exchange: Exchange, word: object, wanted: str) -> Sequence[Any]:
    """Returns what all workers say. `wanted`: what is not possible if one of them has given up."""
    said = exchange(word)
    if said is None:
        raise WorkerLostError(
            f"Another worker failed while this one waited with it for {wanted}. Its own output "
            "says why."
        )
    return said


@final
class SameBatches:
    """Sees to it that workers that read the same data read it in the same order."""

    def __init__(self, layout: InputLayout):
        self._layout = layout
        self._seen = layout.workers == 1

    def check(self, arrays: list[np.ndarray]) -> None:
        """To be called for each batch; it looks at the first one."""
        if self._seen:
            return
        self._seen = True
        words = [zlib.crc32(array.tobytes()) for array in arrays]
        with contextlib.closing(self._layout.meet()) as exchange:
            said = said_by_all(exchange, words, "the first batch")
        strange = [worker for worker, word in enumerate(said) if word != said[0]]
        if strange:
            raise ReplicaMismatchError(
                f"Worker {strange[0]} has read another first batch than worker 0. All workers have "
                "to read the same batches, of which each takes its rows: give data sets of other "
                "libraries a seed for their shuffling, and do not shard them by worker. A "
                "rx.data.Dataset does this by itself. If you meant one worker alone to call fit, "
                "evaluate or predict: all of them have to."
            )


@contextlib.contextmanager
def silent_unless_first(strategy: Strategy, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments of `fit` and the like for this worker, for as long as it takes."""
    layout = input_layout_of(strategy)
    callbacks = arguments.get("callbacks")
    if layout.workers == 1 or isinstance(callbacks, CallbackList):
        yield arguments
        return
    given = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or [])
    for each in given:
        if isinstance(each, _FOR_ONE_WORKER):
            raise ValueError(
                f"{type(each).__name__} does not know several workers. Use ModelCheckpoint, or "
                "rx.train.CheckpointManager with "
                "rx.train.Checkpoint(model=model, optimizer=model.optimizer)."
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
        reported = [each for each in given if not isinstance(each, RemoteMonitor)]
        yield {**arguments, "verbose": 0, "callbacks": reported}


def written_once(
    strategy: Strategy, write: Callable[[Any], None], path: str | os.PathLike[str]
) -> None:
    """Calls `write(path)` on the first worker; on the others `write` has another path.

    All of them have to call it, as what they read for it they read together. Nobody goes on before
    the file is there.
    """
    layout = input_layout_of(strategy)
    if layout.workers == 1:
        write(path)
        return
    with contextlib.closing(layout.meet()) as exchange:
        if layout.worker == 0:
            write(path)
        else:
            with tempfile.TemporaryDirectory(prefix="replicax_") as folder:
                write(str(Path(folder, Path(path).name)))
        said_by_all(exchange, "written", f"{str(path)!r} to be written")


def _set_for_now(undo: contextlib.ExitStack, owner: object, name: str, value: object) -> None:
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)
