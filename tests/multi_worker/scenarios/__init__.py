"""The scenarios, one module a topic. Importing this package registers them all."""

from .._registry import all_scenarios as all_scenarios
from . import (  # noqa: F401
    cluster,
    collectives,
    data,
    data_files,
    disagreeing,
    extended,
    gradients,
    input_functions,
    reducing,
    running,
    training,
    values,
    variable_creation,
    variable_updates,
)
