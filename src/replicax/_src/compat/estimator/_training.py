"""The loop of `Estimator.train`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from replicax._src.compat.estimator._checkpoints import Saver
from replicax._src.compat.estimator._hooks import NanLossDuringTrainingError, Watched
from replicax._src.compat.estimator._model import Model

_log = logging.getLogger("replicax.estimator")


def train(
    model: Model,
    batches: Iterator[Any],
    step: int,
    last: int | None,
    watched: Watched,
    saver: Saver,
    log_every: int | None,
) -> None:
    """Trains until the data end, the step is the last one, or a hook or listener says so.

    Args:
      model: in the state of `step`.
      batches: features and labels.
      step: the global step.
      last: the global step to end with; None: no such.
      watched: tells hooks.
      saver: saves.
      log_every: how many steps lie between two lines of the log.
    """
    loss = None
    watched.begin()
    while not watched.stop_requested and (last is None or step < last):
        batch = next(batches, None)
        if batch is None:
            break
        step += 1
        loss = watched.run(model.step, batch, "loss", global_step=step)
        if log_every is not None and step % log_every == 0:
            _log.info("loss = %s, step = %s", loss, step)
        if saver.is_due(step):
            _require_number(loss, step)
            if saver.save(step):
                break
    if loss is not None:
        _require_number(loss, step)
        _log.info("Loss for final step: %s.", loss)
    watched.end()
    saver.end(step)


def _require_number(loss: Any, step: int) -> None:
    """Before a save: a checkpoint that is not a number would be the latest for ever."""
    if np.isnan(loss):
        raise NanLossDuringTrainingError(
            f"The loss of step {step} is not a number (NaN), and this model is not saved. Lower "
            "the learning rate, clip the gradients, or look for NaN in the data; training goes on "
            "from the last checkpoint."
        )
