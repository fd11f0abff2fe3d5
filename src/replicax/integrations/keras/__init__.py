"""Keras 3 on its JAX backend under a strategy."""


def join() -> None:
    """Lets Keras objects made in a scope live under its strategy."""
