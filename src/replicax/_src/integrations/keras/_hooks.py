"""Everything that is changed in Keras, in one place.

Each hook does what Keras does, unless a strategy is concerned: a variable gets its value inside a
scope, a model was made in one, code runs in a replica. The classes and functions are Keras's
internals; `_versions.py` says with which versions they were tested.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import jax
import keras
from keras.src.backend.common import variables as common_variables
from keras.src.backend.jax import nn
from keras.src.backend.jax.core import JaxVariable
from keras.src.backend.jax.trainer import JAXEpochIterator, JAXTrainer
from keras.src.callbacks import tensorboard
from keras.src.layers import BatchNormalization
from keras.src.layers.layer import Layer
from keras.src.layers.rnn.rnn import RNN
from keras.src.losses import loss
from keras.src.metrics.reduction_metrics import Mean
from keras.src.models.model import Model
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from keras.src.random import seed_generator
from keras.src.random.seed_generator import SeedGenerator
from keras.src.trainers.trainer import Trainer

from replicax._src._errors import WrongContextError
from replicax._src._typing import DTypeLike
from replicax._src._versions import KERAS, warn_unless_tested
from replicax._src.context import (
    get_strategy,
    has_strategy,
    in_cross_replica_context,
    is_compiling,
    model_fn_scopes,
    thread_state,
    world,
)
from replicax._src.functions import NotOneProgram
from replicax._src.integrations.keras import (
    _batches,
    _checkpoints,
    _losses,
    _normalization,
    _on_servers,
    _plain_variables,
    _scheduled_steps,
    _steps,
    _tensorboard,
    _updates,
    _variables,
    _workers,
)
from replicax._src.integrations.keras._variables import Original
from replicax._src.strategies import Strategy, input_layout_of


def install() -> None:
    """Changes Keras; to be called once."""
    warn_unless_tested("Keras", keras.__version__, KERAS)
    _hook_variables()
    _hook_reductions()
    _hook_models()
    _hook_callbacks()
    # All that was looked for is there: nothing is changed by halves.
    for owner, name, value in _changes:
        setattr(owner, name, value)
    model_fn_scopes.append(_variables.around_model_fn)
    _checkpoints.install()
    _on_servers.install()


_changes: list[tuple[Any, str, Any]] = []  # owner, attribute, new value


def _around(owner: object, name: str, around: Callable[..., Any]) -> None:
    """Notes that `owner.name` is to become `around(original, ...)`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def hook(*args: object, **kwargs: object) -> Any:
        return around(original, *args, **kwargs)

    # Keras looks at the arguments of __init__, to save them, and does not look behind a wrapper.
    setattr(hook, "__signature__", inspect.signature(original))  # noqa: B010
    _changes.append((owner, name, hook))


def _hook_variables() -> None:
    value: Any = JaxVariable.value
    _changes.append((JaxVariable, "_to_be_made_in", None))
    _changes.append(
        (JaxVariable, "__rx_variable__", property(_plain_variables.made_when_asked_for))
    )
    _around(common_variables, "initialize_all_variables", _variables.initialize_all)
    _changes.append((JaxVariable, "_looks_left", 0))
    _changes.append((JaxVariable, "value", property(_plain_variables.read, doc=value.__doc__)))
    _around(JaxVariable, "_initialize", _plain_variables.initialize)
    _around(JaxVariable, "_direct_assign", _plain_variables.assign)
    _around(SeedGenerator, "next", _plain_variables.next_seed)
    _around(seed_generator, "global_seed_generator", _plain_variables.global_seed_generator)


def _hook_reductions() -> None:
    _around(nn, "moments", _normalization.moments)
    _around(BatchNormalization, "__init__", _make_batch_normalization)
    _around(loss, "reduce_weighted_values", _losses.reduced_loss)
    for name, then in (
        ("scale_loss_for_distribution", _losses.scaled_loss),
        ("unscale_loss_for_distribution", _losses.unscaled_loss),
    ):
        _around(loss, name, lambda original, value, then=then: then(original(value)))
    _around(BatchNormalization, "_moments", _normalization.masked_moments)
    _around(BatchNormalization, "call", _normalization.normalized)
    _around(Mean, "update_state", _losses.update_mean)
    _changes.append((Layer, "_losses_override", _losses.LossesOfLayers()))
    _changes.append((Layer, "_loss_ids", _losses.IdsOfLosses()))
    _around(BaseOptimizer, "__init__", _make_optimizer)
    _around(BaseOptimizer, "add_variable", _add_variable)
    _around(BaseOptimizer, "add_variable_from_reference", _on_servers.with_its_variable)
    _around(BaseOptimizer, "apply_gradients", _apply_gradients)
    for kind in (BaseOptimizer, LossScaleOptimizer):
        _around(kind, "apply", _updates.apply)
        _around(kind, "stateless_apply", _updates.stateless_apply)


