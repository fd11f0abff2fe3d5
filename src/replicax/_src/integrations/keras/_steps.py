"""One step of `fit`, `evaluate` or `predict` on all replicas.

Keras's own step on JAX, `train_step(state, data)`, is a function from the values of all variables
to their new values. Each replica calls it with its copies and keeps what comes back. One that was
written for TensorFlow, `train_step(data)`, uses the variables themselves. Only gradients
(`_updates.py`) and what is shown of metrics cross from replica to replica.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from keras.src import backend, tree
from keras.src.backend.jax.core import JaxVariable
from keras.src.backend.jax.trainer import JAXTrainer
from keras.src.models.model import Model

import replicax as rx
from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.context import current_replica, has_strategy
from replicax._src.functions import Function
from replicax._src.integrations.keras import _on_servers, _scheduled_steps
from replicax._src.integrations.keras._batches import OnReplicas, Sharing, joined
from replicax._src.integrations.keras._shares import Share, of_means
from replicax._src.integrations.keras._variables import (
    differs_by_replica,
    is_own,
    noting_assignments,
)
from replicax._src.strategies import Strategy

StepFunction = Callable[[Any, Iterator[Any]], tuple[Any, Any]]


def train_function(model: Model, strategy: Strategy) -> StepFunction:
    """Returns what Keras calls for each batch of `fit`, in place of its own compiled step."""

    train = _with_logs(model, strategy, "train_step")

    def function(state: PyTree, iterator: Iterator[Any]) -> tuple[Any, Any]:
        object.__setattr__(model, "_unsettled", True)
        return train(state, iterator)

    function.compiled = getattr(train, "compiled")  # type: ignore  # noqa: B009
    return function


def test_function(model: Model, strategy: Strategy) -> StepFunction:
    """Returns the same for `evaluate`."""
    return _with_logs(model, strategy, "test_step")


def predict_function(model: Model, strategy: Strategy) -> StepFunction:
    """Returns the same for `predict`; the outputs are in the order of the rows."""
    _require_replicated(model, strategy, model.variables)

    def on_replica(data: PyTree) -> Any:
        return _called(model, "predict_step", data, Share(_rows_of(data)))

    def predict_step(data: PyTree) -> Any:
        return strategy.run(on_replica, args=(data,))

    run = _compiled(model, predict_step)
    sharing = Sharing(strategy)

    def step(batch: PyTree) -> Any:
        data, _ = _unwrapped(sharing.share_out(batch))
        return tree.map_structure(lambda output: joined(strategy, output), run(data))

    def join(outputs: list[Any]) -> Any:
        if len(outputs) == 1:
            return outputs[0]
        return tree.map_structure(lambda *parts: np.concatenate(parts), *outputs)

    return _several(model, step, join)


def _with_logs(model: Model, strategy: Strategy, name: str) -> StepFunction:
    _require_replicated(model, strategy, [v for group in _groups(model, name) for v in group])

    def on_replica(data: PyTree, rows: ArrayLike | None) -> Any:
        share = Share(_rows_of(data), rows)
        with of_means(share), noting_assignments() as assigned:
            logs = _called(model, name, data, share)
        return _logs_of_all(model, logs, share, assigned)

    def run(data: PyTree, rows: ArrayLike | None) -> Any:
        return strategy.run(on_replica, args=(data, rows))

    run.__name__ = name  # as reports have it
    compiled = _compiled(model, run)
    sharing = Sharing(strategy)

    def step(batch: PyTree) -> Any:
        logs = compiled(*_unwrapped(sharing.share_out(batch)))
        return tree.map_structure(lambda log: strategy.experimental_local_results(log)[0], logs)

    several = _several(model, step, lambda logs: logs[-1])
    several.compiled = compiled  # for who records it
    return several


def scheduled_function(name: str) -> Callable[[Model, Strategy], Any]:
    """Returns what makes `train_function` and the like where steps are functions on workers."""
    step_name = name.replace("function", "step")

    def make(model: Model, strategy: Strategy) -> Any:
        groups = [model.variables] if name == "predict_function" else _groups(model, step_name)
        _require_replicated(model, strategy, [v for group in groups for v in group])
        step = getattr(model, step_name)
        is_own = getattr(type(model), step_name) is getattr(JAXTrainer, step_name)
        return _scheduled_steps.function(model, strategy, step_name, _takes_state(step), is_own)

    return make


def settle(model: Model) -> None:
    """Sets what replicas kept each for themselves while they trained to the mean of all."""
    if not model.__dict__.pop("_unsettled", False):
        return
    own = [v.__rx_variable__ for v in model.variables if differs_by_replica(v)]
    if not own:
        return

    def average() -> None:
        for variable in own:
            variable.assign(variable.read_value())

    known, function = model.__dict__.get("_settling", (None, None))
    if function is None or known != [id(v) for v in own]:
        function = rx.function(average)
        object.__setattr__(model, "_settling", ([id(v) for v in own], function))
    with own[0].distribute_strategy.scope():
        function()


def _several(model: Model, step: Callable[[Any], Any], join: Callable[[list[Any]], Any]) -> Any:
    """`steps_per_execution` steps, or as many as there are batches."""

    def function(state: PyTree, iterator: Iterator[Any]) -> tuple[Any, Any]:
        results = [step(next(iterator))]
        for _ in range(model.steps_per_execution - 1):
            try:
                batch = next(iterator)
            except StopIteration:
                break
            results.append(step(batch))
        return join(results), state

    return function


def _compiled(model: Model, run: Callable[..., Any]) -> Callable[..., Any]:
    if model.run_eagerly or not model.jit_compile:
        return run
    return Function(run)


def _takes_state(step: Callable[..., Any]) -> bool:
    """Returns whether a step is `step(state, data)`, as Keras on JAX has it, or `step(data)`."""
    kinds = [each.kind for each in inspect.signature(step).parameters.values()]
    return len([kind for kind in kinds if kind is not inspect.Parameter.KEYWORD_ONLY]) != 1


def _groups(model: Model, name: str) -> list[list[Any]]:
    """Returns the variables that make up the state of a step of Keras."""
    groups = [model.trainable_variables, model.non_trainable_variables]
    if name == "train_step":
        groups.append([] if model.optimizer is None else model.optimizer.variables)
    if name != "predict_step":
        groups.append(model.metrics_variables)
    return groups


def _called(model: Model, name: str, data: PyTree, share: Share) -> Any:
    """Calls a step of the model on a replica, and returns its logs or outputs."""
    step = getattr(model, name)
    if _takes_state(step):
        return _with_state(model, name, step, data, share)
    groups = _groups(model, name)
    before = [[v.value for v in group] for group in groups] if not share.rows else []
    result = step(data)
    if not share.rows:
        for group, old in zip(groups, before, strict=True):
            new = [v.value for v in group]
            _keep(group, new, _without_rows(group, old, new))
    return result


def _with_state(
    model: Model, name: str, step: Callable[..., Any], data: PyTree, share: Share
) -> Any:
    """Calls a step of Keras's kind, and keeps the state that it returns."""
    groups = _groups(model, name)
    state = tuple([v.value for v in group] for group in groups)
    result, after = step(state, data)
    if name == "predict_step":  # it returns what is not trainable alone
        after = (state[0], after)
    for group, before, new in zip(groups, state, after, strict=True):
        _keep(group, before, new if share.rows else _without_rows(group, before, new))
    return result


