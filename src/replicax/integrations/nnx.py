"""Flax NNX under a strategy."""


def join() -> None:
    """Lets modules made in a scope live under its strategy."""
