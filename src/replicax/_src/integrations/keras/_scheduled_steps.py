"""`fit`, `evaluate` and `predict` with parameter servers: each step is a function on a worker.

Keras's loop runs in the program that schedules, and reads the batches there; or each worker reads
its own. Steps run at each worker's pace. At the end of an epoch, and wherever Keras or a callback
looks at the model, all of them are waited for.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
from keras.src import backend, tree
from keras.src.models.model import Model
from keras.src.trainers.data_adapters.data_adapter_utils import unpack_x_y_sample_weight

import replicax as rx
from replicax._src._typing import PyTree, override
from replicax._src.functions import Function
from replicax._src.integrations.keras._batches import BatchesAdapter, DatasetAdapter
from replicax._src.parameter_servers import ClusterCoordinator, PerWorkerValues, RemoteValue
from replicax._src.strategies import Strategy

_AHEAD = 32  # steps for each worker that wait or run, while Keras goes on
_PENDING = "_scheduled"  # the attribute of a model with what it has scheduled


def coordinator_of(strategy: Strategy) -> ClusterCoordinator:
    """Returns the coordinator of a strategy: there is one for each."""
    assert isinstance(strategy, rx.distribute.ParameterServerStrategy)
    return ClusterCoordinator(strategy)


# ---------------------------------------------------------------------- on a worker


def train_step(model: Model, data: PyTree) -> Any:
    """Keras's own step of `fit`, in a function on a worker: gradients go to the servers."""
    x, y, sample_weight = unpack_x_y_sample_weight(data)
    training = {"training": True} if model._call_has_training_arg else {}

    def loss_fn() -> Any:
        predicted = model(x, **training)
        loss = model._compute_loss(x, y, predicted, sample_weight, training=True)
        return model.optimizer.scale_loss(loss), (loss, predicted)

    (_, (loss, predicted)), gradients = rx.value_and_grad(
        loss_fn, model.trainable_variables, has_aux=True
    )
    _track(model, loss, x)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return model.compute_metrics(x, y, predicted, sample_weight)


def test_step(model: Model, data: PyTree) -> Any:
    """Runs a step of `evaluate`; returns its metrics."""
    x, y, sample_weight = unpack_x_y_sample_weight(data)
    predicted = model(x, **({"training": False} if model._call_has_training_arg else {}))
    loss = model._compute_loss(x, y, predicted, sample_weight, training=False)
    _track(model, loss, x)
    return model.compute_metrics(x, y, predicted, sample_weight)


def predict_step(model: Model, data: PyTree) -> Any:
    """Runs a step of `predict`; returns the predictions."""
    x, _, _ = unpack_x_y_sample_weight(data)
    return model(x, **({"training": False} if model._call_has_training_arg else {}))


def _track(model: Model, loss: Any, x: PyTree) -> None:
    rows = next(leaf for leaf in tree.flatten(x) if leaf is not None).shape[0]
    model._loss_tracker.update_state(loss, sample_weight=rows)


STEPS: dict[str, Callable[[Model, Any], Any]] = {
    "train_step": train_step,
    "test_step": test_step,
    "predict_step": predict_step,
}

# ---------------------------------------------------------------------- Keras's loop


def function(
    model: Model, strategy: Strategy, name: str, takes_state: bool, is_own: bool
) -> Callable[..., Any]:
    """Returns what Keras calls for each batch, in place of its own compiled step.

    Args:
      model: the model.
      strategy: in whose scope it was made.
      name: of the step.
      takes_state: whether it is `step(state, data)`.
      is_own: whether it is Keras's own.
    """
    if takes_state and not is_own:
        raise TypeError(
            f"{type(model).__name__}.{name}(state, data) returns new values for all variables. "
            "With a ParameterServerStrategy these are on servers, and workers send updates: write "
            f"{name}(self, data), with rx.value_and_grad and self.optimizer.apply_gradients."
        )

    def step(data: PyTree) -> Any:
        return STEPS[name](model, data) if is_own else getattr(model, name)(data)

    step.__name__ = name
    compiled = step if model.run_eagerly or not model.jit_compile else Function(step)

    def on_worker(data: Any) -> Any:
        return compiled(next(data) if isinstance(data, Iterator) else data)

    on_worker.__qualname__ = f"{name} of the model {model.name!r}"
    coordinator = coordinator_of(strategy)
    workers = len(coordinator.strategy.extended.workers)
    steps = _Steps(coordinator, _AHEAD * workers)
    if name == "predict_step":
        return _each_by_itself(coordinator, on_worker)
    object.__setattr__(model, _PENDING, [*getattr(model, _PENDING, ()), steps])

    def scheduled(state: PyTree, iterator: Iterator[Any]) -> tuple[Any, Any]:
        logs: dict[str, Any] = steps.run(on_worker, next(iterator))
        for _ in range(model.steps_per_execution - 1):
            try:
                batch = next(iterator)
            except StopIteration:
                break
            logs = steps.run(on_worker, batch)
        return logs, state

    return scheduled


