"""The rows of `test_misuse.py`: wrong programs, each with the error that it must end in."""

from tests.misuse import (
    checkpoints,
    clusters,
    collectives,
    contexts,
    data,
    devices,
    extended,
    files,
    functions,
    metrics,
    reduce_and_gather,
    run,
    training,
    values,
    variables,
)
from tests.misuse.table import MISUSES

__all__ = [
    "MISUSES",
    "clusters",
    "checkpoints",
    "collectives",
    "contexts",
    "data",
    "devices",
    "extended",
    "files",
    "functions",
    "metrics",
    "reduce_and_gather",
    "run",
    "training",
    "values",
    "variables",
]
