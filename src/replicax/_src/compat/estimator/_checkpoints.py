"""The checkpoints in a model's directory: `model.ckpt-{global_step}`."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Self, final

import numpy as np

from replicax._src._errors import CheckpointError
from replicax._src.checkpoints import Checkpoint, CheckpointManager, list_variables, load_variable
from replicax._src.compat.estimator._hooks import CheckpointSaverListener
from replicax._src.compat.estimator._model import Model
from replicax._src.compat.estimator._run_config import RunConfig

_NAME = "model.ckpt"
# What `_checkpoint_of` makes of names: a slash is part of a variable's name, not of a path.
_STEP, _VARIABLES = "global_step", "variables/"
_ESCAPED = {".": ".", "S": "/"}


def restored(model: Model, path: str | None) -> int:
    """Gives a model the values of a checkpoint, unless it is None; returns the global step."""
    checkpoint = _checkpoint_of(model)
    with _telling_of_another_model():
        checkpoint.restore(path)
    return checkpoint.global_step


def saved_step(model_dir: str) -> int | None:
    """Returns the global step of the latest checkpoint, or None; in a job, all workers ask."""
    checkpoint = Checkpoint(global_step=0)
    manager = CheckpointManager(checkpoint, model_dir, checkpoint_name=_NAME)
    with _telling_of_another_model():
        return None if manager.restore_or_initialize() is None else checkpoint.global_step


def saved_names(path: str) -> list[str]:
    """Returns the names of the variables of a checkpoint, and "global_step"."""
    names = [name for name, _ in list_variables(path)]
    found = [name.removeprefix(_VARIABLES) for name in names if name.startswith(_VARIABLES)]
    unescaped = [re.sub(r"\.([.S])", lambda each: _ESCAPED[each[1]], name) for name in found]
    return sorted({*unescaped, _STEP})


def saved_value(path: str, name: str) -> np.ndarray:
    """Returns what a checkpoint has under one of these names."""
    if name == _STEP:
        return load_variable(path, _STEP)
    return load_variable(path, _VARIABLES + name.replace(".", "..").replace("/", ".S"))


def _checkpoint_of(model: Model) -> Checkpoint:
    return Checkpoint(variables=model.saved_variables, global_step=0)


@contextlib.contextmanager
def _telling_of_another_model() -> Iterator[None]:
    """Says what it means that a checkpoint does not fit."""
    try:
        yield
    except CheckpointError as error:
        if not isinstance(error, AssertionError):  # it is damaged, or not there
            raise
        differences, _, _ = str(error).partition("\nTo leave what is missing")  # nobody can here
        raise CheckpointError(
            "The model_dir belongs to another model, or model_fn was changed: its variables are "
            "not those of the checkpoint. Use another model_dir, or remove this one to start again."
            f"\n{differences}"
        ) from error


@final
class Saver:
    """Saves a model while it is trained, when the config says so, and tells the listeners."""

    def __init__(
        self,
        model: Model,
        model_dir: str,
        config: RunConfig,
        listeners: list[CheckpointSaverListener],
    ):
        self._every_steps = config.save_checkpoints_steps
        self._every_seconds = config.save_checkpoints_secs
        if listeners and not self.is_on:
            raise ValueError(
                "Listeners, and train_and_evaluate, need checkpoints, which are switched off. Set "
                "RunConfig(save_checkpoints_steps=...) or save_checkpoints_secs."
            )
        self._listeners = listeners
        self._checkpoint = _checkpoint_of(model)
        self._manager = CheckpointManager(
            self._checkpoint,
            model_dir,
            max_to_keep=config.keep_checkpoint_max or None,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            checkpoint_name=_NAME,
        )
        self._last_step: int | None = None
        self._last_time = 0.0

    @property
    def is_on(self) -> bool:
        """Whether anything is saved at all."""
        return bool(self._every_steps or self._every_seconds)

    def start(self) -> int:
        """Restores the latest checkpoint, or saves a first one; returns the global step."""
        with _telling_of_another_model():
            path = self._manager.restore_or_initialize()
        step = self._checkpoint.global_step
        for listener in self._listeners:
            listener.begin()
        if self.is_on:
            self.save(step, is_there=path is not None)
        return step

    def is_due(self, step: int) -> bool:
        """Returns whether it is time to save."""
        if not self.is_on or step == self._last_step:
            return False
        if self._every_steps:
            return step - (self._last_step or 0) >= self._every_steps
        return time.monotonic() - self._last_time >= (self._every_seconds or 0)

    def save(self, step: int, is_there: bool = False) -> bool:
        """Saves; whether a listener wants the training to end."""
        self._last_step, self._last_time = step, time.monotonic()
        for listener in self._listeners:
            listener.before_save(None, step)
        if not is_there:
            self._checkpoint.global_step = step
            self._manager.save(checkpoint_number=step)
        if self._listeners:
            self._manager.wait()
        return any([listener.after_save(None, step) for listener in self._listeners])

    def end(self, step: int) -> None:
        """Saves what is not saved yet, and waits until it is on the disk."""
        if self.is_on and step != self._last_step:
            self.save(step)
        self._manager.close()
        for listener in self._listeners:
            listener.end(None, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._manager.__exit__(kind, error, trace)
