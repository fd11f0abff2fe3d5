"""Keras 3, on its JAX backend, under a strategy.

What is made inside `strategy.scope()` is distributed: layers, optimizers and metrics keep their
values in Variables of the strategy, and a model's `fit`, `evaluate` and `predict` run on all
replicas, wherever they are called. Nothing is to be imported from here: Keras joins in when a scope
is entered.
"""

import sys

from replicax._src._warnings import warn


def join() -> None:
    """Called once, when a scope is entered and Keras is loaded."""
    keras = sys.modules["keras"]
    backend = keras.config.backend()
    if backend != "jax":
        warn(
            f"Keras runs on its {backend} backend here, so that Keras objects do not follow "
            "strategies of replicax. Set KERAS_BACKEND=jax in the environment before keras is "
            "imported."
        )
        return
    if keras.config.is_nnx_enabled():
        warn(
            "Keras keeps its variables as Flax NNX does here (KERAS_NNX_ENABLED), so that Keras "
            "objects do not follow strategies of replicax. Unset it."
        )
        return
    from replicax._src.integrations.keras._hooks import install

    install()