def _make_batch_normalization(
    original: Original, layer: Layer, *args: object, **kwargs: object
) -> None:
    # Keras refuses it on JAX. Outside of strategies too: what was saved is to be loaded there.
    synchronized = kwargs.pop("synchronized", False)
    original(layer, *args, **kwargs)
    layer.synchronized = synchronized


def _make_optimizer(
    original: Original, optimizer: BaseOptimizer, *args: object, **kwargs: object
) -> None:
    with _on_servers.on_all_servers():
        original(optimizer, *args, **kwargs)


def _add_variable(
    original: Original,
    optimizer: BaseOptimizer,
    shape: Sequence[int],
    initializer: object = "zeros",
    dtype: DTypeLike | None = None,
    aggregation: str | None = "none",
    **kwargs: object,
) -> Any:
    # Replicas make the same update: what they keep for it is the same on all.
    if has_strategy() and aggregation in (None, "none"):
        aggregation = "only_first_replica"
    with _on_servers.on_all_servers():  # or with that which it belongs to
        return original(optimizer, shape, initializer, dtype, aggregation, **kwargs)


def _apply_gradients(
    original: Original,
    optimizer: BaseOptimizer,
    grads_and_vars: Iterable[tuple[jax.Array, JaxVariable]],
) -> Any:
    pairs = list(grads_and_vars)
    if not pairs and has_strategy():
        raise ValueError(
            f"The optimizer {optimizer.name!r} was given no gradients. If they are those of "
            "model.trainable_variables, the model had none when you asked for them: call it "
            "once on a batch before, in the scope, or give it an Input layer."
        )
    return original(optimizer, pairs)


def _hook_callbacks() -> None:
    own_summary: Any = tensorboard.TensorBoard.summary
    summary = functools.partial(_tensorboard.summary, own_summary)
    _changes.append((tensorboard.TensorBoard, "summary", property(summary)))
    _around(tensorboard, "keras_model_summary", _tensorboard.model_summary)


@final
class _Running(threading.local):
    strategy: Strategy | None = None  # of the model whose method is running on this thread
    handled: BaseException | None = None  # what was being handled when that was called


_running = _Running()


def strategy_of(layer: Layer) -> Strategy | None:
    """Returns the strategy in whose scope a layer or model was made, or None."""
    return vars(layer).get("_made_in_strategy")


def _hook_models() -> None:
    _around(Layer, "__init__", _init)
    _around(Layer, "_open_name_scope", _built_in_own_strategy)
    _around(RNN, "inner_loop", _variables.read_before_the_loop)
    for name in ("compile", "train_on_batch", "test_on_batch", "predict_on_batch"):
        _around(Trainer if name == "compile" else JAXTrainer, name, _in_own_strategy)
    for name in ("fit", "evaluate", "predict"):
        _around(JAXTrainer, name, _with_our_data)
    for name, function in (
        ("train_function", _steps.train_function),
        ("test_function", _steps.test_function),
        ("predict_function", _steps.predict_function),
    ):
        _around(JAXTrainer, f"make_{name}", functools.partial(_make, name, function))
    for name in ("train_step", "test_step", "predict_step"):
        _around(JAXTrainer, name, _steps.of_either_kind)
    _around(Trainer, "_symbolic_build", _build_by_call)
    _around(JAXTrainer, "_get_jax_state", _jax_state)
    _around(JAXTrainer, "jax_state_sync", _jax_state_sync)
    _around(JAXEpochIterator, "_get_iterator", _iterator)
    for name in ("save", "save_weights"):
        _around(Model, name, _written_once)


def _init(original: Original, layer: Layer, *args: object, **kwargs: object) -> None:
    original(layer, *args, **kwargs)
    if has_strategy():
        # Past Keras's own __setattr__, which keeps track of what a layer has.
        object.__setattr__(layer, "_made_in_strategy", get_strategy())


def _built_in_own_strategy(original: Original, layer: Layer) -> Any:
    """Keras enters this around `build`: wherever that is, the variables are the strategy's."""
    strategy = strategy_of(layer)
    if strategy is None or layer.built or has_strategy():
        return original(layer)
    return _inside(strategy, original(layer))


@contextlib.contextmanager
def _inside(
    strategy: Strategy, name_scope: contextlib.AbstractContextManager[Any]
) -> Iterator[None]:
    with strategy.scope(), name_scope:
        yield


def _in_own_strategy(original: Original, model: Model, *args: object, **kwargs: object) -> Any:
    """Wherever a method is called, it runs in the strategy of the model."""
    strategy = strategy_of(model)
    if _is_among_others(strategy):
        with _outside_of_scopes():
            return _in_own_strategy(original, model, *args, **kwargs)
    if has_strategy() and not in_cross_replica_context():
        raise WrongContextError(
            f"{original.__name__}() of the model {model.name!r} was called in a replica, inside "
            "strategy.run. It runs on all replicas by itself: call it outside of strategy.run, or "
            "use model(x) here."
        )
    if original.__name__ != "compile":
        world().refuse_in_program(
            lambda: NotOneProgram(f"it calls {original.__name__}() of a Keras model")
        )
    if strategy is None:
        if has_strategy() and original.__name__ != "compile":
            raise WrongContextError(
                f"{original.__name__}() of the model {model.name!r} was called in the scope of "
                f"{get_strategy()!r}, but the model was made outside of it, and has its "
                "variables on one device. Make the model inside `with strategy.scope():`."
            )
        return original(model, *args, **kwargs)
    before = _running.strategy, _running.handled
    _running.strategy, _running.handled = strategy, sys.exc_info()[1]
    try:
        with strategy.scope():
            return original(model, *args, **kwargs)
    finally:
        _running.strategy, _running.handled = before


