"""`train_and_evaluate`: training, with an evaluation of its checkpoints."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, final

from replicax._src._typing import override
from replicax._src.compat.estimator._estimator import Estimator
from replicax._src.compat.estimator._hooks import CheckpointSaverListener, SessionRunHook
from replicax._src.compat.estimator._spec import require_positive
from replicax._src.context import get_strategy

_log = logging.getLogger("replicax.estimator")


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """How `train_and_evaluate` trains.

    Args:
      input_fn: as in `Estimator.train`.
      max_steps: the global step to end with; None: when the data end.
      hooks: `SessionRunHook`s.
      saving_listeners: `CheckpointSaverListener`s.
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Iterable[SessionRunHook] | None = None
    saving_listeners: Iterable[CheckpointSaverListener] | None = None

    def __post_init__(self) -> None:
        require_positive(max_steps=self.max_steps)


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """How `train_and_evaluate` evaluates.

    Args:
      input_fn: as in `Estimator.evaluate`.
      steps: how many steps an evaluation takes; None: all the data.
      name: kept for ported code.
      hooks: `SessionRunHook`s.
      exporters: must be empty.
      start_delay_secs: kept for ported code; there is no process of its own for evaluation.
      throttle_secs: a checkpoint is passed over if the last evaluation is not as long ago as this.
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Iterable[SessionRunHook] | None = None
    exporters: Any = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        require_positive(steps=self.steps)
        if self.throttle_secs < 0 or self.start_delay_secs < 0:
            raise ValueError("`throttle_secs` and `start_delay_secs` must not be negative.")
        if self.exporters:
            raise ValueError(
                "`exporters` write a SavedModel, which there is none of here. Leave them out; "
                "checkpoints are in the estimator's model_dir."
            )


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[Any]]:
    """Trains, and evaluates checkpoints as they come, and the last one.

    Checkpoints come as the `RunConfig` says. The training waits while one is evaluated. Of several
    workers the first one evaluates, unless there is an `eval_distribute`: then all do.

    Returns:
      What the last evaluation gave, or None if there was none; and an empty list, in the place of
      TensorFlow's exports.
    """
    for value, kind in ((estimator, Estimator), (train_spec, TrainSpec), (eval_spec, EvalSpec)):
        if not isinstance(value, kind):
            raise TypeError(
                "train_and_evaluate takes an Estimator, a TrainSpec and an EvalSpec; got "
                f"{value!r} for the {kind.__name__}."
            )
    evaluating = _Evaluating(estimator, eval_spec)
    estimator.train(
        train_spec.input_fn,
        hooks=train_spec.hooks,
        max_steps=train_spec.max_steps,
        saving_listeners=[*(train_spec.saving_listeners or []), evaluating],
    )
    return evaluating.results, []


@final
class _Evaluating(CheckpointSaverListener):
    """Evaluates checkpoints, but for the one that training starts from."""

    def __init__(self, estimator: Estimator, spec: EvalSpec):
        config = estimator.config
        strategy = config.train_distribute or get_strategy()
        self._estimator = estimator
        self._spec = spec
        self._is_mine = bool(config.eval_distribute or strategy.extended.should_checkpoint)
        self._start: int | None = None
        self._last_step: int | None = None
        self._last_time = -float("inf")
        self.results: dict[str, Any] | None = None

    @override
    def after_save(self, session: None, global_step_value: int) -> None:
        if self._start is None:
            self._start = global_step_value
        elif time.monotonic() - self._last_time >= self._spec.throttle_secs:
            self._evaluate(global_step_value)
        else:
            _log.info("Not evaluated: %s (throttle_secs).", global_step_value)

    @override
    def end(self, session: None, global_step_value: int) -> None:
        if global_step_value != self._last_step:
            self._evaluate(global_step_value)

    def _evaluate(self, step: int) -> None:
        self._last_step, self._last_time = step, time.monotonic()
        if self._is_mine:
            spec = self._spec
            self.results = self._estimator.evaluate(
                spec.input_fn, steps=spec.steps, hooks=spec.hooks, name=spec.name
            )
