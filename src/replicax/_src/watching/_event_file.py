"""The file that TensorBoard reads, written by tensorboardX, which needs no TensorFlow.

Of tensorboardX, only what encodes summaries and writes records is used. Its `SummaryWriter` writes
in a thread behind a queue, and its `flush` does not wait for that.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np

_numbers = itertools.count()


def tensorboardx() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import tensorboardX
        import tensorboardX.event_file_writer
        import tensorboardX.summary
    except ImportError as error:
        raise ImportError(
            "rx.summary needs the package `tensorboardX`, which is not installed. Run "
            '`pip install "replicax[tensorboard]"`.'
        ) from error
    return tensorboardX


class EventFile:
    """One file of events."""

    def __init__(self, logdir: str, suffix: str) -> None:
        os.makedirs(logdir, exist_ok=True)
        package = tensorboardx()
        # The name has the second in it, and a second writer of the same second would overwrite it.
        unique = f".{os.getpid()}.{next(_numbers)}{suffix}"
        self._events = package.event_file_writer
        self._writer = self._events.EventsWriter(os.path.join(logdir, "events"), unique)

    def write(self, summary: Any, step: int, wall_time: float) -> None:
        """Appends a summary."""
        event = self._events.event_pb2.Event(summary=summary, step=step, wall_time=wall_time)
        self._writer.write_event(event)

    def flush(self) -> None:
        """Brings everything onto the disk."""
        self._writer.flush()

    def close(self) -> None:
        """Brings everything onto the disk and ends the file."""
        self._writer.close()


def scalar_summary(name: str, value: float) -> Any:
    """One number."""
    return _named(tensorboardx().summary.scalar("-", value), name)


def histogram_summary(name: str, values: np.ndarray, buckets: int) -> Any:
    """How finite numbers are distributed, over buckets of the same width."""
    return _named(tensorboardx().summary.histogram("-", values, buckets), name)


def image_summary(name: str, image: np.ndarray) -> Any:
    """One picture: bytes, of shape (height, width, channels)."""
    return _named(tensorboardx().summary.image("-", image, dataformats="HWC"), name)


def text_summary(name: str, text: str) -> Any:
    """Markdown."""
    return _named(tensorboardx().summary.text("-", text), name)


def describe(summary: Any, description: str) -> None:
    """Adds a text about it. TensorBoard shows that of a number if the number is a tensor."""
    (value,) = summary.value
    value.metadata.summary_description = description
    if value.WhichOneof("value") == "simple_value":
        number = value.simple_value
        value.metadata.plugin_data.plugin_name = "scalars"
        value.tensor.dtype = 1  # float32, without dimensions
        value.tensor.tensor_shape.SetInParent()
        value.tensor.float_val.append(number)


def _named(summary: Any, name: str) -> Any:
    summary.value[0].tag = name  # tensorboardX puts an underscore in place of a blank
    return summary