def _is_among_others(strategy: Strategy | None) -> bool:
    """Returns whether a model of another strategy is at work, as in a callback of its `fit`."""
    running = _running.strategy
    return running is not None and running is not strategy and in_cross_replica_context()


@contextlib.contextmanager
def _outside_of_scopes() -> Iterator[None]:
    before = thread_state.frames, _running.strategy
    thread_state.frames, _running.strategy = [], None
    try:
        yield
    finally:
        thread_state.frames, _running.strategy = before


def _with_our_data(original: Original, model: Model, *args: object, **kwargs: object) -> Any:
    """`fit`, `evaluate`, `predict`: also of data sets of ours, and with other workers."""
    strategy = strategy_of(model)
    if _is_among_others(strategy):
        with _outside_of_scopes():
            return _with_our_data(original, model, *args, **kwargs)
    if is_compiling() or (strategy is None and not _batches.has_ours((*args, *kwargs.values()))):
        return _in_own_strategy(original, model, *args, **kwargs)
    try:
        given = inspect.signature(original).bind(model, *args, **kwargs).arguments
    except TypeError as error:  # which does not say of what
        raise TypeError(f"{original.__qualname__}() {error}") from None
    del given["self"]
    given.update(given.pop("kwargs", {}))
    if strategy is not None and _on_servers.is_on_servers(strategy):
        given = _scheduled_steps.readable(model, strategy, given, original.__name__)
        return _in_own_strategy(original, model, **given)
    given = _batches.readable(given, strategy)
    if strategy is None:
        return _in_own_strategy(original, model, **given)
    _workers.agree_on_chance(strategy)
    with _workers.silent_unless_first(strategy, given) as arguments:
        return _in_own_strategy(original, model, **arguments)


def _build_by_call(original: Original, model: Model, *args: Any, **kwargs: Any) -> None:
    """A model with a step of its own, and no `call`, has its variables in models inside of it."""
    if strategy_of(model) is None or type(model).call is not Model.call:
        original(model, *args, **kwargs)
    else:
        model.built = True


def _make(
    name: str,
    function: Callable[[Any, Any], Any],
    original: Original,
    model: Model,
    force: bool = False,
) -> Any:
    """`make_train_function` and its like."""
    strategy = strategy_of(model)
    if strategy is None:
        return original(model, force)
    if force or getattr(model, name) is None:
        if _on_servers.is_on_servers(strategy):
            function = _steps.scheduled_function(name)
        setattr(model, name, function(model, strategy))
    return getattr(model, name)


def _jax_state(
    original: Original, model: Model, purge_model_variables: bool = False, **kinds: bool
) -> Any:
    """Keras carries the values of variables through its loops; ours stay where they are."""
    if strategy_of(model) is None:
        return original(model, purge_model_variables=purge_model_variables, **kinds)
    return tuple([] for wanted in kinds.values() if wanted)


def _jax_state_sync(original: Original, model: Model) -> None:
    """Keras is about to look at the variables of a model that was trained."""
    strategy = strategy_of(model)
    if _on_servers.is_on_servers(strategy):
        if sys.exc_info()[1] is _running.handled:  # no error is on its way out
            _scheduled_steps.join(model)
        original(model)
        return
    original(model)
    if strategy is not None and not _fails_alone(strategy):
        _steps.settle(model)


def _fails_alone(strategy: Strategy) -> bool:
    """Returns whether an error is on its way out that other workers may not have.

    To do something together with them would put another error in its place.
    """
    several = input_layout_of(strategy).workers > 1
    return several and sys.exc_info()[1] is not _running.handled


def _iterator(original: Original, epoch_iterator: JAXEpochIterator) -> Any:
    if _running.strategy is None:
        return original(epoch_iterator)
    if _on_servers.is_on_servers(_running.strategy):
        return epoch_iterator.data_adapter.get_numpy_iterator()
    sharing = _batches.Sharing(_running.strategy)
    return sharing.all_of(epoch_iterator.data_adapter.get_numpy_iterator())


def _written_once(
    original: Original,
    model: Model,
    filepath: str | os.PathLike[str],
    *args: object,
    **kwargs: object,
) -> None:
    def write(path: str | os.PathLike[str]) -> None:
        original(model, path, *args, **kwargs)

    strategy = strategy_of(model)
    if strategy is None:
        write(filepath)
    else:
        _workers.written_once(strategy, write, filepath)
