"""`rx.experimental`: names that TensorFlow keeps there."""

from replicax._src.data import Optional as Optional

__all__ = ["Optional"]
