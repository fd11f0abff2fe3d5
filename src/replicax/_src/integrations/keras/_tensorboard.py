"""Keras's TensorBoard callback without TensorFlow: what it writes goes through `rx.summary`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, final

from keras.src.callbacks import tensorboard

import replicax as rx


@final
class Summaries:
    """What the callback uses of `tf.summary`. JAX makes the profile, and has no graph to trace."""

    create_file_writer = staticmethod(rx.summary.create_file_writer)
    record_if = staticmethod(rx.summary.record_if)
    scalar = staticmethod(rx.summary.scalar)
    image = staticmethod(rx.summary.image)

    @staticmethod
    def histogram(name: str, data: Any, step: int) -> bool:
        return rx.summary.histogram(name, getattr(data, "value", data), step=step)

    @staticmethod
    def trace_on(graph: bool, profiler: bool) -> None:
        pass

    @staticmethod
    def trace_export(name: str, step: int) -> None:
        pass


def without_tensorflow() -> bool:
    return importlib.util.find_spec("tensorflow") is None


def summary(original: property, callback: tensorboard.TensorBoard) -> Any:
    """Returns what `callback.summary` is: a module of TensorFlow, if there is one."""
    if callback._summary_module is None and without_tensorflow():
        callback._summary_module = Summaries  # pyright: ignore  # in the place of a module
    return original.fget(callback)  # pyright: ignore[reportOptionalCall]


def model_summary(original: Callable[..., bool], *args: object, **kwargs: object) -> bool:
    """Draws the model, for which a message of TensorFlow is needed; returns whether it did."""
    return not without_tensorflow() and original(*args, **kwargs)
