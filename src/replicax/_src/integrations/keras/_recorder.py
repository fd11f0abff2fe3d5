"""A callback that records the steps of `fit`, so that each of the last ones can be run again.

Between two steps `fit` and other callbacks change state: metrics start again, learning rates follow
a plan. So there is a checkpoint before the first step of each epoch, when all of that is done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, final

import keras
from keras.src.models.model import Model

from replicax._src._errors import TrappedStepError
from replicax._src._local_path import absolute_path
from replicax._src._typing import PyTree, override
from replicax._src.checkpoints import Checkpoint, CheckpointManager
from replicax._src.functions import Function
from replicax._src.recording import Recorder


@final
class RecorderCallback(keras.callbacks.Callback):
    """See `rx.debug.recorder_callback`."""

    def __init__(self, directory: str | os.PathLike[str], options: dict[str, Any]):
        super().__init__()
        self._directory = absolute_path(directory, "directory")
        self._options = options
        self._manager: CheckpointManager | None = None
        self._saved_for: tuple[Any, ...] = ()
        self._step: _Step | None = None

    @property
    def recorder(self) -> Recorder:
        """The `rx.debug.Recorder` of the `fit` that is running."""
        if self._step is None:
            raise RuntimeError("The callback records while `fit` runs, and now it does not.")
        return self._step.recorder

    @override
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.on_train_end()  # an earlier one has failed
        model: Any = self.model
        step = model.train_function
        if isinstance(step, _Step):
            step.end()
            step = model.train_function
        function = _recorded(model, step)
        manager = self._manager_of(model)
        folder = os.path.join(self._directory, "steps")
        recorder = Recorder(manager, function, folder, **self._options)
        self._step = model.train_function = _Step(model, step, manager, recorder)

    @override
    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._step is not None:
            self._step.is_first = True

    @override
    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.end()

    def _manager_of(self, model: Model) -> CheckpointManager:
        optimizer: Any = model.optimizer
        objects = (model, optimizer, *model.metrics)
        if self._manager is None or list(map(id, objects)) != list(map(id, self._saved_for)):
            if self._manager is not None:
                self._manager.close()
            steps = getattr(optimizer.iterations, "__rx_variable__")  # noqa: B009  # the hooks' own
            checkpoint = Checkpoint(
                step=steps, model=model, optimizer=optimizer, metrics=list(model.metrics)
            )
            folder = os.path.join(self._directory, "checkpoints")
            self._manager, self._saved_for = CheckpointManager(checkpoint, folder), objects
        return self._manager


@final
class _Step:
    """What Keras calls for each batch, while it is recorded."""

    def __init__(self, model: Model, step: Any, manager: CheckpointManager, recorder: Recorder):
        self._model: Any = model
        self._step = step
        self._manager = manager
        self.recorder = recorder
        self.is_first = True  # of its epoch

    def __call__(self, state: PyTree, iterator: Iterator[Any]) -> Any:
        if self.is_first:
            self.is_first = False
            self._manager.save()
        try:
            return self._step(state, iterator)
        except StopIteration:
            raise
        except BaseException:
            with contextlib.suppress(TrappedStepError):
                self.end()
            raise

    def end(self) -> None:
        """Lets the model be as it was."""
        if self._model.train_function is self:
            self._model.train_function = self._step
        self.recorder.close()
        self._manager.wait()


def _recorded(model: Model, step: object) -> Function[..., Any]:
    """Returns the compiled function in what Keras calls for each batch."""
    found = getattr(step, "compiled", None)
    if isinstance(found, Function):
        return found
    if found is None:
        raise ValueError(
            f"recorder_callback records models of a strategy, and {model.name!r} was made outside "
            "of any scope. Make it inside `with strategy.scope():`; "
            'rx.distribute.OneDeviceStrategy("CPU:0") will do.'
        )
    raise ValueError(
        f"recorder_callback records compiled steps, and those of {model.name!r} are not. Leave out "
        "run_eagerly=True and jit_compile=False of compile()."
    )
