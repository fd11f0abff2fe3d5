"""The scenarios, one module a topic. Importing this package registers them all."""

from .._registry import all_scenarios as all_scenarios
from . import (  # noqa: F401
    contexts,
    cross_device_ops,
    data_distributed,
    data_files,
    data_from_functions,
    data_operations,
    data_refused,
    data_shuffling,
    devices,
    distributed_values,
    extended,
    gathering,
    losses,
    merging,
    metrics,
    optimizers,
    reducing,
    replica_collectives,
    running,
    v1,
    values,
    variable_creation,
    variable_updates,
    variables,
)
