"""A `model_fn` at work: in TensorFlow it built a graph once, here it is traced into compiled steps.

It is called whenever a step is traced, and its variables must be the same ones each time. So they
have names, as in a graph: the first call makes them, later ones are handed those of the same name.
That first call is only traced, which computes nothing and assigns nothing; it tells which variables
there are, before a checkpoint is restored and the loss is differentiated.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._typing import PyTree
from replicax._src.compat.estimator._spec import EstimatorSpec, ModeKeys
from replicax._src.context import calling_a_model_fn, current_replica, is_compiling
from replicax._src.functions import function
from replicax._src.strategies import Strategy
from replicax._src.training import Mean, Metric, Optimizer, value_and_grad
from replicax._src.variable import Variable, variable_creator_scope


@final
class _OnlyTraced(Exception):
    """Ends a trace that is not to become a program."""


@final
class Model:
    """A `model_fn` in one mode, on one strategy, with the variables that it made."""

    def __init__(
        self,
        model_fn: Callable[[Any, Any], EstimatorSpec],
        mode: str,
        strategy: Strategy,
        batch: tuple[Any, Any],
    ):
        """
        Args:
          model_fn: takes features and labels.
          mode: one of `ModeKeys`.
          strategy: where it runs.
          batch: features and labels, for their shapes.
        """
        self._model_fn = model_fn
        self._mode = mode
        self.strategy = strategy
        self._is_built = False
        self._train_op: Callable[[list[Any]], Any] | None = None
        self.variables: dict[str, Variable] = {}
        self.metrics: dict[str, Metric] = {}
        if mode == ModeKeys.EVAL:
            with strategy.scope():
                self.metrics["loss"] = Mean("loss")
        self._build(batch)

    @property
    def saved_variables(self) -> dict[str, Variable]:
        """The variables by name, without the sums of metrics: local variables in TensorFlow."""
        of_metrics = {id(each) for metric in self.metrics.values() for each in metric.variables}
        return {name: each for name, each in self.variables.items() if id(each) not in of_metrics}

    # ------------------------------------------------------------------ variables

    def _build(self, batch: tuple[Any, Any]) -> None:
        def on_replica(features: PyTree, labels: PyTree) -> None:
            if not is_compiling():
                raise ValueError(
                    "model_fn cannot be traced as one program. Perhaps it reads a data set, or "
                    "reads and changes a variable that was made elsewhere: give it all data as "
                    "features, and make its variables in it."
                )
            with self._naming():
                spec = self._model_fn(features, labels)
                self.metrics |= spec.eval_metric_ops or {}
                if self._mode == ModeKeys.TRAIN:
                    op = spec.train_op
                    self._train_op = op.apply_gradients if isinstance(op, Optimizer) else op
                    trainable = self._trainable()
                    if not trainable:
                        raise ValueError(
                            "model_fn made no trainable variables, so that nothing would be "
                            "trained. Make the variables, or the Keras layers, in model_fn itself: "
                            "those that were made elsewhere are not those of the estimator."
                        )
                    self._apply([jnp.zeros_like(each) for each in trainable])

        @function
        def build(features: PyTree, labels: PyTree) -> None:
            self.strategy.run(on_replica, args=(features, labels))
            raise _OnlyTraced

        with contextlib.suppress(_OnlyTraced):
            # The same for all replicas: uneven shares could not be traced.
            build(*jax.tree.map(_traceable, self.strategy.experimental_local_results(batch)[0]))
        self._is_built = True

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Variables made inside are those of the same names, once they exist."""
        taken: set[str] = set()

        def creator(next_creator: Callable[..., Variable], **kwargs: Any) -> Variable:
            name = _unique((kwargs.get("name") or "Variable").removesuffix(":0"), taken)
            taken.add(name)
            if self._is_built:
                return self._known(name, kwargs.get("initial_value"))
            made = next_creator(**{**kwargs, "name": name})
            return self.variables.setdefault(name, made)

        with calling_a_model_fn(), variable_creator_scope(creator):
            yield

    def _known(self, name: str, initial_value: Any) -> Variable:
        variable = self.variables.get(name)
        if variable is None:
            raise ValueError(
                f"model_fn made the variable {name!r} in a later call, but not in its first one, "
                f"which made {', '.join(self.variables) or 'none'}. It must make the same ones in "
                f"each call with mode {self._mode!r}."
            )
        if not callable(initial_value) and jnp.shape(initial_value) != variable.shape:
            raise ValueError(
                f"model_fn made the variable {name!r} with shape {variable.shape} first, and now "
                f"with shape {jnp.shape(initial_value)}. It must make the same variables in the "
                "same order in each call; or give each a name: rx.Variable(..., name='w')."
            )
        return variable

    def _trainable(self) -> list[Variable]:
        found = [variable for variable in self.variables.values() if variable.trainable]
        return [variable for variable in found if jnp.issubdtype(variable.dtype, jnp.inexact)]

    # ------------------------------------------------------------------ steps

    @functools.cached_property
    def step(self) -> Callable[[Any, Any], Any]:
        """One compiled step on all replicas: the loss of training, the predictions, or None."""
        of_replica = {
            ModeKeys.TRAIN: self._train,
            ModeKeys.EVAL: self._evaluate,
            ModeKeys.PREDICT: lambda features, labels: self._spec(features, labels).predictions,
        }[self._mode]

        @function
        def step(features: PyTree, labels: PyTree) -> Any:
            results = self.strategy.run(of_replica, args=(features, labels))
            if self._mode == ModeKeys.TRAIN:
                return self.strategy.reduce("SUM", results, axis=None)
            return results

        return step

    def _spec(self, features: PyTree, labels: PyTree) -> EstimatorSpec:
        with self._naming():
            return self._model_fn(features, labels)

    def _train(self, features: PyTree, labels: PyTree) -> Any:
        variables = self._trainable()
        rows = _rows((features, labels))
        part = _part_of_all(rows)
        # Optimizers sum over the replicas. With the loss of each weighed by its rows, the sum is
        # the mean over all rows: what one replica would have.
        loss, gradients = value_and_grad(
            lambda: self._spec(features, labels).loss * part, variables
        )
        if rows == 0:  # the mean of nothing is not a number
            loss = jnp.zeros_like(loss)
            gradients = [None if each is None else jnp.zeros_like(each) for each in gradients]
        self._apply(gradients)
        return loss

    def _apply(self, gradients: list[Any]) -> None:
        assert self._train_op is not None
        self._train_op(list(zip(gradients, self._trainable(), strict=True)))

    def _evaluate(self, features: PyTree, labels: PyTree) -> None:
        spec = self._spec(features, labels)  # which updates the metrics
        rows = _rows((features, labels))
        if rows:
            self.metrics["loss"].update_state(spec.loss, sample_weight=rows)


def _unique(name: str, taken: set[str]) -> str:
    """Returns a name that is not taken, as TensorFlow does in a graph: w, w_1, w_2."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _traceable(array: np.ndarray | jax.Array) -> Any:
    """Returns an array that can be traced: with rows, and no text; steps on those run as Python."""
    is_text = isinstance(array, np.ndarray) and array.dtype.kind in "OSU"
    if array.ndim and (is_text or not array.shape[0]):
        shape = max(1, array.shape[0]), *array.shape[1:]
        return np.zeros(shape, np.int8 if is_text else array.dtype)
    return array


def _rows(batch: PyTree) -> int:
    """Returns how many rows a replica has."""
    shapes = [jnp.shape(each) for each in jax.tree.leaves(batch)]
    return next((shape[0] for shape in shapes if shape), 1)


def _part_of_all(rows: int) -> Any:
    """Returns the rows of this replica, as a part of those of all replicas."""
    context = current_replica()
    if context is None:
        return 1.0
    return rows / context.all_reduce("SUM", jnp.float32(rows))