def of_either_kind(original: Callable[..., Any], model: Model, *args: PyTree) -> Any:
    """Keras's own steps, which those of TensorFlow's kind call as `super().train_step(data)`."""
    if len(args) != 1 or not has_strategy():
        return original(model, *args)
    [data] = args
    if _on_servers.is_on_worker():
        return _scheduled_steps.STEPS[original.__name__](model, data)
    share = Share(_rows_of(data))
    return _with_state(model, original.__name__, functools.partial(original, model), data, share)


def _unwrapped(batch: PyTree) -> tuple[Any, ArrayLike | None]:
    """Returns the shares, and the rows of all of them if they differ in number."""
    leaves = [leaf for leaf in tree.flatten(batch) if leaf is not None]
    rows = leaves[0].rows
    data = tree.map_structure(
        lambda leaf: leaf.value if isinstance(leaf, OnReplicas) else leaf, batch
    )
    return data, None if rows is None else np.int32(rows)  # an array: one program for any number


def _rows_of(data: PyTree) -> int:
    """Returns how many rows a replica has."""
    return next((leaf.shape[0] for leaf in tree.flatten(data) if jnp.ndim(leaf)), 1)


def _keep(variables: list[Any], before: list[Any], after: list[Any]) -> None:
    for variable, old, new in zip(variables, before, after, strict=True):
        if new is not old:
            variable.set_on_replica(new)


def _without_rows(variables: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """Returns what a replica without rows keeps: of its own state, no means of nothing."""
    return [
        jnp.where(jnp.isfinite(new), new, old) if is_own(variable) and new is not old else new
        for variable, old, new in zip(variables, before, after, strict=True)
    ]


def _logs_of_all(model: Model, logs: PyTree, share: Share, assigned: set[int]) -> Any:
    """Returns a step's logs for all replicas: of metrics the result of all rows, else the mean.

    `assigned`: the ids of the variables that the step changed. Under the name of a metric that it
    did not touch, it returns something of its own.
    """
    context = current_replica()
    if context is None or not isinstance(logs, dict):
        return logs
    first = context.replica_id_in_sync_group == 0
    count = context.num_replicas_in_sync

    def part(variable: JaxVariable) -> Any:
        value: Any = variable.value
        if variable.aggregation == "sum":
            return value
        if variable.aggregation == "only_first_replica":
            return jnp.where(first, value, jnp.zeros_like(value))
        return value / count

    variables = model.metrics_variables
    parts = [part(variable) for variable in variables]
    logs = _tree.map_structure(share.part, logs)
    totals, logs = context.all_reduce("SUM", (parts, logs))
    mapping = list(zip(variables, totals, strict=True))
    with backend.StatelessScope(state_mapping=mapping):
        for metric in model.metrics:
            if any(id(variable) in assigned for variable in metric.variables):
                found = {metric.name: metric.result()}
                if isinstance(found[metric.name], dict):  # by its name, or each by its own
                    found |= found[metric.name]
                logs.update({name: found[name] for name in found.keys() & logs.keys()})
    return logs


def _require_replicated(model: Model, strategy: Strategy, variables: list[Any]) -> None:
    for variable in variables:
        own = getattr(variable, "__rx_variable__", None)
        owner = None if own is None else own.distribute_strategy
        if owner is strategy:
            continue
        where = "outside of any scope" if owner is None else f"in the scope of {owner!r}"
        raise ValueError(
            f"The model {model.name!r} was made in the scope of {strategy!r}, but its variable "
            f"{variable.path!r} was made {where}. Make everything that it has (layers, the "
            "optimizer, metrics) inside `with strategy.scope():`."
        )
