"""Keras objects in an `rx.train.Checkpoint`.

What lies below an object goes by its place there, not by Keras's names alone: those count up in a
process (`dense_7`), and the model that is to be restored has others. Layers that are not built yet
have their names already, so that their variables can be restored when they are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from keras.src.backend.common.variables import Variable as KerasVariable
from keras.src.backend.jax.core import JaxVariable
from keras.src.layers.layer import Layer
from keras.src.metrics.metric import Metric
from keras.src.models.model import Model
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.utils.naming import to_snake_case

import replicax as rx
from replicax._src.variable import are_sources_asked

KerasObject = Layer | Metric | BaseOptimizer


def install() -> None:
    """Lets checkpoints ask Keras objects for what is to be saved of them."""
    names: dict[type, Callable[[Any], Iterable[tuple[str, Any]]]] = {
        Layer: _below_layer,
        Metric: _below_metric,
        BaseOptimizer: _below_optimizer,
    }
    for kind, below in names.items():
        setattr(kind, "_checkpoint_children", _children(below))  # noqa: B010
        setattr(kind, "_tensorflow_children", _in_tensorflow)  # noqa: B010
    setattr(BaseOptimizer, "_tensorflow_slots", _slots_in_tensorflow)  # noqa: B010


def _children(below: Callable[[Any], Iterable[tuple[str, Any]]]) -> Callable[[Any], dict[str, Any]]:
    def children(owner: KerasObject) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, child in below(owner):
            kind = to_snake_case(type(child).__name__)
            # Names that Keras counted up itself; those of the user stay as they are.
            name = re.sub(rf"^((?:forward_|backward_)?{re.escape(kind)})_\d+$", r"\1", name)
            number = 0
            while (unique := f"{name}_{number}" if number else name) in found:
                number += 1
            found[unique] = child if isinstance(child, KerasObject) else _variable(child, owner)
        return found

    return children


def _below_layer(layer: Layer) -> Iterable[tuple[str, Any]]:
    for variable in (*layer._trainable_variables, *layer._non_trainable_variables):
        yield variable.name, variable
    for generator in layer._seed_generators:
        yield "seed_generator", generator.state
    for inner in layer._layers:
        yield inner.name, inner


def _below_metric(metric: Metric) -> Iterable[tuple[str, Any]]:
    for variable in metric._variables:
        yield variable.name, variable
    for inner in metric._metrics:
        yield inner.name, inner


def _below_optimizer(optimizer: BaseOptimizer) -> Iterable[tuple[str, Any]]:
    learnt = [(v.path.replace("/", "_"), v.name) for v in optimizer._trainable_variables]
    learnt.sort(key=lambda each: -len(each[0]))
    for variable in optimizer._variables:
        of = next((each for each in learnt if variable.name.startswith(f"{each[0]}_")), None)
        # "sequential_3_dense_7_kernel_momentum" is "kernel_momentum"
        yield (of[1] + variable.name[len(of[0]) :] if of else variable.name), variable
    inner = getattr(optimizer, "inner_optimizer", None)
    for each in [inner, *getattr(optimizer, "_inner_optimizers", [])]:
        if each is not None:
            yield "inner_optimizer", each


# --- in TensorFlow's checkpoints ------------------------------------------------------------------


def _in_tensorflow(owner: KerasObject) -> dict[str, Any]:
    """Returns what is below an object, by all names that TensorFlow's checkpoints have for it.

    Keras 3 on TensorFlow names attributes, lists among them (`_operations/2/_kernel`); so did Keras
    2, and the layers of a model besides (`layer_with_weights-0/kernel`). Metrics of models and the
    state of seed generators are not in these checkpoints.
    """
    found: dict[str, Any] = {}
    for name, value in vars(owner).items():
        if isinstance(value, Metric) or name in ("_metrics", "_seed_generators"):
            continue
        kept = _kept(value, owner)
        if kept is not None:
            found[name] = kept
            found.setdefault(name.removeprefix("_"), kept)
    if isinstance(owner, Model):
        with_weights = 0
        for index, layer in enumerate(owner.layers):
            found[f"layer-{index}"] = layer
            if layer.weights:
                found[f"layer_with_weights-{with_weights}"] = layer
                with_weights += 1
    if isinstance(owner, BaseOptimizer):
        found["iter"] = found["_iterations"]
    return found


def _kept(value: object, owner: KerasObject) -> Any:
    """Returns what is saved of an attribute: variables, layers, and structures of them; or None."""
    if isinstance(value, KerasVariable):
        return _variable(value, owner)  # pyright: ignore
    if isinstance(value, Layer | BaseOptimizer):
        return value
    if isinstance(value, list | tuple):
        items = {str(index): _kept(each, owner) for index, each in enumerate(value)}
    elif isinstance(value, dict):
        items = {str(key): _kept(each, owner) for key, each in value.items()}
    else:
        return None
    return {name: each for name, each in items.items() if each is not None} or None


def _slots_in_tensorflow(
    optimizer: BaseOptimizer,
) -> list[tuple[rx.Variable, int, str, rx.Variable]]:
    """Returns the parts of an optimizer's state that are lists beside its variables."""
    variables = [_variable(each, optimizer) for each in optimizer._trainable_variables]
    return [
        (owner, position, name, _variable(state[position], optimizer))
        for name, state in vars(optimizer).items()
        if isinstance(state, list)
        and not name.endswith("_variables")
        and len(state) == len(variables)
        for position, owner in enumerate(variables)
        if isinstance(state[position], KerasVariable)
    ]


def _variable(variable: JaxVariable, owner: KerasObject) -> Any:
    found = getattr(variable, "__rx_variable__", None)
    if found is None and are_sources_asked():
        return variable  # it is refused when it is used itself
    if found is None:
        raise ValueError(
            f"{type(owner).__name__} {owner.name!r} cannot be in an rx.train.Checkpoint: its "
            f"variable {variable.path!r} was made outside of a strategy's scope. Make it inside "
            "`with strategy.scope():` (rx.distribute.OneDeviceStrategy will do), or use "
            "model.save()."
        )
    return found
