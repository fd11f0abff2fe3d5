"""What a `model_fn` is asked for, and what it answers: `ModeKeys` and `EstimatorSpec`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from replicax._src.training import Metric, Optimizer

_OWN_RESULTS = ("loss", "global_step")


class ModeKeys:
    """What a model is for in this call."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclasses.dataclass(frozen=True, eq=False)
class EstimatorSpec:
    """What a `model_fn` returns.

    Args:
      mode: one of `ModeKeys`.
      predictions: an array, or a dictionary of arrays, with a row for each row of the features.
      loss: a scalar: the mean over the rows that the function was given.
      train_op: an `rx.Optimizer`, which gets the gradients of the loss with respect to all
        trainable variables; or a function of these, as `(gradient, variable)` pairs.
      eval_metric_ops: metrics of `rx.metrics` by name, which the function has updated.
      export_outputs: kept for ported code; there are no exports.
      training_chief_hooks: must be empty.
      training_hooks: must be empty: hooks are given to `Estimator.train`.
      scaffold: must be None.
      evaluation_hooks: must be empty.
      prediction_hooks: must be empty.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Optimizer | Callable[[list[tuple[Any, Any]]], Any] | None = None
    eval_metric_ops: Mapping[str, Metric] | None = None
    export_outputs: Any = None
    training_chief_hooks: Any = None
    training_hooks: Any = None
    scaffold: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None

    def __post_init__(self) -> None:
        if self.mode not in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT):
            raise ValueError(f"`mode` must be one of ModeKeys; got {self.mode!r}.")
        if self.mode == ModeKeys.PREDICT:
            self._require("predictions", "predictions={'classes': ...}")
        else:
            self._require("loss", "loss=loss, the mean over the rows")
        if self.mode == ModeKeys.TRAIN:
            self._require("train_op", "train_op=rx.Optimizer(optax.sgd(0.1))")
        for name in ("training_chief_hooks", "training_hooks", "evaluation_hooks"):
            self._refuse(name, "Pass hooks to Estimator.train(hooks=...) or evaluate(hooks=...).")
        self._refuse("prediction_hooks", "Pass hooks to Estimator.predict(hooks=...).")
        self._refuse("scaffold", "Variables start from their initial values, or a checkpoint.")
        if self.loss is not None:
            object.__setattr__(self, "loss", _scalar(self.loss))
        if _is_of_keras(getattr(self.train_op, "__self__", self.train_op)):
            raise TypeError(
                f"`train_op` is of Keras: {self.train_op!r}. An optimizer of Keras knows variables "
                "of Keras alone, and the estimator has all. Write it with Optax: "
                "train_op=rx.Optimizer(optax.adam(1e-3))."
            )
        if not (isinstance(self.train_op, Optimizer | None) or callable(self.train_op)):
            raise TypeError(
                "`train_op` must be an rx.Optimizer, or a function that takes (gradient, variable) "
                f"pairs, such as optimizer.apply_gradients; got {self.train_op!r}."
            )
        for name, metric in (self.eval_metric_ops or {}).items():
            if not isinstance(metric, Metric):
                whose = " of Keras" if _is_of_keras(metric) else ""
                raise TypeError(
                    f"eval_metric_ops[{name!r}] must be a metric of rx.metrics; got "
                    f"{metric!r}{whose}. "
                    "Make one, call its update_state(labels, predictions), and pass the metric."
                )
            if name in _OWN_RESULTS:
                raise ValueError(
                    f"A metric may not be called {name!r}: the estimator returns something of that "
                    "name by itself. Choose another."
                )

    def _require(self, name: str, example: str) -> None:
        if getattr(self, name) is None:
            raise ValueError(
                f"Missing `{name}`: a model_fn called with mode {self.mode!r} must return it. "
                f"Write EstimatorSpec(mode, {example})."
            )

    def _refuse(self, name: str, remedy: str) -> None:
        if getattr(self, name):
            raise ValueError(f"EstimatorSpec does not support `{name}`. {remedy}")


def _is_of_keras(value: object) -> bool:
    return any(kind.__module__.partition(".")[0] == "keras" for kind in type(value).__mro__)


def _scalar(loss: ArrayLike) -> Any:
    loss = jnp.asarray(loss)
    if loss.size != 1:
        raise ValueError(
            f"`loss` must be one number, the mean over the rows; got shape {loss.shape}. Use "
            "jnp.mean(losses)."
        )
    return loss.reshape(())


def require_positive(**counts: int | None) -> None:
    """Raises an error that names the one of these numbers of steps which is none."""
    for name, count in counts.items():
        if count is not None and (not isinstance(count, Integral) or count <= 0):
            raise ValueError(
                f"`{name}` must be a whole number greater than 0, or None; got {count!r}."
            )
