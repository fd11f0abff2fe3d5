"""Descriptions of a cluster that cannot be right."""

import os
from typing import Any
from unittest import mock

from tests.misuse.table import errors, misuse, rx


def resolved(text: str) -> Any:
    """Reads a TF_CONFIG as a strategy does."""
    with mock.patch.dict(os.environ, {"TF_CONFIG": text}):
        return rx.distribute.cluster_resolver.TFConfigClusterResolver().task_id


@misuse(errors.ClusterConfigError, "too many lists or objects inside", r'Write \{"cluster"')
def nested_deeply(strategy: Any) -> None:
    resolved('{"cluster": ' + "[" * 200_000 + "]" * 200_000 + "}")


@misuse(errors.ClusterConfigError, "number of 5000 digits", "place of a worker.*write")
def index_of_many_digits(strategy: Any) -> None:
    resolved('{"task": {"type": "worker", "index": ' + "9" * 5000 + "}}")


@misuse(errors.ClusterConfigError, "'index' of the task.*must be a whole", "0 for the first")
def index_of_many_digits_in_a_string(strategy: Any) -> None:
    resolved('{"task": {"type": "worker", "index": "' + "9" * 5000 + '"}}')


@misuse(errors.ClusterConfigError, "must be a whole number.*too large to show", "0 for the first")
def task_id_of_many_digits(strategy: Any) -> None:
    rx.distribute.cluster_resolver.TFConfigClusterResolver(task_id=10**5000).task_id  # noqa: B018
