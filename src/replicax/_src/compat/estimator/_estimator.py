"""`Estimator`: a `model_fn` and a directory, to train, evaluate and predict with.

As in TensorFlow nothing lives on between two calls but what is in the directory: each of them
starts from the latest checkpoint. Compiled steps are kept, so that it does not take long.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import logging
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Self

import jax
import numpy as np

from replicax._src import _warnings
from replicax._src._local_path import absolute_path
from replicax._src._typing import PyTree
from replicax._src.checkpoints import latest_checkpoint
from replicax._src.compat._strategy import averaged_losses
from replicax._src.compat.estimator._checkpoints import (
    Saver,
    restored,
    saved_names,
    saved_step,
    saved_value,
)
from replicax._src.compat.estimator._hooks import (
    CheckpointSaverListener,
    NanLossDuringTrainingError,
    SessionRunHook,
    Watched,
    checked,
)
from replicax._src.compat.estimator._input import Batches, parameters_of
from replicax._src.compat.estimator._model import Model
from replicax._src.compat.estimator._run_config import RunConfig
from replicax._src.compat.estimator._spec import EstimatorSpec, ModeKeys, require_positive
from replicax._src.context import get_strategy
from replicax._src.strategies import Strategy

_log = logging.getLogger("replicax.estimator")
_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config")


class Estimator:
    """Trains, evaluates and predicts with a model that a function describes.

    >>> import jax.numpy as jnp, numpy as np, optax, tempfile, replicax as rx
    >>> estimator = rx.compat.v1.estimator
    >>> def model_fn(features, labels, mode):
    ...     w = rx.Variable(0.0, name="w")
    ...     loss = jnp.mean((features * w - labels) ** 2)
    ...     optimizer = rx.Optimizer(optax.sgd(0.1))
    ...     return estimator.EstimatorSpec(mode, features * w, loss, optimizer)
    >>> def input_fn():
    ...     return np.array([1.0, 2.0], np.float32), np.array([3.0, 6.0], np.float32)
    >>> model = estimator.Estimator(model_fn, tempfile.mkdtemp())
    >>> sorted(model.train(input_fn, steps=20).evaluate(input_fn))
    ['global_step', 'loss']
    >>> print(f"{model.get_variable_value('w'):.3f}")
    3.000

    Args:
      model_fn: takes `features`, and of `labels`, `mode`, `params` and `config` what it wants, by
        these names; returns an `EstimatorSpec`. It makes the variables, in every call: later calls
        are handed what the first one made.
      model_dir: where checkpoints are; by default that of the config, else a temporary one.
      config: a `RunConfig`.
      params: a dictionary for `model_fn` and `input_fn`.
      warm_start_from: must be None.
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: object = None,
    ):
        if warm_start_from is not None:
            raise ValueError(
                "`warm_start_from` is not supported. Read the values with "
                "other_estimator.get_variable_value(name), and give them to the variables in "
                "model_fn as their initial values."
            )
        if not isinstance(config, RunConfig | None):
            raise TypeError(f"`config` must be a RunConfig; got {config!r}.")
        self._model_arguments = _checked_arguments(model_fn, params)
        self._model_fn = model_fn
        self._params = copy.deepcopy(params or {})
        self._model_dir = _chosen_directory(model_dir, config)
        self._config = (config or RunConfig()).replace(model_dir=self._model_dir)
        self._models: dict[str, Model] = {}

    @property
    def model_dir(self) -> str:
        """Where the checkpoints are."""
        return self._model_dir

    @property
    def config(self) -> RunConfig:
        """How it runs."""
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the parameters of `model_fn`."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """The function, of `features`, `labels`, `mode` and `config`."""
        return self._call_model_fn

    # ------------------------------------------------------------------ training

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Iterable[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Iterable[CheckpointSaverListener] | None = None,
    ) -> Self:
        """Trains, from the latest checkpoint on, until the data or the steps are used up.

        Args:
          input_fn: returns an `rx.data.Dataset` of `(features, labels)`, batched for one replica;
            or a pair of arrays, the batch of every step. It is called once on each worker, with
            those of `mode`, `params`, `config` and `input_context` that it takes.
          hooks: `SessionRunHook`s.
          steps: how many steps to make now.
          max_steps: the number of steps over all calls to stop at.
          saving_listeners: `CheckpointSaverListener`s.

        Returns:
          The estimator.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Give `steps` or `max_steps`, not both.")
        require_positive(steps=steps, max_steps=max_steps)
        watched = Watched(hooks)
        listeners = checked(saving_listeners, CheckpointSaverListener, "saving_listeners")
        saved = saved_step(self._model_dir)
        if max_steps is not None and saved is not None and saved >= max_steps:
            _log.info("Skipping training: there is a checkpoint of step %s.", saved)
            return self
        strategy = self._config.train_distribute or get_strategy()
        is_bounded = steps is not None or max_steps is not None
        with self._batches(input_fn, ModeKeys.TRAIN, strategy, is_bounded) as batches:
            first = batches.first()
            model = self._model(ModeKeys.TRAIN, strategy, first, is_new=saved is None)
            with Saver(model, self._model_dir, self._config, listeners) as saver:
                step = saver.start()
                last = max_steps if steps is None else step + steps
                self._train(model, itertools.chain([first], batches), step, last, watched, saver)
        return self

    def _train(
        self,
        model: Model,
        batches: Iterator[tuple[PyTree, PyTree]],
        step: int,
        last: int | None,
        watched: Watched,
        saver: Saver,
    ) -> None:
        """Trains from `step` on until the data end, at `last`, or when a hook or listener says."""
        loss, log_every = None, self._config.log_step_count_steps
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

    # ------------------------------------------------------------------ evaluating, predicting

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Returns the metrics and the mean loss over the data, each row counted once.

        Args:
          input_fn: as in `train`.
          steps: how many steps to take; by default all the data.
          hooks: `SessionRunHook`s.
          checkpoint_path: which checkpoint; by default the latest. Without any, the variables have
            their initial values.
          name: kept for ported code.

        Returns:
          The metrics by name, "loss" and "global_step".
        """
        require_positive(steps=steps)
        watched = Watched(hooks)
        strategy = self._config.eval_distribute or get_strategy()
        with self._batches(input_fn, ModeKeys.EVAL, strategy) as batches:
            first = batches.first()
            model, global_step = self._restored(ModeKeys.EVAL, strategy, first, checkpoint_path)
            for metric in model.metrics.values():
                metric.reset_state()
            watched.begin()
            for batch in itertools.islice(itertools.chain([first], batches), steps):
                watched.run(model.step, batch, "evaluation")
                if watched.stop_requested:
                    break
            watched.end()
        found = {name: np.asarray(metric.result())[()] for name, metric in model.metrics.items()}
        _log.info("Evaluation %s at step %s: %s", name or "", global_step, found)
        return found | {"global_step": global_step}

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Iterable[str] | None = None,
        hooks: Iterable[SessionRunHook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        yield_single_examples: bool = True,
    ) -> Generator[Any, None, None]:
        """Yields the predictions for each row, in order; on one device, as in TensorFlow.

        Args:
          input_fn: as in `train`; labels are left out.
          predict_keys: which predictions, if they are a dictionary; by default all.
          hooks: `SessionRunHook`s.
          checkpoint_path: as in `evaluate`.
          yield_single_examples: False yields a batch at a time.

        Yields:
          An array for each row, or a dictionary of arrays if `predictions` is one.
        """
        watched = Watched(hooks)
        if isinstance(predict_keys, str):
            predict_keys = [predict_keys]
        keys = None if predict_keys is None else list(predict_keys)
        strategy = get_strategy()
        with self._batches(input_fn, ModeKeys.PREDICT, strategy) as batches:
            first = batches.first()
            model, _ = self._restored(ModeKeys.PREDICT, strategy, first, checkpoint_path)
            watched.begin()
            for batch in itertools.chain([first], batches):
                found = _selected(watched.run(model.step, batch, "predictions"), keys)
                # Of several replicas only in the scope of a strategy; they have successive batches.
                for part in strategy.experimental_local_results(found):
                    part = jax.tree.map(np.asarray, part)
                    yield from _rows_of(part) if yield_single_examples else [part]
                if watched.stop_requested:
                    break
            watched.end()

    # ------------------------------------------------------------------ models

    def _batches(
        self, input_fn: Callable[..., Any], mode: str, strategy: Strategy, is_bounded: bool = False
    ) -> contextlib.closing[Batches]:
        known = {"params": self.params, "config": self._config}
        return contextlib.closing(Batches(input_fn, mode, strategy, is_bounded, **known))

    def _model(
        self, mode: str, strategy: Strategy, batch: tuple[PyTree, PyTree], is_new: bool
    ) -> Model:
        """Returns the model of a mode, kept from an earlier call unless it is to be a new one."""
        kept = None if is_new else self._models.get(mode)
        if kept is None or kept.strategy is not strategy:
            kept = Model(functools.partial(self._call_model_fn, mode=mode), mode, strategy, batch)
            self._models[mode] = kept
        return kept

    def _restored(
        self,
        mode: str,
        strategy: Strategy,
        batch: tuple[PyTree, PyTree],
        path: str | os.PathLike[str] | None,
    ) -> tuple[Model, int]:
        path = self.latest_checkpoint() if path is None else os.fspath(path)
        if path is None:
            _log.info("There is no trained model in %s; it has initial values.", self._model_dir)
        model = self._model(mode, strategy, batch, is_new=path is None)
        return model, restored(model, path)

    def _call_model_fn(
        self, features: PyTree, labels: PyTree, mode: str, config: RunConfig | None = None
    ) -> EstimatorSpec:
        known = {"labels": labels, "mode": mode, "params": self.params}
        known["config"] = config or self._config
        if labels is not None and "labels" not in self._model_arguments:
            raise ValueError(
                "model_fn does not take `labels`, but input_fn returns (features, labels). Add the "
                "argument, or return the features alone."
            )
        given = {name: known[name] for name in known.keys() & self._model_arguments}
        with averaged_losses():
            spec = self._model_fn(features=features, **given)
        if not isinstance(spec, EstimatorSpec):
            raise ValueError(f"model_fn must return an EstimatorSpec; it returned {spec!r}.")
        if spec.mode != mode:
            raise ValueError(
                f"model_fn was called with mode {mode!r} and returned EstimatorSpec(mode="
                f"{spec.mode!r}). Write EstimatorSpec(mode, ...)."
            )
        return spec

    # ------------------------------------------------------------------ what is saved

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the latest checkpoint; None if there is none."""
        return latest_checkpoint(self._model_dir)

    def get_variable_names(self) -> list[str]:
        """Returns the names of the variables in the latest checkpoint."""
        return saved_names(self._need_checkpoint())

    def get_variable_value(self, name: str) -> np.ndarray:
        """Returns the value of a variable in the latest checkpoint."""
        path, name = self._need_checkpoint(), name.removesuffix(":0")
        names = saved_names(path)
        if name not in names:
            raise ValueError(
                f"There is no variable {name!r} in the checkpoint. There are: {', '.join(names)}."
            )
        return saved_value(path, name)

    def _need_checkpoint(self) -> str:
        path = self.latest_checkpoint()
        if path is None:
            raise ValueError(
                f"There is no checkpoint in {self._model_dir}: the model is not trained. Call "
                "train(input_fn, steps=...) first."
            )
        return path


