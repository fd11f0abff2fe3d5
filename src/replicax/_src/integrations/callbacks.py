"""Keras callbacks of other services, such as Weights & Biases and MLflow: one worker has them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from replicax._src.cluster import checked_cluster, current_membership, resolver_from_environment

_T = TypeVar("_T")


def callback_on_first_worker(make: Callable[[], _T]) -> _T:
    """Returns the Keras callback that a function makes, on the first worker only.

    Services such as Weights & Biases and MLflow expect one process to start a run and to report.
    All workers have the same metrics, so one is enough.

    >>> def report():
    ...     import mlflow
    ...     mlflow.start_run()
    ...     return mlflow.keras.MlflowCallback()
    >>> import replicax as rx
    >>> callbacks = [rx.train.callback_on_first_worker(report)]  # doctest: +SKIP

    Args:
      make: Starts a run and makes the callback. The others do not call it, and need not have the
        package.

    Returns:
      What `make` returns, or a `keras.callbacks.Callback` that does nothing.

    Raises:
      ImportError: The package is not installed on the first worker; the text says what to install.
    """
    if not callable(make):
        raise TypeError(
            "callback_on_first_worker takes a function that makes the callback, so that other "
            f"workers make none: write `lambda: ...`. Got {make!r}."
        )
    if not _is_first():
        idle: Any = importlib.import_module("keras").callbacks.Callback()
        return idle
    try:
        return make()
    except ModuleNotFoundError as error:
        package = (error.name or "the package").partition(".")[0]
        raise ModuleNotFoundError(
            f"{package}, which the callback needs, is not installed on the first worker. Run "
            f"there: pip install {package}",
            name=error.name,
        ) from error


def _is_first() -> bool:
    membership = current_membership()
    if membership is not None:
        return membership.worker == 0
    view = checked_cluster(resolver_from_environment())
    return view is None or view.is_chief
