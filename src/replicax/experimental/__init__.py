"""`rx.experimental`: names that TensorFlow keeps there."""

from replicax._src.data._optional import Optional as Optional

__all__ = ["Optional"]