def _require_number(loss: jax.Array, step: int) -> None:
    """Before a save: a checkpoint that is not a number would be the latest forever."""
    if np.isnan(loss):
        raise NanLossDuringTrainingError(
            f"The loss of step {step} is not a number (NaN), and this model is not saved. Lower "
            "the learning rate, clip the gradients, or look for NaN in the data; training goes on "
            "from the last checkpoint."
        )


def _checked_arguments(model_fn: Callable[..., Any], params: object) -> set[str]:
    taken = parameters_of(model_fn, "model_fn")
    if unknown := sorted(taken - set(_MODEL_ARGUMENTS)):
        raise ValueError(
            f"model_fn takes {', '.join(unknown)}, which nobody will pass. It may take "
            "`features`, `labels`, `mode`, `params` and `config`; other things go into `params`."
        )
    if "features" not in taken:
        raise ValueError("model_fn must take `features`, by this name.")
    if params is not None and "params" not in taken:
        raise ValueError(
            f"The estimator was given params={params!r}, but model_fn does not take `params`. Add "
            "the argument."
        )
    return taken


def _chosen_directory(model_dir: str | os.PathLike[str] | None, config: RunConfig | None) -> str:
    given = None if model_dir is None else os.fspath(model_dir)
    of_config = None if config is None else config.model_dir
    if given == "":
        raise ValueError("`model_dir` is an empty text. Pass a directory, or None.")
    if None not in (given, of_config) and given != of_config:
        raise ValueError(
            f"`model_dir` is {given!r} for the estimator and {of_config!r} in its RunConfig. Give "
            "it once."
        )
    chosen = given or of_config
    if chosen is None:
        chosen = tempfile.mkdtemp()
        _warnings.warn(f"The estimator saves to the temporary directory {chosen}: no `model_dir`.")
    return absolute_path(chosen, "model_dir")


def _selected(predictions: PyTree, keys: list[str] | None) -> Any:
    """Returns those of the predictions that the user wants."""
    if not keys:
        return predictions
    if not isinstance(predictions, dict):
        raise ValueError(
            f"`predict_keys` names {keys}, but model_fn returned predictions that are no "
            "dictionary. Leave it out, or return predictions={'name': ...}."
        )
    found = {name: value for name, value in predictions.items() if name in keys}
    if not found:
        raise ValueError(
            f"None of predict_keys={keys} is among the predictions: {', '.join(predictions)}."
        )
    return found


def _rows_of(predictions: PyTree) -> Iterator[Any]:
    """Yields the predictions of each row."""
    if not isinstance(predictions, dict):
        yield from predictions
        return
    lengths = {name: value.shape[0] if value.ndim else None for name, value in predictions.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        raise ValueError(
            f"The predictions do not have the same number of rows: {lengths}. Return arrays with a "
            "row for each row of the features, or use predict(..., yield_single_examples=False)."
        )
    for row in range(next(iter(lengths.values())) or 0):
        yield {name: value[row] for name, value in predictions.items()}
