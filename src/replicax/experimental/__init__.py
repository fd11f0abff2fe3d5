"""`rx.experimental`: names that TensorFlow keeps there."""

from replicax.data._optional import Optional as Optional

__all__ = ["Optional"]