def _each_by_itself(coordinator: ClusterCoordinator, on_worker: Callable[..., Any]) -> Any:
    def predict(state: PyTree, iterator: Iterator[Any]) -> tuple[Any, Any]:
        return _fetched(coordinator, coordinator.schedule(on_worker, args=(next(iterator),))), state

    return predict


def _fetched(coordinator: ClusterCoordinator, value: RemoteValue) -> Any:
    """Returns a result. An error is raised here, and not by the coordinator's next call, too."""
    try:
        return value.fetch()
    except Exception:
        coordinator.join()  # which raises it, too, and only once
        raise


def join(model: Model) -> None:
    """Waits for the steps of a model: Keras, or a callback, looks at it."""
    for steps in getattr(model, _PENDING, ()):
        steps.join()


@final
class _Steps:
    """Those that a model has scheduled, and what is known of their results."""

    def __init__(self, coordinator: ClusterCoordinator, ahead: int):
        self._coordinator = coordinator
        self._ahead = ahead
        self._pending: collections.deque[RemoteValue] = collections.deque()
        self._known: Any = None  # the logs of the last step whose result was taken
        self._given: Any = None  # what the caller has of them

    def run(self, on_worker: Callable[..., Any], batch: PyTree) -> Any:
        """Schedules a step. Returns the logs of one that has ended: of the first, its own."""
        self._pending.append(self._coordinator.schedule(on_worker, args=(batch,)))
        while self._pending and (
            self._known is None or len(self._pending) > self._ahead or self._pending[0].is_there
        ):
            self._take()
        self._given = dict(self._known) if isinstance(self._known, dict) else self._known
        return self._given

    def _take(self) -> None:
        value = self._pending.popleft()
        try:
            self._known = _fetched(self._coordinator, value)
        except Exception:
            self._pending.clear()
            raise

    def join(self) -> None:
        """Waits for all of them, and completes the logs that were returned last."""
        if not self._pending:
            return
        pending = list(self._pending)
        self._pending.clear()
        self._coordinator.join()
        self._known = pending[-1].fetch()
        if isinstance(self._known, dict) and isinstance(self._given, dict):
            self._given.update(self._known)


# ---------------------------------------------------------------------- data of workers


@final
class OfWorkers(BatchesAdapter):
    """Data that each worker reads by itself: batches are what makes it read the next one."""

    def __init__(self, data: PerWorkerValues):
        self._data = data

    @override
    def get_numpy_iterator(self) -> Iterator[Any]:
        iterator = iter(self._data)
        while True:
            yield iterator


def readable(
    model: Model, strategy: Strategy, given: dict[str, Any], method: str
) -> dict[str, Any]:
    """Returns the arguments of `fit` and the like as Keras can read them."""
    found = dict(given)
    steps = {"x": "steps_per_epoch" if method == "fit" else "steps"}
    steps["validation_data"] = "validation_steps"
    for name, count in steps.items():
        data = given.get(name)
        if isinstance(data, rx.data.Dataset):
            found[name] = DatasetAdapter(data)
            continue
        if callable(data) and not hasattr(data, "__getitem__") and not hasattr(data, "__iter__"):
            data = coordinator_of(strategy).create_per_worker_dataset(data)
        if not isinstance(data, PerWorkerValues):
            continue
        if method == "predict":
            raise TypeError(
                "predict() returns rows in the order of the data, so it reads them here: pass "
                "arrays or a data set, not those of workers."
            )
        if given.get(count) is None:
            raise ValueError(
                f"Workers read the data of `{name}` by themselves, and none of them knows when all "
                f"have had enough: pass `{count}`, the number of steps of all workers together."
            )
        _build(model, strategy, data)
        found[name] = OfWorkers(data)
    return found


def _build(model: Model, strategy: Strategy, data: PerWorkerValues) -> None:
    """Lets Keras make variables for the data of workers, which it does not see."""

    def looks(dataset: Any) -> Any:
        return tree.map_structure(
            lambda leaf: None if leaf is None else (leaf.shape, np.dtype(leaf.dtype).name),
            next(iter(dataset)),
            none_is_leaf=True,
        )

    coordinator = coordinator_of(strategy)
    found = _fetched(coordinator, coordinator.schedule(looks, args=(data,)))
    batch = _mapped(found)
    with strategy.scope():
        model._symbolic_build(data_batch=batch)


def _mapped(found: PyTree) -> Any:
    if found is None:
        return None
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], str):
        return backend.KerasTensor(found[0], found[1])
    if isinstance(found, dict):
        return {name: _mapped(each) for name, each in found.items()}
    return tuple(_mapped(each) for each in found)
