"""Keras 3, on its JAX backend, under a strategy.

What is made inside `strategy.scope()` is distributed: layers, optimizers and metrics keep their
values in Variables of the strategy, and a model's `fit`, `evaluate` and `predict` run on all
replicas, wherever they are called. Nothing is to be imported from here: Keras joins in when a scope
is entered.
"""

import sys

from replicax._warnings import warn


def join() -> None:
    """Called once, when a scope is entered and Keras is loaded."""
    backend = sys.modules["keras"].config.backend()
    if backend == "jax":
        from replicax.integrations.keras._hooks import install

        install()
    else:
        warn(
            f"Keras runs on its {backend} backend here, so that Keras objects do not follow "
            "strategies of replicax. Set KERAS_BACKEND=jax in the environment before keras is "
            "imported.",
        )
